//! Handles SIGINT, SIGTERM and SIGHUP: the first signal asks the work to end, the second ends the
//! process after an emergency cleanup.
//!
//! Programs that end others send more than one at once (`timeout` and `make` to the process and to
//! its group, Slurm to every step), so signals within a second of the first are ignored.
//!
//! A signal that was ignored when we were started stays ignored: `nohup` ignores SIGHUP, and shells
//! without job control ignore SIGINT for background processes.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

/// Time after the first signal during which further ones are ignored.
const REPEAT_WINDOW: Duration = Duration::from_secs(1);

/// The first signal that came; 0 before any.
#[derive(Debug, Clone, Default)]
pub struct ReceivedSignal(Arc<AtomicI32>);

impl ReceivedSignal {
    /// The exit code for the first signal, by the shell's convention (128 + its number).
    pub fn exit_code(&self) -> Option<u8> {
        let signal = self.0.load(Ordering::SeqCst);
        u8::try_from(signal).ok().filter(|signal| *signal > 0).map(|signal| 128 + signal)
    }
}

/// Reaction to a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SignalAction {
    /// End the work.
    End,
    /// Ignore a repetition of the first signal.
    Ignore,
    /// End the process immediately.
    ExitNow,
}

/// Signals that were received so far.
#[derive(Debug, Default)]
struct SignalHistory {
    first: Option<Instant>,
}

impl SignalHistory {
    /// Returns the reaction to a signal at `now`.
    fn on(&mut self, now: Instant) -> SignalAction {
        match self.first {
            None => {
                self.first = Some(now);
                SignalAction::End
            }
            Some(first) if now.saturating_duration_since(first) < REPEAT_WINDOW => SignalAction::Ignore,
            Some(_) => SignalAction::ExitNow,
        }
    }
}

/// Runs `first` at the first signal, on its own thread. At the second, runs `emergency_cleanup` and
/// exits.
///
/// # Errors
/// The kernel refuses the handlers, which is a bug, or the thread cannot be started.
pub fn watch(
    first: impl FnOnce() + Send + 'static,
    emergency_cleanup: impl Fn() + Send + 'static,
) -> std::io::Result<ReceivedSignal> {
    let received = ReceivedSignal::default();
    let first_signal = received.clone();
    let ignored = ignored();
    let wanted = [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| ignored & (1 << (signal - 1)) == 0);
    let mut signals = Signals::new(wanted)?;
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        let (mut history, mut first) = (SignalHistory::default(), Some(first));
        for signal in signals.forever() {
            match history.on(Instant::now()) {
                SignalAction::End => {
                    first_signal.0.store(signal, Ordering::SeqCst);
                    // Ending may take long, and further signals must be handled meanwhile.
                    first.take().map(std::thread::spawn);
                }
                SignalAction::Ignore => {}
                SignalAction::ExitNow => {
                    emergency_cleanup();
                    std::process::exit(128 + signal);
                }
            }
        }
    })?;
    Ok(received)
}

/// The signals that this process ignores, bit n - 1 for signal n; 0 if the kernel does not tell.
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
    fn signals_within_a_second_of_the_first_are_the_first() {
        let begun = Instant::now();
        let meanings = |after_ms: &[u64]| {
            let mut history = SignalHistory::default();
            let on = |ms: &u64| history.on(begun + Duration::from_millis(*ms));
            after_ms.iter().map(on).collect::<Vec<_>>()
        };
        let (end, said, at_once) = (SignalAction::End, SignalAction::Ignore, SignalAction::ExitNow);
        assert_eq!(meanings(&[0, 0, 1]), [end, said, said], "timeout and make send two");
        assert_eq!(meanings(&[5000, 5999, 6000]), [end, said, at_once]);
        assert_eq!(meanings(&[0, 60_000]), [end, at_once]);
    }

    #[test]
    fn ignored_signals_are_read_from_the_mask() {
        let status = "Name:\ttidemill\nSigBlk:\t0000000000000002\nSigIgn:\t0000000000000001\n";
        assert_ne!(mask(status) & (1 << (SIGHUP - 1)), 0);
        assert_eq!(mask(status) & (1 << (SIGINT - 1)), 0);
        assert_eq!(mask(""), 0);
    }

    #[test]
    fn the_exit_code_is_that_of_the_first_signal_by_the_shells_convention() {
        let code = |signal| ReceivedSignal(Arc::new(AtomicI32::new(signal))).exit_code();
        assert_eq!([0, SIGHUP, SIGINT, SIGTERM].map(code), [None, Some(129), Some(130), Some(143)]);
    }

    #[test]
    fn a_mask_that_cannot_be_read_ignores_nothing() {
        assert_eq!(mask("SigIgn:\tffffffffffffffff\n"), u64::MAX);
        for status in ["SigIgn:\n", "SigIgn:\tno digits\n", "SigBlk:\t1\n", "XSigIgn:\t1\n"] {
            assert_eq!(mask(status), 0, "{status:?}");
        }
    }
}
