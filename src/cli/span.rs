//! Spans and moments as people write and read them.
//!
//! Spans are written as in systemd.time(7) (`90s`, `5min`, `1h 30min`, a bare number is seconds); moments as
//! RFC 3339, as a local date and time, as `HH:MM` (the next one) or as `@SECONDS` since 1970.

use std::fmt::Write as _;

use jiff::civil;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan as _, ZonedDateTime};

/// A span of time in microseconds, as the bus carries it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Microseconds.
    pub usec: u64,
}

/// A moment in microseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Microseconds.
    pub usec: u64,
}

const SECOND_USEC: u64 = 1_000_000;
const MINUTE_USEC: u64 = 60 * SECOND_USEC;
const HOUR_USEC: u64 = 60 * MINUTE_USEC;
const DAY_USEC: u64 = 24 * HOUR_USEC;

fn unit_usec(unit: &str) -> Option<u64> {
    Some(match unit {
        "us" | "usec" => 1,
        "ms" | "msec" => 1_000,
        "" | "s" | "sec" | "second" | "seconds" => SECOND_USEC,
        "m" | "min" | "minute" | "minutes" => MINUTE_USEC,
        "h" | "hr" | "hour" | "hours" => HOUR_USEC,
        "d" | "day" | "days" => DAY_USEC,
        "w" | "week" | "weeks" => 7 * DAY_USEC,
        _ => return None,
    })
}

impl Span {
    /// Reads a span.
    ///
    /// # Errors
    /// With what is wrong, and what would be right.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut rest = text.trim();
        if rest.is_empty() {
            return Err("is empty; write for example 90s, 5min, 1h30min".to_owned());
        }
        let mut usec: u64 = 0;
        while !rest.is_empty() {
            let (part, after) = Self::part(rest)?;
            usec = usec.checked_add(part).ok_or("is longer than time itself")?;
            rest = after.trim_start();
        }
        Ok(Self { usec })
    }

    /// One number with its unit, and what follows.
    fn part(text: &str) -> Result<(u64, &str), String> {
        let number_ends = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, rest) = text.split_at(number_ends);
        let rest = rest.trim_start();
        let unit_ends = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
        let (unit, after) = rest.split_at(unit_ends);
        let scale = unit_usec(unit)
            .ok_or_else(|| format!("has no unit {unit:?}; there are us, ms, s, min, h, d and w"))?;
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if number.is_empty() || (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return Err(format!("has no number before {rest:?}; write for example 90s, 5min, 1h30min"));
        }
        let too_long = || "is longer than time itself".to_owned();
        let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| too_long())? };
        let usec = whole.checked_mul(scale).ok_or_else(too_long)?;
        Ok((usec.checked_add(fraction_usec(fraction, scale)).ok_or_else(too_long)?, after))
    }
}

/// The digits after a decimal point; those below a microsecond are dropped.
fn fraction_usec(digits: &str, scale: u64) -> u64 {
    let mut unit = scale;
    let mut usec = 0;
    for digit in digits.bytes() {
        usec += unit * u64::from(digit - b'0') / 10;
        unit /= 10;
    }
    usec
}

impl Moment {
    /// Reads a moment, given the present one.
    ///
    /// # Errors
    /// With what is wrong, and what would be right.
    pub fn parse(text: &str, now: &ZonedDateTime) -> Result<Self, String> {
        let text = text.trim();
        let instant = if let Some(seconds) = text.strip_prefix('@') {
            let usec = Span::parse(seconds)?.usec;
            return Ok(Self { usec });
        } else if let Ok(instant) = text.parse::<Timestamp>() {
            instant
        } else if let Ok(time) = text.parse::<civil::Time>() {
            next_time(time, now)?
        } else if let Ok(local) = text.parse::<civil::DateTime>() {
            local.to_zoned_datetime(now.time_zone().clone()).map_err(|error| error.to_string())?.timestamp()
        } else {
            return Err(
                "is no moment; write 2027-01-31 18:00, 18:00, 2027-01-31T18:00:00Z or @SECONDS".to_owned()
            );
        };
        let usec = u64::try_from(instant.as_microsecond()).map_err(|_| "lies before 1970".to_owned())?;
        Ok(Self { usec })
    }

    /// The moment that lies a span after the present one.
    pub fn after(span: Span, now: &ZonedDateTime) -> Self {
        let now_usec = u64::try_from(now.timestamp().as_microsecond()).unwrap_or(0);
        Self { usec: now_usec.saturating_add(span.usec) }
    }
}

fn next_time(time: civil::Time, now: &ZonedDateTime) -> Result<Timestamp, String> {
    let words = |error: jiff::Error| error.to_string();
    let today = now.with().time(time).build().map_err(words)?;
    let next = if today > *now { today } else { today.checked_add(1.day()).map_err(words)? };
    Ok(next.timestamp())
}

/// A span for people, with its two largest units: `350 ms`, `8 s`, `3 min 5 s`, `2 d 4 h`.
pub fn human(usec: u64) -> String {
    let with = |large: u64, name: &str, small: u64, small_name: &str| {
        let mut text = format!("{} {name}", usec / large);
        let rest = usec % large / small;
        if rest != 0 {
            let _ = write!(text, " {rest} {small_name}");
        }
        text
    };
    match usec {
        0..1_000 => format!("{usec} us"),
        1_000..SECOND_USEC => format!("{} ms", usec / 1_000),
        SECOND_USEC..10_000_000 => {
            let tenths = usec / 100_000;
            if tenths.is_multiple_of(10) {
                format!("{} s", tenths / 10)
            } else {
                format!("{}.{} s", tenths / 10, tenths % 10)
            }
        }
        10_000_000..MINUTE_USEC => format!("{} s", usec / SECOND_USEC),
        MINUTE_USEC..HOUR_USEC => with(MINUTE_USEC, "min", SECOND_USEC, "s"),
        HOUR_USEC..DAY_USEC => with(HOUR_USEC, "h", MINUTE_USEC, "min"),
        _ => with(DAY_USEC, "d", HOUR_USEC, "h"),
    }
}

/// A span for a narrow column, with its largest unit alone: `8s`, `3min`, `2h`, `4d`.
pub fn short(usec: u64) -> String {
    match usec {
        0..MINUTE_USEC => format!("{}s", usec / SECOND_USEC),
        MINUTE_USEC..HOUR_USEC => format!("{}min", usec / MINUTE_USEC),
        HOUR_USEC..DAY_USEC => format!("{}h", usec / HOUR_USEC),
        _ => format!("{}d", usec / DAY_USEC),
    }
}

/// The present moment of the wall clock, microseconds, to compare with what the daemon wrote down.
pub fn now_usec() -> u64 {
    u64::try_from(Timestamp::now().as_microsecond()).unwrap_or(0)
}

/// How people are told of moments: in which zone, seen from when.
#[derive(Clone, Debug)]
pub struct Calendar {
    now: ZonedDateTime,
}

impl Calendar {
    /// Here and now.
    pub fn here() -> Self {
        Self { now: ZonedDateTime::now() }
    }

    /// At another place and time, for tests.
    pub fn at(now: Timestamp, zone: TimeZone) -> Self {
        Self { now: now.to_zoned_datetime(zone) }
    }

    /// The present moment.
    pub fn now(&self) -> &ZonedDateTime {
        &self.now
    }

    /// Date and time, to the second.
    pub fn date(&self, usec: u64) -> String {
        let Some(at) = self.zoned(usec) else { return format!("@{}", usec / SECOND_USEC) };
        at.strftime("%Y-%m-%d %H:%M:%S").to_string()
    }

    /// Time to the millisecond where it is of today, else date and time.
    pub fn clock(&self, usec: u64) -> String {
        match self.zoned(usec) {
            Some(at) if at.date() == self.now.date() => at.strftime("%H:%M:%S.%3f").to_string(),
            _ => self.date(usec),
        }
    }

    /// Date and time, and how far that is from now.
    pub fn date_and_distance(&self, usec: u64) -> String {
        let distance = self.distance(usec);
        format!("{} ({distance})", self.date(usec))
    }

    /// How far a moment is from now, in words.
    pub fn distance(&self, usec: u64) -> String {
        let now_usec = u64::try_from(self.now.timestamp().as_microsecond()).unwrap_or(0);
        if usec > now_usec {
            format!("in {}", human(usec - now_usec))
        } else {
            format!("{} ago", human(now_usec - usec))
        }
    }

    /// Microseconds since a moment; 0 if it lies ahead.
    pub fn since(&self, usec: u64) -> u64 {
        u64::try_from(self.now.timestamp().as_microsecond()).unwrap_or(0).saturating_sub(usec)
    }

    fn zoned(&self, usec: u64) -> Option<ZonedDateTime> {
        let instant = Timestamp::from_microsecond(i64::try_from(usec).ok()?).ok()?;
        Some(instant.to_zoned_datetime(self.now.time_zone().clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> ZonedDateTime {
        let zone = TimeZone::fixed(jiff::tz::offset(2));
        "2027-01-31T10:00:00Z".parse::<Timestamp>().unwrap().to_zoned_datetime(zone)
    }

    #[test]
    fn spans_are_read_as_systemd_reads_them() {
        let cases = [
            ("90", 90 * SECOND_USEC),
            ("90s", 90 * SECOND_USEC),
            ("5min", 5 * MINUTE_USEC),
            ("5m", 5 * MINUTE_USEC),
            ("1h30min", 90 * MINUTE_USEC),
            ("1h 30 min", 90 * MINUTE_USEC),
            ("1.5h", 90 * MINUTE_USEC),
            (".5s", 500_000),
            ("2d", 2 * DAY_USEC),
            ("1w", 7 * DAY_USEC),
            ("250ms", 250_000),
            ("0", 0),
            (" 3 s ", 3 * SECOND_USEC),
        ];
        for (text, usec) in cases {
            assert_eq!(Span::parse(text), Ok(Span { usec }), "{text}");
        }
    }

    #[test]
    fn what_is_no_span_is_refused_in_words() {
        for text in ["", "min", "5x", "-5s", "5 5x", "1..2s", "99999999999999999999", "99999999999999d", "."]
        {
            let refused = Span::parse(text);
            assert!(refused.as_ref().is_err_and(|words| !words.is_empty()), "{text}: {refused:?}");
        }
    }

    #[test]
    fn moments_are_read_in_every_way_people_write_them() {
        let at = |text: &str| Moment::parse(text, &now()).map(|moment| moment.usec / SECOND_USEC);
        let utc = |text: &str| text.parse::<Timestamp>().unwrap().as_second() as u64;
        assert_eq!(at("@5"), Ok(5));
        assert_eq!(at("2027-01-31T18:00:00Z"), Ok(utc("2027-01-31T18:00:00Z")));
        assert_eq!(at("2027-01-31T18:00:00+01:00"), Ok(utc("2027-01-31T17:00:00Z")));
        assert_eq!(at("2027-01-31 18:00"), Ok(utc("2027-01-31T16:00:00Z")));
        assert_eq!(at("2027-01-31"), Ok(utc("2027-01-30T22:00:00Z")));
        assert_eq!(at("13:00"), Ok(utc("2027-01-31T11:00:00Z")));
        assert_eq!(at("11:00"), Ok(utc("2027-02-01T09:00:00Z")), "it was 12:00 there already");
        assert!(at("soon").is_err());
        assert_eq!(
            Moment::after(Span { usec: SECOND_USEC }, &now()).usec / SECOND_USEC,
            utc("2027-01-31T10:00:01Z")
        );
    }

    #[test]
    fn spans_are_shown_with_two_units_at_most() {
        let cases = [
            (999, "999 us"),
            (350_000, "350 ms"),
            (1_500_000, "1.5 s"),
            (2_000_000, "2 s"),
            (59 * SECOND_USEC, "59 s"),
            (185 * SECOND_USEC, "3 min 5 s"),
            (2 * HOUR_USEC, "2 h"),
            (2 * DAY_USEC + 4 * HOUR_USEC + 5, "2 d 4 h"),
        ];
        for (usec, text) in cases {
            assert_eq!(human(usec), text);
        }
        assert_eq!((short(8_900_000).as_str(), short(3 * HOUR_USEC).as_str()), ("8s", "3h"));
    }

    #[test]
    fn moments_are_shown_where_the_reader_is() {
        let zone = TimeZone::fixed(jiff::tz::offset(2));
        let calendar = Calendar::at("2027-01-31T10:00:00Z".parse().unwrap(), zone);
        let usec = |text: &str| text.parse::<Timestamp>().unwrap().as_microsecond() as u64;
        assert_eq!(
            calendar.date_and_distance(usec("2027-01-31T09:59:00Z")),
            "2027-01-31 11:59:00 (1 min ago)"
        );
        assert_eq!(calendar.clock(usec("2027-01-31T09:59:00.0125Z")), "11:59:00.012");
        assert_eq!(calendar.clock(usec("2027-01-30T09:59:00Z")), "2027-01-30 11:59:00");
        assert_eq!(calendar.distance(usec("2027-01-31T10:00:08Z")), "in 8 s");
        assert_eq!(calendar.date(u64::MAX), format!("@{}", u64::MAX / SECOND_USEC));
    }
}
