//! A reply: an answer that is ready, or the future of one.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};
use tracing::{Instrument, Span};
use wire::{Answer, Failure};

type BoxedReply = Pin<Box<dyn Future<Output = Result<Answer, Failure>> + Send>>;

/// The future of an answer. Most answers of a node in this process are ready at once and cost no
/// allocation.
pub struct ReplyFuture(ReplyState);

enum ReplyState {
    Ready(Option<Result<Answer, Failure>>),
    Pending(BoxedReply),
}

impl ReplyFuture {
    /// A reply whose answer is ready.
    pub fn ready(answer: Result<Answer, Failure>) -> Self {
        Self(ReplyState::Ready(Some(answer)))
    }

    /// A reply whose answer comes later.
    pub fn deferred(answer: impl Future<Output = Result<Answer, Failure>> + Send + 'static) -> Self {
        Self(ReplyState::Pending(Box::pin(answer)))
    }

    /// Enters the span whenever the reply is polled. Costs nothing if the span is disabled.
    #[must_use]
    pub fn in_span(self, span: Span) -> Self {
        match self.0 {
            ReplyState::Pending(answer) if !span.is_disabled() => Self::deferred(answer.instrument(span)),
            state => Self(state),
        }
    }

    /// Calls a function with the answer when there is one; not if the reply is dropped before.
    #[must_use]
    pub fn inspect(self, on_answer: impl FnOnce(&Result<Answer, Failure>) + Send + 'static) -> Self {
        match self.0 {
            ReplyState::Pending(pending) => Self::deferred(async move {
                let answer = pending.await;
                on_answer(&answer);
                answer
            }),
            ReplyState::Ready(answer) => {
                if let Some(answer) = &answer {
                    on_answer(answer);
                }
                Self(ReplyState::Ready(answer))
            }
        }
    }
}

impl Future for ReplyFuture {
    type Output = Result<Answer, Failure>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            ReplyState::Ready(answer) => Poll::Ready(answer.take().expect("a reply is not polled after its answer")),
            ReplyState::Pending(answer) => answer.as_mut().poll(context),
        }
    }
}

impl fmt::Debug for ReplyFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            ReplyState::Ready(answer) => f.debug_tuple("Ready").field(answer).finish(),
            ReplyState::Pending(_) => f.write_str("Later"),
        }
    }
}
