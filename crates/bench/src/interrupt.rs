//! Interruption of a benchmark.

use base::Problem;
use rustix::event::{PollFd, PollFlags, poll};
use std::{
    io,
    net::Shutdown,
    os::{fd::AsFd, unix::net::UnixStream},
    sync::Arc,
};

/// Flag that ends a benchmark early. Clones share it.
#[derive(Clone, Debug)]
pub struct Interrupt(Arc<(UnixStream, UnixStream)>);

impl Interrupt {
    /// Creates a flag that is not raised.
    pub fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(UnixStream::pair()?)))
    }

    /// Ends the benchmark: every wait from now on fails.
    pub fn raise(&self) {
        // The only error is that the socket is already shut down.
        self.0.0.shutdown(Shutdown::Both).ok();
    }

    /// Waits until `to_read` is readable; fails if the benchmark is interrupted.
    pub(crate) fn wait(&self, to_read: &impl AsFd) -> Result<(), Problem> {
        let mut both = [PollFd::new(to_read, PollFlags::IN), PollFd::new(&self.0.1, PollFlags::IN)];
        loop {
            match poll(&mut both, None) {
                Ok(_) if !both[1].revents().is_empty() => return Err(Problem::new("interrupted")),
                Ok(_) => return Ok(()),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(Problem::new(format!("waiting for a worker: {error}"))),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn waiting_ends_with_what_there_is_to_read_or_with_the_interrupt() {
        let interrupt = Interrupt::new().expect("a pair");
        let (reader, mut writer) = UnixStream::pair().expect("a pair");
        writer.write_all(b"x").expect("room");
        assert!(interrupt.wait(&reader).is_ok());
        let (silent, _writer) = UnixStream::pair().expect("a pair");
        let raised = interrupt.clone();
        let raising = std::thread::spawn(move || raised.raise());
        assert!(interrupt.wait(&silent).is_err());
        raising.join().expect("it ends");
    }
}
