//! Times as texts, in UTC: `clock_format`.

use super::{PureFunction, function};
use crate::value::SwiftValue;

/// The functions.
pub const FUNCTIONS: &[PureFunction] =
    &[function("clock_format", |values| Ok(SwiftValue::text(&formatted(values[0].str(), seconds_of(&values[1]))?)))];

const DAY_NAMES: [&str; 7] = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];
const MONTH_NAMES: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAY_SECONDS: i64 = 86_400;
/// The largest year that is written. It bounds sums of days.
const YEAR_MAX: i64 = 9999;

/// A moment of the calendar.
struct CalendarTime {
    year: i64,
    /// From 1.
    month: usize,
    /// From 1.
    day: i64,
    /// From 1.
    day_of_year: i64,
    /// From Monday, 0.
    weekday: usize,
    /// Since midnight.
    second: i64,
}

/// The seconds of a time, rounded.
#[expect(clippy::cast_possible_truncation, reason = "times beyond the range are refused by their years")]
fn seconds_of(value: &SwiftValue) -> i64 {
    match value {
        SwiftValue::Int(seconds) => *seconds,
        value => value.float().round() as i64,
    }
}

/// A time in seconds since 1970 as a format of `strftime` has it.
fn formatted(format: &str, seconds: i64) -> Result<String, String> {
    let time =
        calendar_time(seconds).ok_or_else(|| format!("the time {seconds} is not within the years 1 to {YEAR_MAX}"))?;
    let mut text = String::new();
    let mut letters = format.chars();
    while let Some(letter) = letters.next() {
        if letter != '%' {
            text.push(letter);
            continue;
        }
        let Some(letter) = letters.next() else {
            return Err(format!("the format {format:?} ends within a conversion"));
        };
        text.push_str(&part_of(letter, &time, seconds)?);
    }
    Ok(text)
}

/// The text of a conversion.
fn part_of(letter: char, time: &CalendarTime, seconds: i64) -> Result<String, String> {
    let CalendarTime { year, month, day, day_of_year, weekday, second } = time;
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let (month_name, day_name) = (MONTH_NAMES[month - 1], DAY_NAMES[*weekday]);
    Ok(match letter {
        'Y' => format!("{year:04}"),
        'y' => format!("{:02}", year % 100),
        'm' => format!("{month:02}"),
        'd' => format!("{day:02}"),
        'e' => format!("{day:2}"),
        'j' => format!("{day_of_year:03}"),
        'H' => format!("{hour:02}"),
        'I' => format!("{:02}", (hour + 11) % 12 + 1),
        'M' => format!("{minute:02}"),
        'S' => format!("{second:02}"),
        'p' => if hour < 12 { "AM" } else { "PM" }.to_owned(),
        'B' => month_name.to_owned(),
        'b' | 'h' => month_name[..3].to_owned(),
        'A' => day_name.to_owned(),
        'a' => day_name[..3].to_owned(),
        'u' => (weekday + 1).to_string(),
        'F' => format!("{year:04}-{month:02}-{day:02}"),
        'T' => format!("{hour:02}:{minute:02}:{second:02}"),
        'D' => format!("{month:02}/{day:02}/{:02}", year % 100),
        'R' => format!("{hour:02}:{minute:02}"),
        's' => seconds.to_string(),
        'Z' => "UTC".to_owned(),
        'z' => "+0000".to_owned(),
        'n' => "\n".to_owned(),
        '%' => "%".to_owned(),
        other => {
            return Err(format!(
                "%{other} is no conversion of times; use %Y, %m, %d, %H, %M, %S or others of strftime"
            ));
        }
    })
}

/// The moment of a time; `None` if its year is too far.
fn calendar_time(seconds: i64) -> Option<CalendarTime> {
    let (mut days, second) = (seconds.div_euclid(DAY_SECONDS), seconds.rem_euclid(DAY_SECONDS));
    // 1970-01-01 was a Thursday.
    let weekday = usize::try_from((days.rem_euclid(7) + 3) % 7).ok()?;
    // Days since 0001-01-01.
    days = days.checked_add(719_162).filter(|days| (0..YEAR_MAX * 366).contains(days))?;
    let mut year = days / 366 + 1;
    while days_before(year + 1) <= days {
        year += 1;
    }
    let day_of_year = days - days_before(year);
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let lengths = [31, 28 + i64::from(is_leap), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let (mut month, mut day) = (0, day_of_year);
    while day >= lengths[month] {
        day -= lengths[month];
        month += 1;
    }
    Some(CalendarTime { year, month: month + 1, day: day + 1, day_of_year: day_of_year + 1, weekday, second })
}

/// The days from 0001-01-01 to the beginning of a year.
fn days_before(year: i64) -> i64 {
    let before = year - 1;
    before * 365 + before / 4 - before / 100 + before / 400
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_in_utc() {
        assert_eq!(formatted("%Y-%m-%dT%H:%M:%S", 0).as_deref(), Ok("1970-01-01T00:00:00"));
        assert_eq!(
            formatted("%A %e %B %Y, %I:%M %p, day %j", 951_782_400).as_deref(),
            Ok("Tuesday 29 February 2000, 12:00 AM, day 060")
        );
        assert_eq!(formatted("%a %F %T %Z %s", 1_796_000_399).as_deref(), Ok("Mon 2026-11-30 00:59:59 UTC 1796000399"));
        assert_eq!(formatted("%F", -1).as_deref(), Ok("1969-12-31"));
        assert_eq!(
            formatted("%y%%", 1_000_000_000_000_000_000),
            Err("the time 1000000000000000000 is not within the years 1 to 9999".into())
        );
        assert!(formatted("%Q", 0).is_err_and(|message| message.starts_with("%Q is no conversion")));
    }
}
