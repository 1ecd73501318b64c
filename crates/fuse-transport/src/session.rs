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
    config::{Config, Granted},
    decode::Header,
    handshake::{Offer, other_major},
    line::{Device, Heard, Line},
    memory::{Buffer, Buffers},
    notifier::Notifier,
    reply::Reply,
    request::Request,
    worker::{Ending, Worker},
};

/// A file system, as a handler of FUSE requests.
pub trait Serve: Send + Sync + 'static {
    /// Answers a request, immediately or later. Called from several threads at once. A request that
    /// must wait is deferred with its reply. After a panic the reply is EIO, and the thread
    /// continues.
    fn serve(&self, request: Request<'_>, reply: Reply);

    /// Drops `lookups` lookups of an inode; at zero the kernel no longer knows the inode.
    fn forget(&self, inode: u64, lookups: u64) {
        let _ = (inode, lookups);
    }

    /// Reports the end of the connection. Called once, after the last `serve` has returned.
    fn ended(&self) {}
}

/// A connection that is served until the kernel closes it, by an unmount or an abort.
///
/// Dropping it does not end the connection.
#[derive(Debug)]
pub struct Session {
    threads: Mutex<Vec<JoinHandle<()>>>,
    ending: Arc<Ending>,
}

impl Session {
    /// Performs the handshake, builds the file system with the negotiated options, and serves it on
    /// new threads.
    ///
    /// The mount must exist: this waits for the kernel's first request. Fails if the protocol
    /// version is not supported, the connection is closed, or no thread can be started.
    pub fn start<S>(device: Device, config: &Config, make: S) -> io::Result<Self>
    where
        S: FnOnce(&Granted, Notifier, Backings) -> Arc<dyn Serve>,
    {
        let line = Arc::new(Line::new(device));
        let granted = shake_hands(&line, config)?;
        let serve = make(&granted, Notifier::new(Arc::clone(&line)), Backings::new(Arc::clone(&line)));
        let count = config.threads.max(1);
        let ending = Arc::new(Ending::of(count));
        let mut lines = vec![Arc::clone(&line)];
        // If a clone of the descriptor fails, the threads share the first descriptor.
        lines.extend((1..count).map(|_| line.another().map_or_else(|_| Arc::clone(&line), Arc::new)));
        let lines: Arc<[_]> = lines.into();
        let workers = lines.iter().map(|line| Worker {
            line: Arc::clone(line),
            lines: Arc::clone(&lines),
            serve: Arc::clone(&serve),
            ending: Arc::clone(&ending),
            buffers: Buffers::new(granted.request_bytes_max as usize),
        });
        let threads = spawn(workers)?;
        Ok(Self { threads: Mutex::new(threads), ending })
    }

    /// Returns true once the kernel has closed the connection and `Serve::ended` has returned.
    pub fn is_ended(&self) -> bool {
        self.ending.is_over()
    }

    /// Waits for the end of the connection and of the threads.
    pub fn join(&self) {
        let threads = std::mem::take(&mut *self.threads.lock());
        for thread in threads {
            // A panic outside `serve` was already reported by its thread.
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
fn shake_hands(line: &Line, config: &Config) -> io::Result<Granted> {
    let mut buffer = Buffer::new(config.request_bytes() as usize);
    loop {
        let message = match line.hear(buffer.bytes_mut())? {
            Heard::Nothing => continue,
            Heard::End => {
                return Err(io::Error::new(io::ErrorKind::NotConnected, "the kernel let go before it was greeted"));
            }
            Heard::Request(length) => &buffer.bytes_mut()[..length],
        };
        let (header, body) =
            Header::split(message).filter(|(header, _)| header.opcode == op::INIT).ok_or_else(unknown)?;
        let offer = Offer::read(body).ok_or_else(unknown)?;
        if offer.major > MAJOR {
            line.send(header.unique, 0, &[&other_major()])?;
            continue;
        }
        if !offer.is_spoken() {
            line.send(header.unique, -rustix::io::Errno::PROTO.raw_os_error(), &[])?;
            return Err(unknown());
        }
        let (answer, granted) = offer.answer(config);
        line.send(header.unique, 0, &[&answer])?;
        return Ok(granted);
    }
}

fn unknown() -> io::Error {
    io::Error::new(
        io::ErrorKind::Unsupported,
        "the kernel speaks a FUSE that is not understood (Linux 5.12 or newer is needed)",
    )
}
