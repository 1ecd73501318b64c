//! A worker thread: reads requests and passes them to the file system.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use crate::{
    abi::{errno, op},
    decode::{self, Header},
    line::{Heard, Line},
    memory::Buffers,
    reply::Reply,
    request::Operation,
    session::Serve,
};

/// The shutdown state of a session's workers.
#[derive(Debug)]
pub(crate) struct Ending {
    /// Number of running workers.
    left: AtomicUsize,
    /// All workers have ended and the file system was notified.
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

/// The state of a worker thread.
pub(crate) struct Worker {
    pub(crate) line: Arc<Line>,
    /// The descriptors of all workers.
    pub(crate) lines: Arc<[Arc<Line>]>,
    pub(crate) serve: Arc<dyn Serve>,
    pub(crate) ending: Arc<Ending>,
    pub(crate) buffers: Buffers,
}

impl Worker {
    /// Serves requests until the kernel closes the connection.
    pub(crate) fn run(mut self) {
        loop {
            match self.line.hear(self.buffers.next().bytes_mut()) {
                Ok(Heard::Request(length)) => self.handle(&self.buffers.present().bytes()[..length]),
                Ok(Heard::Nothing) => {}
                Ok(Heard::End) => break,
                Err(error) => {
                    tracing::error!(%error, "the mount's device cannot be read any more");
                    break;
                }
            }
        }
    }

    /// Handles a message: answers it or passes it to the file system.
    fn handle(&self, message: &[u8]) {
        let Some((header, body)) = Header::split(message) else {
            tracing::error!(bytes = message.len(), "the kernel sent a request without a whole header");
            return;
        };
        let serve = &*self.serve;
        match header.opcode {
            op::FORGET => {
                guard(|| decode::forgotten(body).into_iter().for_each(|count| serve.forget(header.inode, count)));
            }
            op::BATCH_FORGET => {
                guard(|| decode::batch_forgotten(body).for_each(|(inode, lookups)| serve.forget(inode, lookups)));
            }
            op::INTERRUPT => self.interrupt(header, body),
            op::NOTIFY_REPLY => {}
            op::DESTROY => self.reply(header).done(),
            _ => self.hand_out(header, body),
        }
    }

    fn reply(&self, header: Header) -> Reply {
        Reply::new(Arc::clone(&self.line), header.unique, header.opcode)
    }

    fn hand_out(&self, header: Header, body: &[u8]) {
        let reply = self.reply(header);
        let Some(mut request) = header.request(body) else {
            tracing::error!(
                opcode = header.opcode,
                bytes = body.len(),
                "the kernel sent a request that is not understood"
            );
            return reply.error(errno::EIO);
        };
        if let Operation::Write { data, .. } = &mut request.operation {
            *data = data.of(self.buffers.present());
        }
        guard(|| self.serve.serve(request, reply));
    }

    /// Handles an INTERRUPT. It is answered (EAGAIN) only when it cannot be kept any longer. The
    /// reply must go through the descriptor that the INTERRUPT came from, which is no longer known.
    /// So it is sent through all; the others reject its number.
    fn interrupt(&self, header: Header, body: &[u8]) {
        let again = decode::interrupted(body).and_then(|unique| self.line.interrupts.ring(unique, header.unique));
        if let Some(oldest) = again {
            // Errors are ignored: the request may have ended meanwhile.
            self.lines.iter().for_each(|line| line.send(oldest, -errno::EAGAIN, &[]).unwrap_or_default());
        }
    }
}

impl Drop for Worker {
    /// The last worker to end notifies the file system.
    fn drop(&mut self) {
        if self.ending.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.line.interrupts.end();
            guard(|| self.serve.ended());
            self.ending.over.store(true, Ordering::Release);
        }
    }
}

/// Catches a panic, so that it fails one request and not the thread. Its message is already
/// printed.
fn guard(work: impl FnOnce()) {
    catch_unwind(AssertUnwindSafe(work)).ok();
}
