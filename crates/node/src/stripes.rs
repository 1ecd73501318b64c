//! Requests for stripes: read, write, cut and remove the bytes of one stripe.
//!
//! An operation that the engine completes at once is answered at once. Otherwise the answer waits
//! for its completion, and for space if there is none.

use crate::{Node, ReplyFuture, execute::refusal_from, space::EngineFull};
use bytes::Bytes;
use std::sync::Arc;
use store::{EngineError, Generation, PendingOperation, StoreCompletion, StripeKey};
use wire::{Answer, Failure, Object, Outcome, Refusal, Session, StripeAction};

/// A change of a stripe that may need space, kept until there is some.
struct StripeMutation {
    session: Session,
    key: StripeKey,
    generation: Generation,
    op: StripeOp,
}

/// The change that is made to a stripe.
enum StripeOp {
    Write { offset: u32, ends: bool, data: Bytes },
    Fill { data: Bytes },
    Zero { offset: u32, length: u32 },
    Extend { length: u32 },
}

impl Node {
    pub(crate) fn execute_stripe(
        self: &Arc<Self>,
        session: Session,
        key: StripeKey,
        action: StripeAction,
    ) -> ReplyFuture {
        let change = |generation, op| {
            self.mutate_stripe(StripeMutation { session, key, generation: Generation(generation), op })
        };
        let changed = match action {
            StripeAction::Write { generation, offset, ends, data } => {
                return change(generation, StripeOp::Write { offset, ends, data });
            }
            StripeAction::Fill { data } => return change(0, StripeOp::Fill { data }),
            StripeAction::Zero { generation, offset, length } => {
                return change(generation, StripeOp::Zero { offset, length });
            }
            StripeAction::Extend { generation, length } => return change(generation, StripeOp::Extend { length }),
            StripeAction::Read { offset, length } => {
                let bytes = self.engine.read(key, offset, length);
                // If it has left meanwhile, its stripes may have been removed.
                if !self.partitions.serves(key.partition) {
                    return ReplyFuture::ready(Err(Failure::Refused(self.moved(key.partition))));
                }
                return self.stripe_reply(bytes, key, Answer::Bytes);
            }
            StripeAction::Truncate { generation, length } => {
                self.record_stray(session, key);
                self.engine.truncate(key, Generation(generation), length)
            }
            StripeAction::Remove => self.engine.remove(key),
            StripeAction::Fit => self.engine.shrink_to_fit(key),
        };
        self.stripe_reply(changed, key, |()| Answer::Done)
    }

    fn mutate_stripe(self: &Arc<Self>, mutation: StripeMutation) -> ReplyFuture {
        let pending = match self.submit_mutation(&mutation) {
            Ok(StoreCompletion::Ready(done)) => match self.mutation_outcome(&mutation, done) {
                Ok(outcome) => return ReplyFuture::ready(outcome.map_err(Failure::Refused)),
                Err(_) => None,
            },
            Ok(StoreCompletion::Pending(pending)) => Some(pending),
            Err(refusal) => return ReplyFuture::ready(Err(Failure::Refused(refusal))),
        };
        let node = self.clone();
        ReplyFuture::deferred(async move { node.mutate_slowly(&mutation, pending).await.map_err(Failure::Refused) })
    }

    /// Waits for the change that was submitted; without one, or if it finds no space, waits for
    /// space.
    async fn mutate_slowly(&self, mutation: &StripeMutation, pending: Option<PendingOperation<()>>) -> Outcome<Answer> {
        if let Some(pending) = pending
            && let Ok(outcome) = self.mutation_outcome(mutation, pending.await)
        {
            return outcome;
        }
        let mut wait = self.space.begin();
        loop {
            let freed = wait.prepare(|| self.reclaim());
            let done = self.submit_mutation(mutation)?.done().await;
            match self.mutation_outcome(mutation, done) {
                Ok(outcome) => return outcome,
                Err(full) => wait.pause(freed, full).await?,
            }
        }
    }

    fn submit_mutation(&self, mutation: &StripeMutation) -> Outcome<StoreCompletion<()>> {
        let StripeMutation { session, key, generation, ref op } = *mutation;
        let has_ended = || self.session_index.has_ended(session);
        if has_ended() {
            return Err(Refusal::SessionEnded);
        }
        let is_stray = self.admit_write(session, key)?;
        let submitted = match op {
            StripeOp::Fill { data } => self.write_last(key, generation, 0, data),
            StripeOp::Write { offset, ends: true, data } => self.write_last(key, generation, *offset, data),
            StripeOp::Write { offset, ends: false, data } => self.engine.write(key, generation, *offset, data),
            StripeOp::Zero { offset, length } => self.engine.zero(key, generation, *offset, *length),
            StripeOp::Extend { length } => self.engine.extend(key, generation, *length),
        };
        // The cleanup of an ended session removes its reserved stripes and those that no file has
        // planned. It may have run before this write was submitted.
        if (is_stray || matches!(op, StripeOp::Fill { .. })) && has_ended() {
            self.clean_up_late_write(session, key);
            return Err(Refusal::SessionEnded);
        }
        Ok(submitted)
    }

    /// Submits the last write to a stripe, and then the release of the space that the stripe does
    /// not need.
    pub(crate) fn write_last(
        &self,
        key: StripeKey,
        generation: Generation,
        offset: u32,
        data: &Bytes,
    ) -> StoreCompletion<()> {
        match self.engine.write(key, generation, offset, data) {
            StoreCompletion::Ready(Ok(())) => self.engine.shrink_to_fit(key),
            written => {
                if matches!(written, StoreCompletion::Pending(_)) {
                    drop(self.engine.shrink_to_fit(key));
                }
                written
            }
        }
    }

    /// The reply to an operation on a stripe that takes no space.
    fn stripe_reply<T: Send + 'static>(
        self: &Arc<Self>,
        completion: StoreCompletion<T>,
        key: StripeKey,
        answer: fn(T) -> Answer,
    ) -> ReplyFuture {
        let node = self.clone();
        let finish =
            move |done: Result<T, EngineError>| done.map(answer).map_err(|error| node.stripe_refusal(error, key));
        match completion {
            StoreCompletion::Ready(done) => ReplyFuture::ready(finish(done)),
            StoreCompletion::Pending(pending) => ReplyFuture::deferred(async move { finish(pending.await) }),
        }
    }

    fn mutation_outcome(
        &self,
        mutation: &StripeMutation,
        done: Result<(), EngineError>,
    ) -> Result<Outcome<Answer>, EngineFull> {
        match done {
            Ok(()) => Ok(Ok(Answer::Done)),
            Err(EngineError::Moved { key }) => Ok(Err(self.moved(key.partition))),
            Err(error) => refusal_from(error, Object::File(mutation.key.file)).map(Err),
        }
    }

    /// Maps an engine error of a call that takes no space: `EngineFull` becomes an I/O error.
    fn stripe_refusal(&self, error: EngineError, key: StripeKey) -> Failure {
        let why = "the engine says that it is full, though nothing was written";
        let refusal = match error {
            EngineError::Moved { key } => Ok(self.moved(key.partition)),
            error => refusal_from(error, Object::File(key.file)),
        };
        let object = Object::File(key.file);
        Failure::Refused(refusal.unwrap_or(Refusal::Io { object, why: why.into() }))
    }
}
