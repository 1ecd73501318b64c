//! A call: a command that is sent to its partition, in whichever session, and past conflicts with
//! intents of others.
//!
//! The future of every verb contains the future of a call, and is moved as a whole. So rare cases
//! are boxed, and no answer is kept across an await: each would enlarge all of those futures.

use crate::{
    Client,
    conflict::ConflictBackoff,
    router::{Router, retry::RetryState, send::Outgoing, session::SessionState},
    session::SESSIONS_MAX,
};
use futures_util::future::Either;
use placement::{FileId, Layout, NodeId, PartitionId, StripeNo};
use std::{future::Future, sync::Arc};
use wire::{
    Answer, Body, Command, Credentials, HostedAnswer, Name, Object, Outcome, Refusal, StripeAction, TypedCommand,
    WalkAction,
};

impl Client {
    /// Sends a partition a command that changes nothing. If intents hold what is asked for, those
    /// that are committed are settled first.
    pub(crate) fn query<V>(&self, partition: PartitionId, call: TypedCommand<V>) -> impl Future<Output = Outcome<V>> {
        self.query_by_route(Route::ById, partition, call)
    }

    pub(crate) async fn query_once(&self, partition: PartitionId, command: Command) -> Outcome<Answer> {
        debug_assert!(!command.is_mutation(), "{command:?} needs a number");
        self.send(partition, &Body::Meta { request_id: None, command }).await
    }

    /// Like [`Self::query`], at the end of a path walk.
    pub(crate) fn query_by_route<V>(
        &self,
        route: Route<'_>,
        partition: PartitionId,
        TypedCommand { command, take }: TypedCommand<V>,
    ) -> impl Future<Output = Outcome<V>> {
        debug_assert!(!command.is_mutation(), "{command:?} needs a number");
        let (home, body) = route.body(partition, command);
        async move {
            match self.send(home, &body).await {
                Ok(Answer::Hosted(hosted)) => {
                    return Box::pin(self.finish_query(partition, into_command(body), hosted)).await.and_then(take);
                }
                Ok(Answer::Unsettled(..)) | Err(Refusal::LockedByIntent { .. }) => {}
                outcome => return outcome.and_then(take),
            }
            Box::pin(self.query_settled(partition, into_command(body))).await.and_then(take)
        }
    }

    /// Sends a partition a command that changes something; it is done once. A command that is
    /// refused because its target is busy, or held by an intent, is retried for a while.
    pub(crate) fn mutate<V>(&self, partition: PartitionId, call: TypedCommand<V>) -> impl Future<Output = Outcome<V>> {
        self.mutate_by_route(Route::ById, partition, call)
    }

    /// Like [`Self::mutate`], at the end of a path walk.
    pub(crate) fn mutate_by_route<V>(
        &self,
        route: Route<'_>,
        partition: PartitionId,
        TypedCommand { command, take }: TypedCommand<V>,
    ) -> impl Future<Output = Outcome<V>> {
        debug_assert!(command.is_mutation(), "{command:?} needs no number");
        let (home, body) = route.body(partition, command);
        async move {
            let outcome = match self.send_with_id(home, partition, &body).await {
                Err(refusal @ (Refusal::Busy(_) | Refusal::LockedByIntent { .. })) => Err(refusal),
                Ok(Answer::Hosted(hosted)) => Ok(hosted),
                outcome => return outcome.and_then(take),
            };
            Box::pin(self.end_mutation(home, partition, &body, outcome)).await.and_then(take)
        }
    }

    /// Ends a change that was not done yet, or that another node must finish.
    async fn end_mutation(
        &self,
        home: PartitionId,
        partition: PartitionId,
        body: &Body,
        outcome: Outcome<HostedAnswer>,
    ) -> Outcome<Answer> {
        let outcome = match outcome {
            Err(refusal) => self.retry_mutation(home, partition, body, refusal).await,
            Ok(hosted) => Ok(Answer::Hosted(hosted)),
        };
        match outcome {
            Ok(Answer::Hosted(hosted)) => Box::pin(self.finish_mutation(home, partition, body, hosted)).await,
            outcome => outcome,
        }
    }

    /// Sends a change. The answer may be one that another node must finish.
    pub(crate) async fn mutate_raw(&self, home: PartitionId, partition: PartitionId, body: &Body) -> Outcome<Answer> {
        match self.send_with_id(home, partition, body).await {
            Err(refusal @ (Refusal::Busy(_) | Refusal::LockedByIntent { .. })) => {
                self.retry_mutation(home, partition, body, refusal).await
            }
            outcome => outcome,
        }
    }

    /// Sends the command by [`Self::mutate_by_route`] or [`Self::query_by_route`], depending on
    /// whether it changes anything. The answer may be that the walk stopped before its end.
    pub(crate) fn execute_by_route(
        &self,
        route: Route<'_>,
        partition: PartitionId,
        command: Command,
    ) -> impl Future<Output = Outcome<Answer>> {
        let call = TypedCommand { command, take: Ok };
        if call.command.is_mutation() {
            Either::Left(self.mutate_by_route(route, partition, call))
        } else {
            Either::Right(self.query_by_route(route, partition, call))
        }
    }

    async fn retry_mutation(
        &self,
        home: PartitionId,
        partition: PartitionId,
        body: &Body,
        refusal: Refusal,
    ) -> Outcome<Answer> {
        let (mut retry, conflicts) =
            (RetryState::new(self.router().retry_policy), ConflictBackoff::new(self.router().retry_policy));
        let mut outcome = Err(refusal);
        loop {
            match outcome {
                Err(Refusal::LockedByIntent { intent }) => self.resolve_conflict(intent, partition, &conflicts).await?,
                Err(refusal @ Refusal::Busy(_)) => retry.pause_after(refusal).await?,
                outcome => return outcome,
            }
            outcome = self.send_with_id(home, partition, body).await;
        }
    }

    /// Like [`Self::mutate`], without resolving conflicts with intents: `LockedByIntent` is
    /// returned to the caller.
    pub(crate) async fn mutate_or_conflict<V>(&self, partition: PartitionId, call: TypedCommand<V>) -> Outcome<V> {
        let TypedCommand { command, take } = call;
        debug_assert!(command.is_mutation(), "{command:?} needs no number");
        let (home, body) = Route::ById.body(partition, command);
        let mut retry = RetryState::new(self.router().retry_policy);
        loop {
            match self.send_with_id(home, partition, &body).await {
                Err(refusal @ Refusal::Busy(_)) => retry.pause_after(refusal).await?,
                outcome => return take(outcome?),
            }
        }
    }

    /// Sends a change once and does not wait for its answer: for destructors, which cannot wait.
    pub(crate) fn mutate_no_wait<V>(&self, partition: PartitionId, TypedCommand { command, .. }: TypedCommand<V>) {
        self.router().send_no_wait(&self.session_state(), partition, command);
    }

    /// Sends an action on a stripe to the partition that has it. A stripe belongs to no session, so
    /// where the session of a bound client has ended, the action is sent in the current one.
    pub(crate) async fn send_stripe(
        &self,
        file: FileId,
        layout: Layout,
        stripe: StripeNo,
        action: StripeAction,
    ) -> Outcome<Answer> {
        let Router { seed, partitions, .. } = *self.router();
        let partition = layout.partition(seed, file, stripe, partitions);
        let body = Body::Stripe { file, stripe, action };
        match self.send(partition, &body).await {
            Err(Refusal::SessionEnded) => Box::pin(self.send_in(None, partition, &body)).await,
            outcome => outcome,
        }
    }

    /// Sends a node a request that concerns none of its partitions. If the session has ended, the
    /// request is sent in the next one.
    pub(crate) async fn query_node(&self, node: NodeId, body: Body) -> Outcome<Answer> {
        for _ in 0..SESSIONS_MAX {
            let state = self.session_state();
            match self.router().send_to_node(&state, node, &body).await {
                Err(Refusal::SessionEnded) => self.renew_session(&state).await?,
                outcome => return outcome,
            }
        }
        Err(Refusal::SessionEnded)
    }

    /// Sends a request without a request id. If the session has ended, the request is sent in the
    /// next one.
    pub(crate) fn send(&self, partition: PartitionId, body: &Body) -> impl Future<Output = Outcome<Answer>> {
        self.send_in(self.options.session.as_ref(), partition, body)
    }

    async fn send_in(&self, bound: Option<&Arc<SessionState>>, partition: PartitionId, body: &Body) -> Outcome<Answer> {
        for _ in 0..SESSIONS_MAX {
            let state = bound.map_or_else(|| self.router().session_state(), Arc::clone);
            let outgoing = Outgoing { state: &state, options: &self.options, partition, body, number: None };
            match self.router().send(outgoing).await {
                Err(Refusal::SessionEnded) if bound.is_none() => {}
                outcome => return outcome,
            }
            self.begin_next_session(&state).await?;
        }
        Err(Refusal::SessionEnded)
    }

    /// Sends a change of a partition to `home`, under a request id. If the session ended before the
    /// change was done, it is sent in the next one, under another id.
    pub(crate) async fn send_with_id(&self, home: PartitionId, partition: PartitionId, body: &Body) -> Outcome<Answer> {
        let none = || Refusal::invalid(Object::Pool, "the pool has no such partition");
        for _ in 0..SESSIONS_MAX {
            let state = self.session_state();
            let number = state.sequences.next(state.id, partition).ok_or_else(none)?;
            let number = Some(&number);
            let outgoing = Outgoing { state: &state, options: &self.options, partition: home, body, number };
            match self.router().send(outgoing).await {
                Err(Refusal::SessionEnded) => {}
                outcome => return outcome,
            }
            self.renew_session(&state).await?;
        }
        Err(Refusal::SessionEnded)
    }
}

/// The command in a body that [`Route::body`] has made.
pub fn command_of(body: &Body) -> &Command {
    body.command().expect("a route's body has a command")
}

/// Like [`command_of`].
fn into_command(body: Body) -> Command {
    match body {
        Body::Meta { command, .. } => command,
        Body::Walk { action: Some(then), .. } => then.command,
        other => unreachable!("no command is in {other:?}"),
    }
}

/// The route by which a command reaches its directory.
#[derive(Clone, Copy, Debug)]
pub enum Route<'a> {
    /// By the directory's id.
    ById,
    /// By its id, if a walk down from `top` leads to `directory` at that moment.
    ByPath {
        /// The start of the walk. Its node must hold the command's partition too.
        top: FileId,
        names: &'a [Name],
        directory: FileId,
        /// The user on whose behalf the path is walked, if permissions are to be checked.
        credentials: Option<&'a Credentials>,
    },
}

impl Route<'_> {
    /// The body of the request, and the partition that it is sent to.
    fn body(self, partition: PartitionId, command: Command) -> (PartitionId, Body) {
        match self {
            Self::ById => (partition, Body::Meta { request_id: None, command }),
            Self::ByPath { top, names, directory, credentials } => {
                let then = Some(Box::new(WalkAction { directory, partition, request_id: None, command }));
                (
                    top.partition(),
                    Body::Walk {
                        start: top,
                        components: names.to_vec(),
                        credentials: credentials.cloned(),
                        action: then,
                    },
                )
            }
        }
    }
}
