//! A reply: an answer that is ready, or the future of one.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};
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
