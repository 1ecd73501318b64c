//! A mounted connection at work: the handshake, the threads, the end.

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

/// A file system, as the kernel asks it.
pub trait Serve: Send + Sync + 'static {
    /// Answers one request, now or later. Called from several threads at once; what waits is parked with its reply.
    /// A panic answers EIO, and the thread goes on.
    fn serve(&self, request: Request<'_>, reply: Reply);

    /// The kernel takes back so many lookups of an inode; at zero it does not know the inode any more.
    fn forget(&self, inode: u64, lookups: u64) {
        let _ = (inode, lookups);
    }

    /// The kernel has let go: nothing more will be asked. Called once, after the last `serve` has returned.
    fn ended(&self) {}
}

/// A connection that is being served until the kernel lets go of it, by an unmount or an abort.
///
/// Dropping it does not end it.
#[derive(Debug)]
pub struct Session {
    threads: Mutex<Vec<JoinHandle<()>>>,
    ending: Arc<Ending>,
}

impl Session {
    /// Agrees with the kernel, makes the file system with what was agreed, and serves it from threads of its own.
    ///
    /// The mount must have been made: the kernel's first request is waited for. Fails when the kernel cannot be
    /// understood, has let go already, or does not grant what `config` insists on.
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
        // Without descriptors of their own, threads share the one that there is.
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

    /// Whether the kernel has let go, and `Serve::ended` has been called.
    pub fn is_ended(&self) -> bool {
        self.ending.is_over()
    }

    /// Waits for the end, and for the threads.
    pub fn join(&self) {
        let threads = std::mem::take(&mut *self.threads.lock());
        for thread in threads {
            // A panic outside of `serve` was reported by its thread already.
            thread.join().ok();
        }
    }
}

/// Starts a thread for each worker. A worker that gets none is dropped, which counts as its end; the first one must start.
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

/// Waits for INIT and answers it; whatever comes before is not for us to know.
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
