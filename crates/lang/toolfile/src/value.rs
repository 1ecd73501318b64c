//! Values with a unit or a type: times, sizes, defaults.

use base::ByteSize;
use flow::{ConfigType, ConfigValue};
use toml::de::DeValue;

use crate::section::integer;

const UNITS_MS: [(&str, f64); 4] = [("ms", 1.0), ("s", 1e3), ("min", 6e4), ("h", 3.6e6)];

/// The longest timeout, about a year; longer ones are assumed to be a mistake.
const TIMEOUT_MS_MAX: f64 = 3.2e10;

/// Parses a time such as `10min`, `1.5 h` or `500ms` to milliseconds.
pub(crate) fn time_ms(text: &str) -> Option<u64> {
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = text.split_at(split);
    let (_, factor) = UNITS_MS.iter().find(|(name, _)| *name == unit.trim())?;
    let ms = number.parse::<f64>().ok()? * factor;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked to be in range")]
    (1.0..=TIMEOUT_MS_MAX).contains(&ms).then_some(ms as u64)
}

/// A size such as `"512MiB"`, or a number of bytes.
pub(crate) fn size(value: &DeValue<'_>) -> Option<u64> {
    match value {
        DeValue::String(text) => text.parse::<ByteSize>().ok().map(|size| size.0),
        value => integer(value).and_then(|bytes| u64::try_from(bytes).ok()),
    }
}

/// A plain value.
pub(crate) fn config(value: &DeValue<'_>) -> Option<ConfigValue> {
    Some(match value {
        DeValue::String(text) => ConfigValue::String(text.to_string()),
        DeValue::Boolean(value) => ConfigValue::Boolean(*value),
        DeValue::Float(number) => ConfigValue::Number(number.as_str().parse().ok()?),
        value => ConfigValue::Integer(integer(value)?),
    })
}

/// The config type called `name`.
pub(crate) fn config_type(name: &str) -> Option<ConfigType> {
    CONFIG_TYPES.into_iter().find(|of| of.name() == name)
}

pub(crate) const CONFIG_TYPES: [ConfigType; 4] =
    [ConfigType::Integer, ConfigType::Number, ConfigType::String, ConfigType::Boolean];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_read_as_people_write_them() {
        for (text, ms) in [("500ms", 500), ("30s", 30_000), ("10min", 600_000), ("1.5 h", 5_400_000)] {
            assert_eq!(time_ms(text), Some(ms), "{text}");
        }
        for wrong in ["", "10", "min", "0s", "-1s", "10m", "1e9h", "1..2s", "99999999h"] {
            assert_eq!(time_ms(wrong), None, "{wrong}");
        }
    }
}
