//! Times in run.json: seconds from the start, and wall-clock times.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Seconds from the start of the run, or a length of time. Rounded to the microsecond; a process
/// start takes at least a hundred of these.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Seconds(pub f64);

impl From<Duration> for Seconds {
    fn from(length: Duration) -> Self {
        Self::rounded(length.as_secs_f64())
    }
}

impl Seconds {
    /// `seconds`, rounded to the microsecond.
    pub fn rounded(seconds: f64) -> Self {
        Self((seconds * 1e6).round() / 1e6)
    }
}

/// Formats milliseconds since 1970-01-01 UTC as `2026-11-20T15:41:16.250Z`.
pub fn rfc3339_utc(unix_ms: u64) -> String {
    let (days, ms_of_day) = (unix_ms / 86_400_000, unix_ms % 86_400_000);
    let (year, month, day) = civil(days);
    let (hour, minute) = (ms_of_day / 3_600_000, ms_of_day / 60_000 % 60);
    let (second, ms) = (ms_of_day / 1000 % 60, ms_of_day % 1000);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
}

/// The year, month and day of the Gregorian calendar `days` after 1970-01-01.
///
/// Years are counted from March, so that the leap day is the last day of a year, and in eras of 400
/// years (146,097 days each).
fn civil(days: u64) -> (u64, u64, u64) {
    let since_era_start = days + 719_468; // 0000-03-01 to 1970-01-01
    let (era, day_of_era) = (since_era_start / 146_097, since_era_start % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_written_in_utc_with_milliseconds() {
        for (unix_ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_709_251_199_999, "2024-02-29T23:59:59.999Z"),
            (1_735_689_600_001, "2025-01-01T00:00:00.001Z"),
        ] {
            assert_eq!(rfc3339_utc(unix_ms), text);
        }
    }

    #[test]
    fn seconds_keep_microseconds_and_no_noise() {
        let seconds = Seconds::from(Duration::from_nanos(1_234_567_891));
        assert_eq!(serde_json::to_string(&seconds).unwrap(), "1.234568");
    }
}
