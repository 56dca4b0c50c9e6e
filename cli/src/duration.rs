//! Times on the command line: `500ms`, `30s`, `5m`, `1h30m`, `2d`.

use std::time::Duration;

/// Each unit with its length in milliseconds.
const UNITS: [(&str, u64); 5] =
    [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

const SHAPE: &str =
    "a time is a number and its unit (ms, s, m, h, d), such as 500ms, 30s, 5m or 1h30m";

/// Parses whole numbers with units, one after the other and without spaces.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let mut millis = 0u64;
    let mut rest = text;
    while !rest.is_empty() || text.is_empty() {
        let (number, behind) = split_where(rest, |c| !c.is_ascii_digit());
        let (unit, behind) = split_where(behind, |c| c.is_ascii_digit());
        let number: u64 = number.parse().map_err(|_| SHAPE.to_owned())?;
        let (_, length) =
            UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(|| SHAPE.to_owned())?;
        let more = number.checked_mul(*length).and_then(|more| millis.checked_add(more));
        millis = more.ok_or_else(|| format!("{text} is too long"))?;
        rest = behind;
    }
    Ok(Duration::from_millis(millis))
}

fn split_where(text: &str, ends: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(ends).unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_numbers_with_units() {
        for (text, millis) in [
            ("500ms", 500),
            ("0s", 0),
            ("30s", 30_000),
            ("5m", 300_000),
            ("1h30m", 5_400_000),
            ("2d", 172_800_000),
            ("1m500ms", 60_500),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn anything_else_is_refused() {
        for text in
            ["", "30", "s", "1.5s", "-1s", "1 h", "1h 30m", "5min", "1s30", "٣s", "1e3s", "+1s"]
        {
            assert_eq!(parse(text), Err(SHAPE.to_owned()), "{text}");
        }
        assert!(parse("99999999999999999d").unwrap_err().contains("too long"));
        assert!(parse("18446744073709551615ms1ms").unwrap_err().contains("too long"));
    }
}
