//! Spans of time and sizes as people write them: `1h 30min`, `8MiB`. Every number has its unit.

const SECOND_MS: i64 = 1_000;

/// Units of a span, the longest first, with their other spellings.
const SPANS: [(&[&str], i64); 5] = [
    (&["d", "day", "days"], 24 * 60 * 60 * SECOND_MS),
    (&["h", "hour", "hours"], 60 * 60 * SECOND_MS),
    (&["min", "m"], 60 * SECOND_MS),
    (&["s", "sec"], SECOND_MS),
    (&["ms"], 1),
];

/// Units of a size, the largest first.
const SIZES: [(&str, u64); 5] =
    [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

/// Milliseconds of a span.
///
/// # Errors
/// What is wrong with the text, to follow its quotation.
pub fn span_ms(text: &str) -> Result<i64, String> {
    let mut total_ms: i64 = 0;
    for (number, unit) in parts(text)? {
        let factor = SPANS.iter().find(|(names, _)| names.contains(&unit)).map(|(_, factor)| *factor);
        let factor = factor.ok_or_else(|| unknown(unit, "d, h, min, s, ms"))?;
        let part_ms = i64::try_from(number).ok().and_then(|number| number.checked_mul(factor));
        let sum_ms = part_ms.and_then(|part_ms| total_ms.checked_add(part_ms));
        total_ms = sum_ms.ok_or("is longer than any span of time")?;
    }
    Ok(total_ms)
}

/// Bytes of a size.
///
/// # Errors
/// What is wrong with the text, to follow its quotation.
pub fn size_bytes(text: &str) -> Result<u64, String> {
    let mut total: u64 = 0;
    for (number, unit) in parts(text)? {
        let factor = SIZES.iter().find(|(name, _)| *name == unit).map(|(_, factor)| *factor);
        let factor = factor.ok_or_else(|| unknown(unit, "TiB, GiB, MiB, KiB, B"))?;
        let sum = number.checked_mul(factor).and_then(|part| total.checked_add(part));
        total = sum.ok_or("is larger than any size")?;
    }
    Ok(total)
}

fn unknown(unit: &str, units: &str) -> String {
    if unit.is_empty() {
        format!("has no unit; units are {units}")
    } else {
        format!("has the unknown unit {unit:?}; units are {units}")
    }
}

/// Numbers with what stands behind each: digits, then letters, with or without a space.
fn parts(text: &str) -> Result<Vec<(u64, &str)>, String> {
    let mut rest = text.trim();
    let mut parts = Vec::new();
    while !rest.is_empty() {
        let digits = rest.find(|character: char| !character.is_ascii_digit()).unwrap_or(rest.len());
        let number = rest[..digits].parse().map_err(|_| "is not a number with a unit".to_owned())?;
        rest = rest[digits..].trim_start();
        let letters = rest.find(|character: char| !character.is_alphabetic()).unwrap_or(rest.len());
        parts.push((number, &rest[..letters]));
        rest = rest[letters..].trim_start();
    }
    if parts.is_empty() { Err("is empty".to_owned()) } else { Ok(parts) }
}

/// A span as it is written in the configuration.
pub fn span(mut span_ms: i64) -> String {
    let mut parts = Vec::new();
    for (names, factor) in SPANS {
        if span_ms >= factor {
            parts.push(format!("{}{}", span_ms / factor, names[0]));
            span_ms %= factor;
        }
    }
    if parts.is_empty() { "0s".to_owned() } else { parts.join(" ") }
}

/// A size as it is written in the configuration: in the largest unit that leaves no rest.
pub fn size(bytes: u64) -> String {
    let unit = SIZES.iter().find(|(_, factor)| bytes >= *factor && bytes.is_multiple_of(*factor));
    unit.map_or_else(|| "0B".to_owned(), |(name, factor)| format!("{}{name}", bytes / factor))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn spans_are_read() {
        let hour = 3_600_000;
        for (text, expected) in [
            ("30s", 30_000),
            ("2min", 120_000),
            ("2m", 120_000),
            ("1h 30min", hour + hour / 2),
            ("1h30min", hour + hour / 2),
            (" 1 h ", hour),
            ("0s", 0),
            ("250ms", 250),
            ("30d", 30 * 24 * hour),
            ("1 day", 24 * hour),
        ] {
            assert_eq!(span_ms(text), Ok(expected), "{text:?}");
        }
    }

    #[test]
    fn bad_spans_say_what_is_wrong() {
        let units = "units are d, h, min, s, ms";
        for (text, problem) in [
            ("", "is empty".to_owned()),
            ("30", format!("has no unit; {units}")),
            ("30 10s", format!("has no unit; {units}")),
            ("30y", format!("has the unknown unit \"y\"; {units}")),
            ("30S", format!("has the unknown unit \"S\"; {units}")),
            ("30µs", format!("has the unknown unit \"µs\"; {units}")),
            ("-5s", "is not a number with a unit".to_owned()),
            ("1.5h", "is not a number with a unit".to_owned()),
            ("soon", "is not a number with a unit".to_owned()),
            ("99999999999999999999s", "is not a number with a unit".to_owned()),
            ("9999999999999999d", "is longer than any span of time".to_owned()),
        ] {
            assert_eq!(span_ms(text), Err(problem), "{text:?}");
        }
    }

    #[test]
    fn sizes_are_read() {
        assert_eq!(size_bytes("8MiB"), Ok(8 << 20));
        assert_eq!(size_bytes("1 GiB 512 MiB"), Ok((1 << 30) + (512 << 20)));
        assert_eq!(size_bytes("0B"), Ok(0));
        let units = "units are TiB, GiB, MiB, KiB, B";
        assert_eq!(size_bytes("8"), Err(format!("has no unit; {units}")));
        assert_eq!(size_bytes("8MB"), Err(format!("has the unknown unit \"MB\"; {units}")));
        assert_eq!(size_bytes("99999999999TiB"), Err("is larger than any size".to_owned()));
    }

    proptest! {
        #[test]
        fn what_is_printed_is_read_back(span_of in 0..i64::MAX / 2, size_of in any::<u64>()) {
            prop_assert_eq!(span_ms(&span(span_of)), Ok(span_of));
            prop_assert_eq!(size_bytes(&size(size_of)), Ok(size_of));
        }

        #[test]
        fn no_text_panics(text in ".{0,40}") {
            let _ = span_ms(&text);
            let _ = size_bytes(&text);
        }
    }
}
