//! Ending a benchmark before its time.

use base::Problem;
use rustix::event::{PollFd, PollFlags, poll};
use std::{
    io,
    net::Shutdown,
    os::{fd::AsFd, unix::net::UnixStream},
    sync::Arc,
};

/// Says whether a benchmark is to end. Clones are of one.
#[derive(Clone, Debug)]
pub struct Interrupt(Arc<(UnixStream, UnixStream)>);

impl Interrupt {
    /// Of a benchmark that goes on until [`Self::raise`].
    pub fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(UnixStream::pair()?)))
    }

    /// From now on it is to end: whatever waits is refused.
    pub fn raise(&self) {
        // Only a socket that is shut already refuses.
        self.0.0.shutdown(Shutdown::Both).ok();
    }

    /// Waits until there is something to read, or refuses.
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
