//! The way to a node.

use node::{Node, Reply};
use std::{fmt, sync::Arc};
use wire::Request;

/// A way to a node. A call may fail, may be slow, and may have been done although no answer came.
pub trait Connection: Send + Sync + fmt::Debug {
    /// Sends a request. The reply stands on its own: it may be polled from any thread, or dropped.
    fn call(&self, request: Request) -> Reply;
}

/// The way to a node in this process: its answers are there at once, unless it must wait for space.
#[derive(Clone, Debug)]
pub struct InProcess(pub Arc<Node>);

impl Connection for InProcess {
    fn call(&self, request: Request) -> Reply {
        self.0.handle(request)
    }
}
