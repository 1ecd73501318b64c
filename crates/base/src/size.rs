//! Amounts of bytes as people write and read them.

use std::fmt;
use std::str::FromStr;

/// An amount of bytes. Parses `64`, `64KiB`, `1.5 GiB`, `2GB` (10^9); displays the largest binary
/// unit that fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct ByteSize(pub u64);

const UNITS: [(&str, u64); 15] = [
    ("b", 1),
    ("k", 1 << 10),
    ("kib", 1 << 10),
    ("kb", 1_000),
    ("m", 1 << 20),
    ("mib", 1 << 20),
    ("mb", 1_000_000),
    ("g", 1 << 30),
    ("gib", 1 << 30),
    ("gb", 1_000_000_000),
    ("t", 1 << 40),
    ("tib", 1 << 40),
    ("tb", 1_000_000_000_000),
    ("", 1),
    ("bytes", 1),
];

impl ByteSize {
    /// `count` times 2^20 bytes.
    pub const fn mib(count: u64) -> Self {
        Self(count << 20)
    }
}

impl FromStr for ByteSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refused = || format!("`{text}` is not a size; write for example 512MiB, 4GiB or 2GB");
        if text.trim_start().starts_with('-') {
            return Err(format!("`{text}` is less than nothing; write for example 512MiB, 4GiB or 2GB"));
        }
        let text_lower = text.trim().to_ascii_lowercase();
        let split = text_lower.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text_lower.len());
        let (number, unit) = text_lower.split_at(split);
        let (_, factor) = UNITS.iter().find(|(name, _)| *name == unit.trim()).ok_or_else(refused)?;
        if let Ok(whole) = number.parse::<u64>() {
            return whole.checked_mul(*factor).map(Self).ok_or_else(refused);
        }
        let amount: f64 = number.parse().map_err(|_| refused())?;
        #[expect(clippy::cast_precision_loss, reason = "a fraction was typed: its digits are fewer than an f64 holds")]
        let bytes = amount * *factor as f64;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked to be in range")]
        if (0.0..1.8e19).contains(&bytes) { Ok(Self(bytes as u64)) } else { Err(refused()) }
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: [(&str, u64); 4] = [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
        let Some((unit, factor)) = SHOWN.iter().find(|(_, factor)| self.0 >= *factor) else {
            return out.pad(&format!("{} B", self.0));
        };
        #[expect(clippy::cast_precision_loss, reason = "shown with one decimal")]
        let amount = self.0 as f64 / *factor as f64;
        let decimals = usize::from(!self.0.is_multiple_of(*factor));
        out.pad(&format!("{amount:.decimals$} {unit}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_below_nothing_is_refused_as_such() {
        let why = "-5GiB".parse::<ByteSize>().expect_err("refused");
        assert!(why.starts_with("`-5GiB` is less than nothing"), "{why}");
    }

    #[test]
    fn sizes_read_as_people_write_them() {
        for (text, bytes) in [("64", 64), ("1KiB", 1024), ("1.5 GiB", 3 << 29), ("2GB", 2_000_000_000), ("8m", 8 << 20)]
        {
            assert_eq!(text.parse::<ByteSize>(), Ok(ByteSize(bytes)), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in ["", "x", "-1", "1XB", "99999999999TiB", "1..2"] {
            assert!(text.parse::<ByteSize>().is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_show_the_largest_unit_that_fits() {
        assert_eq!(ByteSize(3 << 29).to_string(), "1.5 GiB");
        assert_eq!(ByteSize(2 << 20).to_string(), "2 MiB");
        assert_eq!(ByteSize(17).to_string(), "17 B");
    }
}
