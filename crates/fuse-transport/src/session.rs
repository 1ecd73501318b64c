//! A served FUSE connection: handshake, threads, shutdown.

use std::{
    io,
    sync::Arc,
    thread::{self, JoinHandle},
};

use parking_lot::Mutex;

use crate::{
    abi::{MAJOR, op},
    backings::Backings,
    buffer_pool::{Buffer, BufferPool},
    config::{Config, Negotiated},
    decode::Header,
    device::{Device, DeviceIo, ReadResult},
    handshake::{InitRequest, version_reply},
    notifier::Notifier,
    reply::FuseReply,
    request::FuseRequest,
    worker::{ShutdownState, Worker},
};

/// A file system, as a handler of FUSE requests.
pub trait Handler: Send + Sync + 'static {
    /// Answers a request, immediately or later. Called from several threads at once. A request that
    /// must wait is deferred with its reply. After a panic the reply is EIO, and the thread
    /// continues.
    fn handle(&self, request: FuseRequest<'_>, reply: FuseReply);

    /// Drops `lookups` lookups of an inode; at zero the kernel no longer knows the inode.
    fn forget(&self, inode: u64, lookups: u64) {
        let _ = (inode, lookups);
    }

    /// Reports the end of the connection. Called once, after the last `handle` has returned.
    fn on_close(&self) {}
}

/// A connection that is served until the kernel closes it, by an unmount or an abort.
///
/// Dropping it does not end the connection.
#[derive(Debug)]
pub struct FuseSession {
    threads: Mutex<Vec<JoinHandle<()>>>,
    shutdown: Arc<ShutdownState>,
}

impl FuseSession {
    /// Performs the handshake, builds the file system with the negotiated options, and serves it on
    /// new threads.
    ///
    /// The mount must exist: this waits for the kernel's first request. Fails if the protocol
    /// version is not supported, the connection is closed, or no thread can be started.
    pub fn start<S>(device: Device, config: &Config, make: S) -> io::Result<Self>
    where
        S: FnOnce(&Negotiated, Notifier, Backings) -> Arc<dyn Handler>,
    {
        let device = Arc::new(DeviceIo::new(device));
        let granted = handshake(&device, config)?;
        let handler = make(&granted, Notifier::new(Arc::clone(&device)), Backings::new(Arc::clone(&device)));
        let count = config.threads.max(1);
        let shutdown = Arc::new(ShutdownState::new(count));
        let mut devices = vec![Arc::clone(&device)];
        // If a clone of the descriptor fails, the threads share the first descriptor.
        devices.extend((1..count).map(|_| device.try_clone().map_or_else(|_| Arc::clone(&device), Arc::new)));
        let devices: Arc<[_]> = devices.into();
        let workers = devices.iter().map(|device| Worker {
            device: Arc::clone(device),
            devices: Arc::clone(&devices),
            handler: Arc::clone(&handler),
            shutdown: Arc::clone(&shutdown),
            buffers: BufferPool::new(granted.request_bytes_max as usize),
        });
        let threads = spawn(workers)?;
        Ok(Self { threads: Mutex::new(threads), shutdown })
    }

    /// Returns true once the kernel has closed the connection and `Handler::on_close` has returned.
    pub fn is_closed(&self) -> bool {
        self.shutdown.is_done()
    }

    /// Waits for the end of the connection and of the threads.
    pub fn join(&self) {
        let threads = std::mem::take(&mut *self.threads.lock());
        for thread in threads {
            // A panic outside `handle` was already reported by its thread.
            thread.join().ok();
        }
    }
}

/// Starts a thread for each worker. A worker whose thread fails to start is dropped, which counts
/// as its end; the first must start.
fn spawn(workers: impl Iterator<Item = Worker>) -> io::Result<Vec<JoinHandle<()>>> {
    let mut threads = Vec::new();
    for (at, worker) in workers.enumerate() {
        match thread::Builder::new().name(format!("kernel-{at}")).spawn(move || worker.run()) {
            Ok(thread) => threads.push(thread),
            Err(error) if threads.is_empty() => return Err(error),
            Err(error) => tracing::warn!(%error, "the mount is served by fewer threads"),
        }
    }
    Ok(threads)
}

/// Waits for INIT and answers it. Fails on any other request.
fn handshake(device: &DeviceIo, config: &Config) -> io::Result<Negotiated> {
    let mut buffer = Buffer::new(config.request_bytes() as usize);
    loop {
        let message = match device.read_request(buffer.bytes_mut())? {
            ReadResult::Retry => continue,
            ReadResult::Closed => {
                return Err(io::Error::new(io::ErrorKind::NotConnected, "the kernel let go before it was greeted"));
            }
            ReadResult::Message(length) => &buffer.bytes_mut()[..length],
        };
        let (header, body) =
            Header::split(message).filter(|(header, _)| header.opcode == op::INIT).ok_or_else(unsupported)?;
        let init = InitRequest::decode(body).ok_or_else(unsupported)?;
        if init.major > MAJOR {
            device.send(header.unique, 0, &[&version_reply()])?;
            continue;
        }
        if !init.is_supported() {
            device.send(header.unique, -rustix::io::Errno::PROTO.raw_os_error(), &[])?;
            return Err(unsupported());
        }
        let (answer, granted) = init.negotiate(config);
        device.send(header.unique, 0, &[&answer])?;
        return Ok(granted);
    }
}

fn unsupported() -> io::Error {
    io::Error::new(
        io::ErrorKind::Unsupported,
        "the kernel speaks a FUSE that is not understood (Linux 5.12 or newer is needed)",
    )
}
