//! Durations as in Go: 90s, 1h30m.

use std::time::Duration;

use crate::limits::MAX_DURATION;
use crate::Error;

/// Parses a duration such as "1h30m", from settings. As in a verdict, it must be greater than 0
/// and at most 720h.
pub fn parse_duration(text: &str) -> Result<Duration, Error> {
    let parsed =
        parse(text).ok_or_else(|| Error::new(format!("{text:?} is not a duration: write one such as \"90s\" or \"1h30m\"")))?;
    if parsed == Duration::ZERO || parsed > MAX_DURATION {
        return Err(Error::new(format!("{text:?} is out of range: write a duration greater than 0 and at most 720h")));
    }
    Ok(parsed)
}

/// Returns the sum of numbers with units; None if the text is no duration. One that is much too
/// long may be shortened.
fn parse(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut nanos: u128 = 0;
    while !rest.is_empty() || text.is_empty() {
        let number = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.').len();
        let (digits, after) = rest.split_at(number);
        let unit_end = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, next) = after.split_at(unit_end);
        let scale: u128 = match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return None,
        };
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        if whole.is_empty() && fraction.is_empty() || fraction.contains('.') || whole.len() > 15 {
            return None;
        }
        nanos += whole.parse::<u128>().unwrap_or(0) * scale;
        let mut part = scale;
        for digit in fraction.bytes().take(15) {
            nanos += u128::from(digit - b'0') * part / 10;
            part /= 10;
        }
        rest = next;
    }
    let seconds = u64::try_from(nanos / 1_000_000_000).unwrap_or(u64::MAX);
    Some(Duration::new(seconds, (nanos % 1_000_000_000) as u32))
}

/// Formats a duration for a verdict.
pub(crate) fn format(d: Duration) -> String {
    if d.subsec_nanos() == 0 {
        return format!("{}s", d.as_secs());
    }
    format!("{}ns", d.as_nanos())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_those_of_go() {
        for (text, want) in [
            ("90s", Duration::from_secs(90)),
            ("1h30m", Duration::from_secs(5400)),
            ("1.5s", Duration::from_millis(1500)),
            ("2m0.25s", Duration::from_millis(120_250)),
            ("250ms", Duration::from_millis(250)),
            ("7us3ns", Duration::from_nanos(7003)),
            ("720h", Duration::from_secs(720 * 3600)),
        ] {
            assert_eq!(parse_duration(text), Ok(want), "{text}");
            assert_eq!(parse_duration(&format(want)), Ok(want), "{text}, formatted");
        }
        for text in ["", "1", "h", "1x", "1d", "1..5s", ".s", "-1s", " 1s", "1s ", "99999999999999999999h"] {
            let err = parse_duration(text).unwrap_err().to_string();
            assert!(err.contains("is not a duration"), "{text}: {err}");
        }
        for text in ["0s", "720h1s", "99999999999999h"] {
            let err = parse_duration(text).unwrap_err().to_string();
            assert!(err.contains("out of range"), "{text}: {err}");
        }
    }
}
