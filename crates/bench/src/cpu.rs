//! Clock and processor time.

use rustix::{
    param::clock_ticks_per_second,
    time::{ClockId, clock_gettime},
};
use std::fs;

/// Seconds of the machine's monotonic clock, which all its processes share.
pub fn monotonic_seconds() -> f64 {
    seconds(ClockId::Monotonic)
}

/// Processor seconds that this process has used, including kernel time.
pub fn own_seconds() -> f64 {
    seconds(ClockId::ProcessCPUTime)
}

#[expect(clippy::cast_precision_loss, reason = "seconds since boot: nanoseconds are kept for months")]
fn seconds(clock: ClockId) -> f64 {
    let now = clock_gettime(clock);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

/// Processor seconds that other processes on this machine have used together, to the hundredth;
/// processes that do not exist count as 0.
#[expect(clippy::cast_precision_loss, reason = "ticks of processes that live for minutes")]
pub fn process_seconds(processes: &[u32]) -> f64 {
    let ticks: u64 =
        processes.iter().filter_map(|pid| ticks(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)).sum();
    ticks as f64 / clock_ticks_per_second() as f64
}

/// The sum of the fields utime and stime of `/proc/PID/stat`, in ticks. The name before them may
/// contain any characters.
fn ticks(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
    Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_found_behind_any_name() {
        let stat = "12 (a) b) (c) S 1 12 12 0 -1 4194560 1 2 3 4 250 17 0 0 20 0 1 0 5 6 7";
        assert_eq!(ticks(stat), Some(267));
        assert_eq!(ticks("12 (a) S 1"), None);
    }

    #[test]
    fn what_this_process_works_is_seen_by_it_and_by_others() {
        let (mine, all) = (own_seconds(), process_seconds(&[std::process::id()]));
        let mut sum = 0_u64;
        while own_seconds() - mine < 0.1 {
            sum = std::hint::black_box(sum.wrapping_mul(31).wrapping_add(7));
        }
        assert!(process_seconds(&[std::process::id()]) - all > 0.05);
    }
}
