//! One thread: reads a request, hands it out, and again.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use crate::{
    abi::{BESIDE_WRITE, BUFFER_MIN, errno, op},
    decode::{self, Header},
    line::{Heard, Line},
    reply::Reply,
    session::Serve,
};

/// Where the data of a WRITE begins: behind its two headers.
const WRITE_DATA: usize = 80;
/// Data that begins at a page is copied faster.
const PAGE: usize = 4096;

/// Memory for one request, allocated once; its pages are taken when they are first needed.
pub(crate) struct Buffer {
    bytes: Vec<u8>,
    start: usize,
    length: usize,
}

impl Buffer {
    /// For requests that carry up to so many bytes.
    pub(crate) fn new(request_bytes: usize) -> Self {
        let length = (request_bytes + BESIDE_WRITE).max(BUFFER_MIN);
        let bytes = vec![0; length + PAGE];
        let start = (bytes.as_ptr().addr() + WRITE_DATA).next_multiple_of(PAGE) - WRITE_DATA - bytes.as_ptr().addr();
        Self { bytes, start, length }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.length]
    }
}

/// How far a session's workers are with ending.
#[derive(Debug)]
pub(crate) struct Ending {
    /// How many have not ended.
    left: AtomicUsize,
    /// All have, and the file system was told.
    over: AtomicBool,
}

impl Ending {
    pub(crate) fn of(workers: usize) -> Self {
        Self { left: AtomicUsize::new(workers), over: AtomicBool::new(false) }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }
}

/// What one thread works with.
pub(crate) struct Worker {
    pub(crate) line: Arc<Line>,
    pub(crate) serve: Arc<dyn Serve>,
    pub(crate) ending: Arc<Ending>,
    pub(crate) buffer: Buffer,
}

impl Worker {
    /// Serves until the kernel lets go.
    pub(crate) fn run(mut self) {
        loop {
            match self.line.hear(self.buffer.bytes_mut()) {
                Ok(Heard::Request(length)) => handle(&self.line, &*self.serve, &self.buffer.bytes_mut()[..length]),
                Ok(Heard::Nothing) => {}
                Ok(Heard::End) => break,
                Err(error) => {
                    tracing::error!(%error, "the mount's device cannot be read any more");
                    break;
                }
            }
        }
    }
}

impl Drop for Worker {
    /// The last one out tells that it is over.
    fn drop(&mut self) {
        if self.ending.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.line.interrupts.end();
            guard(|| self.serve.ended());
            self.ending.over.store(true, Ordering::Release);
        }
    }
}

/// Answers, or hands out, one message.
pub(crate) fn handle(line: &Arc<Line>, serve: &dyn Serve, message: &[u8]) {
    let Some((header, body)) = Header::split(message) else {
        tracing::error!(bytes = message.len(), "the kernel sent a request without a whole header");
        return;
    };
    match header.opcode {
        op::FORGET => guard(|| decode::forgotten(body).into_iter().for_each(|count| serve.forget(header.inode, count))),
        op::BATCH_FORGET => {
            guard(|| decode::batch_forgotten(body).for_each(|(inode, lookups)| serve.forget(inode, lookups)));
        }
        op::INTERRUPT => interrupt(line, header, body),
        op::NOTIFY_REPLY => {}
        op::DESTROY => Reply::new(Arc::clone(line), header.unique, header.opcode).done(),
        _ => hand_out(line, serve, header, body),
    }
}

fn hand_out(line: &Arc<Line>, serve: &dyn Serve, header: Header, body: &[u8]) {
    let reply = Reply::new(Arc::clone(line), header.unique, header.opcode);
    let Some(request) = header.request(body) else {
        tracing::error!(opcode = header.opcode, bytes = body.len(), "the kernel sent a request that is not understood");
        return reply.error(errno::EIO);
    };
    guard(|| serve.serve(request, reply));
}

/// Rings for the request that it is about. An answer is only due when it cannot be kept.
fn interrupt(line: &Line, header: Header, body: &[u8]) {
    let again = decode::interrupted(body).and_then(|unique| line.interrupts.ring(unique, header.unique));
    if let Some(oldest) = again {
        // Its request may have ended meanwhile: then there is nobody to tell.
        line.send(oldest, -errno::EAGAIN, &[]).ok();
    }
}

/// A panic costs one request, not the thread; its message has been printed by then.
fn guard(work: impl FnOnce()) {
    catch_unwind(AssertUnwindSafe(work)).ok();
}
