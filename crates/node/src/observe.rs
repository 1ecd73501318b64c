//! Observation of requests: a span with the request id, and metrics.
//!
//! A node that records no metrics and whose spans the log filter removes answers without a detour
//! through this module: [`is_traced`] is one comparison then.

use crate::{Node, ReplyFuture};
use std::sync::Arc;
use tracing::{Level, Span, span_enabled, trace_span};
use wire::Request;

/// True if the log filter lets the spans of requests pass.
pub fn is_traced() -> bool {
    span_enabled!(Level::TRACE)
}

impl Node {
    /// Answers a request within its span, and records its metrics.
    #[cold]
    pub(crate) fn answer_observed(self: &Arc<Self>, request: Request) -> ReplyFuture {
        let span = self.request_span(&request);
        let timer = self.metrics.get().map(|metrics| metrics.on_request(&request.body));
        let reply = span.in_scope(|| self.answer(request)).in_span(span);
        let Some(timer) = timer else { return reply };
        let node = self.clone();
        reply.inspect(move |answer| {
            if let Some(metrics) = node.metrics.get() {
                metrics.on_answer(timer, answer);
            }
        })
    }

    /// The span of a request. A client's span of the same request has the same session and number;
    /// a query has no number.
    fn request_span(&self, request: &Request) -> Span {
        trace_span!(
            "request",
            node = self.id().0,
            kind = request.body.kind().name(),
            partition = request.partition.0,
            session = request.session.0,
            number = request.body.request_id().map(|request_id| request_id.number),
        )
    }
}
