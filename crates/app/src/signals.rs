//! Ctrl-C, SIGTERM and SIGHUP: the first asks the work to end, the second ends the process after the mounts are gone.
//!
//! A signal that was ignored when we were started stays so: `nohup` ignores SIGHUP, and shells without job control ignore
//! SIGINT for what they start in the background.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

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

/// Runs `first` at the first signal, on a thread of ours. At the second, `last_resort` runs and the process exits at once.
///
/// # Errors
/// If the kernel refuses the handlers, which is a bug.
pub fn watch(first: impl Fn() + Send + 'static, last_resort: impl Fn() + Send + 'static) -> std::io::Result<Received> {
    let received = Received::default();
    let seen = received.clone();
    let ignored = ignored();
    let wanted = [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| ignored & (1 << (signal - 1)) == 0);
    let mut signals = Signals::new(wanted)?;
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        for signal in signals.forever() {
            if seen.0.compare_exchange(0, signal, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
                first();
            } else {
                last_resort();
                std::process::exit(128 + signal);
            }
        }
    })?;
    Ok(received)
}

/// The signals that this process ignores, bit n - 1 for signal n; none if the kernel does not say.
fn ignored() -> u64 {
    mask(&std::fs::read_to_string("/proc/self/status").unwrap_or_default())
}

fn mask(status: &str) -> u64 {
    let digits = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    digits.and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_read_from_the_mask() {
        let status = "Name:\ttidemill\nSigBlk:\t0000000000000002\nSigIgn:\t0000000000000001\n";
        assert_ne!(mask(status) & (1 << (SIGHUP - 1)), 0);
        assert_eq!(mask(status) & (1 << (SIGINT - 1)), 0);
        assert_eq!(mask(""), 0);
    }
}
