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
    buffer_pool::BufferPool,
    decode::{self, Header},
    device::{DeviceIo, ReadResult},
    reply::FuseReply,
    request::FuseOp,
    session::Handler,
};

/// The shutdown state of a session's workers.
#[derive(Debug)]
pub(crate) struct ShutdownState {
    /// Number of running workers.
    running: AtomicUsize,
    /// All workers have ended and the file system was notified.
    done: AtomicBool,
}

impl ShutdownState {
    pub(crate) fn new(workers: usize) -> Self {
        Self { running: AtomicUsize::new(workers), done: AtomicBool::new(false) }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.done.load(Ordering::Acquire)
    }
}

/// The state of a worker thread.
pub(crate) struct Worker {
    pub(crate) device: Arc<DeviceIo>,
    /// The descriptors of all workers.
    pub(crate) devices: Arc<[Arc<DeviceIo>]>,
    pub(crate) handler: Arc<dyn Handler>,
    pub(crate) shutdown: Arc<ShutdownState>,
    pub(crate) buffers: BufferPool,
}

impl Worker {
    /// Serves requests until the kernel closes the connection.
    pub(crate) fn run(mut self) {
        loop {
            match self.device.read_request(self.buffers.next().bytes_mut()) {
                Ok(ReadResult::Message(length)) => self.handle_message(&self.buffers.current().bytes()[..length]),
                Ok(ReadResult::Retry) => {}
                Ok(ReadResult::Closed) => break,
                Err(error) => {
                    tracing::error!(%error, "the mount's device cannot be read any more");
                    break;
                }
            }
        }
    }

    /// Handles a message: answers it or passes it to the file system.
    fn handle_message(&self, message: &[u8]) {
        let Some((header, body)) = Header::split(message) else {
            tracing::error!(bytes = message.len(), "the kernel sent a request without a whole header");
            return;
        };
        let handler = &*self.handler;
        match header.opcode {
            op::FORGET => {
                catch_panic(|| {
                    if let Some(count) = decode::forgotten(body) {
                        handler.forget(header.inode, count);
                    }
                });
            }
            op::BATCH_FORGET => {
                catch_panic(|| {
                    for (inode, lookups) in decode::batch_forgotten(body) {
                        handler.forget(inode, lookups);
                    }
                });
            }
            op::INTERRUPT => self.interrupt(header, body),
            op::NOTIFY_REPLY => {}
            op::DESTROY => self.reply(header).done(),
            _ => self.dispatch(header, body),
        }
    }

    fn reply(&self, header: Header) -> FuseReply {
        FuseReply::new(Arc::clone(&self.device), header.unique, header.opcode)
    }

    fn dispatch(&self, header: Header, body: &[u8]) {
        let reply = self.reply(header);
        let Some(mut request) = header.request(body) else {
            tracing::error!(
                opcode = header.opcode,
                bytes = body.len(),
                "the kernel sent a request that is not understood"
            );
            return reply.error(errno::EIO);
        };
        if let FuseOp::Write { data, .. } = &mut request.operation {
            *data = data.with_buffer(self.buffers.current());
        }
        catch_panic(|| self.handler.handle(request, reply));
    }

    /// Handles an INTERRUPT. It is answered (EAGAIN) only when it cannot be kept any longer. The
    /// reply must go through the descriptor that the INTERRUPT came from, which is no longer known.
    /// So it is sent through all; the others reject its number.
    fn interrupt(&self, header: Header, body: &[u8]) {
        let again = decode::interrupted(body).and_then(|unique| self.device.interrupts.deliver(unique, header.unique));
        if let Some(oldest) = again {
            // Errors are ignored: the request may have ended meanwhile.
            self.devices.iter().for_each(|device| device.send(oldest, -errno::EAGAIN, &[]).unwrap_or_default());
        }
    }
}

impl Drop for Worker {
    /// The last worker to end notifies the file system.
    fn drop(&mut self) {
        if self.shutdown.running.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.device.interrupts.close();
            catch_panic(|| self.handler.on_close());
            self.shutdown.done.store(true, Ordering::Release);
        }
    }
}

/// Catches a panic, so that it fails one request and not the thread. Its message is already
/// printed.
fn catch_panic(work: impl FnOnce()) {
    catch_unwind(AssertUnwindSafe(work)).ok();
}
