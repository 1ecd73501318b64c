//! Whether the process behind a request is about to die.
//!
//! The kernel lets a killed process go only when its request is answered, and tells us of the kill by a message that fuser
//! answers with "unknown". So whoever parks a request looks at the caller itself.

use std::fs;

use rustix::{
    io::Errno,
    process::{Pid, test_kill_process},
};

/// `SIGKILL` in a signal mask. A fatal signal without a handler (Ctrl-C, SIGTERM) shows as this one too: the kernel turns it
/// into a kill of all threads.
const KILL: u64 = 1 << (9 - 1);
/// Signals that end a process with a core dump (QUIT, ILL, TRAP, ABRT, BUS, FPE, SEGV, XCPU, XFSZ, SYS) stay what they are
/// until the process can take them.
const CORE: u64 = 1 << 2 | 1 << 3 | 1 << 4 | 1 << 5 | 1 << 6 | 1 << 7 | 1 << 10 | 1 << 23 | 1 << 24 | 1 << 30;

/// Whether thread `pid` is gone, or waits for our answer only in order to die. Unknown callers (0: from another pid namespace)
/// count as alive.
pub(crate) fn is_dying(pid: u32) -> bool {
    match fs::read_to_string(format!("/proc/{pid}/status")) {
        _ if pid == 0 => false,
        Ok(status) => is_dying_by(&status),
        // Gone, or hidden from us (`hidepid`).
        Err(_) => is_gone(pid),
    }
}

fn is_gone(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.is_none_or(|pid| test_kill_process(pid) == Err(Errno::SRCH))
}

fn is_dying_by(status: &str) -> bool {
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let mask = |name| field(name).and_then(|mask| u64::from_str_radix(mask, 16).ok()).unwrap_or(0);
    let pending = mask("SigPnd:") | mask("ShdPnd:");
    let held_back = mask("SigBlk:") | mask("SigIgn:") | mask("SigCgt:");
    let over = field("State:").is_some_and(|state| state.starts_with(['Z', 'X']));
    over || pending & KILL != 0 || pending & CORE & !held_back != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(state: &str, thread: u64, process: u64, caught: u64) -> String {
        format!(
            "Name:\tx\nState:\t{state}\nSigPnd:\t{thread:016x}\nShdPnd:\t{process:016x}\nSigBlk:\t0\nSigIgn:\t0\nSigCgt:\t{caught:016x}\n"
        )
    }

    #[test]
    fn a_killed_thread_is_dying_and_a_waiting_one_is_not() {
        assert!(is_dying_by(&status("D (disk sleep)", KILL, 0, 0)));
        assert!(is_dying_by(&status("D (disk sleep)", 0, KILL, 0)));
        assert!(is_dying_by(&status("Z (zombie)", 0, 0, 0)));
        assert!(!is_dying_by(&status("D (disk sleep)", 0, 0, 0)));
    }

    #[test]
    fn a_signal_with_a_handler_does_not_end_a_write() {
        let alarm = 1 << 13;
        assert!(!is_dying_by(&status("D (disk sleep)", 0, alarm, alarm)));
        assert!(is_dying_by(&status("D (disk sleep)", 0, 1 << 2, 0)), "SIGQUIT dumps core");
        assert!(!is_dying_by(&status("D (disk sleep)", 0, 1 << 2, 1 << 2)));
    }

    #[test]
    fn a_process_that_is_gone_is_dying_and_we_are_not() {
        assert!(is_dying(u32::MAX));
        assert!(!is_dying(std::process::id()));
        assert!(!is_dying(0), "a caller that cannot be seen");
    }
}
