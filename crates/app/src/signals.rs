//! Ctrl-C, SIGTERM and SIGHUP: the first asks the work to end, the second ends the process after the mounts are gone.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use tokio_util::sync::CancellationToken;

/// Which signal came first; 0 before any.
#[derive(Debug, Clone, Default)]
pub struct Received(Arc<AtomicI32>);

impl Received {
    /// The exit code for the signal that came, by the shell's convention (128 + its number).
    pub fn exit_code(&self) -> Option<u8> {
        let signal = self.0.load(Ordering::SeqCst);
        u8::try_from(signal).ok().filter(|signal| *signal > 0).map(|signal| 128 + signal)
    }
}

/// Cancels `token` at the first signal. At the second, `last_resort` runs and the process exits at once.
///
/// # Errors
/// If the kernel refuses the handlers, which is a bug.
pub fn watch(token: CancellationToken, last_resort: impl Fn() + Send + 'static) -> std::io::Result<Received> {
    let received = Received::default();
    let seen = received.clone();
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        for signal in signals.forever() {
            if seen.0.compare_exchange(0, signal, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
                token.cancel();
            } else {
                last_resort();
                std::process::exit(128 + signal);
            }
        }
    })?;
    Ok(received)
}
