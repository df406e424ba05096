use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

use crate::Error;

/// A time, in UTC. It is displayed as in RFC 3339, to the second. The default is the start of 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time {
    seconds: i64, // since 1970
    nanos: u32,
}

impl Time {
    /// Returns the time that many seconds after the start of 1970.
    pub fn from_unix(seconds: i64) -> Time {
        Time { seconds, nanos: 0 }
    }

    /// Returns the seconds since the start of 1970, without fractions.
    pub fn unix(self) -> i64 {
        self.seconds
    }

    /// Parses a time of RFC 3339, such as 2026-01-02T12:00:00Z.
    pub fn parse(text: &str) -> Result<Time, Error> {
        parse(text).ok_or_else(|| Error::new(format!("{text:?} is not a time: write one such as 2026-01-02T12:00:00Z")))
    }

    /// Returns the time from an earlier one until this, and 0 if that one is later.
    pub fn since(self, earlier: Time) -> Duration {
        if self <= earlier {
            return Duration::ZERO;
        }
        let seconds = self.seconds.abs_diff(earlier.seconds);
        if self.nanos >= earlier.nanos {
            return Duration::new(seconds, self.nanos - earlier.nanos);
        }
        Duration::new(seconds - 1, 1_000_000_000 + self.nanos - earlier.nanos)
    }
}

impl Add<Duration> for Time {
    type Output = Time;
    fn add(self, d: Duration) -> Time {
        let nanos = self.nanos + d.subsec_nanos();
        let seconds = i64::try_from(d.as_secs()).unwrap_or(i64::MAX);
        Time { seconds: self.seconds.saturating_add(seconds).saturating_add(i64::from(nanos / 1_000_000_000)), nanos: nanos % 1_000_000_000 }
    }
}

impl Sub<Duration> for Time {
    type Output = Time;
    fn sub(self, d: Duration) -> Time {
        let borrow = self.nanos < d.subsec_nanos();
        let seconds = i64::try_from(d.as_secs()).unwrap_or(i64::MAX);
        Time {
            seconds: self.seconds.saturating_sub(seconds).saturating_sub(i64::from(borrow)),
            nanos: self.nanos + u32::from(borrow) * 1_000_000_000 - d.subsec_nanos(),
        }
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = civil(self.seconds.div_euclid(86_400));
        let of_day = self.seconds.rem_euclid(86_400);
        write!(f, "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", of_day / 3600, of_day / 60 % 60, of_day % 60)
    }
}

fn parse(text: &str) -> Option<Time> {
    let b = text.as_bytes();
    let number = |from: usize, to: usize| -> Option<i64> {
        let part = text.get(from..to)?;
        if !part.bytes().all(|c| c.is_ascii_digit()) {
            return None;
        }
        part.parse().ok()
    };
    for (at, mark) in [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')] {
        if b.get(at)?.to_ascii_uppercase() != mark {
            return None;
        }
    }
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    if !(1..=12).contains(&month) || !(1..=days_in(year, month)).contains(&day) || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let mut zone = text.get(19..)?;
    let mut nanos = 0;
    if let Some(fraction) = zone.strip_prefix('.') {
        zone = fraction.trim_start_matches(|c: char| c.is_ascii_digit());
        let digits = &fraction[..fraction.len() - zone.len()];
        if digits.is_empty() {
            return None;
        }
        nanos = format!("{:0<9.9}", digits).parse().ok()?;
    }
    let offset = match zone {
        "Z" | "z" => 0,
        _ => {
            let at = text.len() - zone.len();
            let (hours, minutes) = (number(at + 1, at + 3)?, number(at + 4, at + 6)?);
            let sign = match zone.bytes().next()? {
                b'+' => 1,
                b'-' => -1,
                _ => return None,
            };
            if zone.len() != 6 || zone.as_bytes()[3] != b':' || hours > 23 || minutes > 59 {
                return None;
            }
            sign * (hours * 3600 + minutes * 60)
        }
    };
    let seconds = days(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second - offset;
    Some(Time { seconds, nanos })
}

fn days_in(year: i64, month: i64) -> i64 {
    let (next_year, next) = if month == 12 { (year + 1, 1) } else { (year, month + 1) };
    days(next_year, next, 1) - days(year, month, 1)
}

/// Returns the days from the start of 1970 to a date of the Gregorian calendar. Years are counted
/// from March, so that the leap day is the last one.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month < 3 { year - 1 } else { year };
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    365 * year + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + day_of_year - 719_468
}

/// Returns the date that is that many days after the start of 1970.
fn civil(day: i64) -> (i64, i64, i64) {
    let mut year = 1970 + day.div_euclid(if day < 0 { 365 } else { 366 }); // not later than the year
    while days(year + 1, 1, 1) <= day {
        year += 1;
    }
    let mut month = 1;
    while month < 12 && days(year, month + 1, 1) <= day {
        month += 1;
    }
    (year, month, day - days(year, month, 1) + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_rfc_3339() {
        for (text, unix, shown) in [
            ("1970-01-01T00:00:00Z", 0, "1970-01-01T00:00:00Z"),
            ("2026-01-02T12:00:00Z", 1_767_355_200, "2026-01-02T12:00:00Z"),
            ("2026-01-02T13:30:00.25+01:30", 1_767_355_200, "2026-01-02T12:00:00Z"),
            ("2024-02-29T23:59:59-00:01", 1_709_251_259, "2024-03-01T00:00:59Z"),
            ("2000-02-29T00:00:00Z", 951_782_400, "2000-02-29T00:00:00Z"),
            ("1969-12-31T23:59:59Z", -1, "1969-12-31T23:59:59Z"),
            ("9999-12-31T23:59:59Z", 253_402_300_799, "9999-12-31T23:59:59Z"),
        ] {
            let t = Time::parse(text).unwrap();
            assert_eq!((t.unix(), t.to_string().as_str()), (unix, shown), "{text}");
        }
        for text in [
            "", "2026", "2026-13-01T00:00:00Z", "2026-02-29T00:00:00Z", "2026-01-02 12:00:00Z", "2026-01-02T12:00:00",
            "2026-01-02T12:00:00+1:00", "2026-01-02T24:00:00Z", "2026-01-02T12:00:00.Z", "２026-01-02T12:00:00Z",
        ] {
            assert!(Time::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn times_are_added_and_compared() {
        let t = Time::parse("2026-01-02T12:00:00.75Z").unwrap();
        let later = t + Duration::from_millis(500);
        assert_eq!(later.since(t), Duration::from_millis(500));
        assert_eq!(t.since(later), Duration::ZERO);
        assert_eq!(later - Duration::from_millis(500), t);
        assert!(later > t);
    }
}
