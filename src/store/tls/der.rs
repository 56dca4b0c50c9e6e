//! Reads the two parts of a certificate's DER encoding that are needed here: when it ends, and the
//! hash function of its signature. The crate `x509-cert` would bring several others for that.

use std::time::Duration;

pub(super) const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const INTEGER: u8 = 0x02;
/// With a two-digit year, and with a four-digit year.
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// The content of the first element of a DER encoding, and what follows it.
pub(super) fn element(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (&found, rest) = bytes.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..=0x84 => {
            let (digits, rest) = rest.split_at_checked(usize::from(first - 0x80))?;
            (digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit)), rest)
        }
        _ => return None,
    };
    (found == tag).then(|| rest.split_at_checked(length)).flatten()
}

/// When a certificate expires, since 1970. `None` if that cannot be read.
pub(crate) fn end_of(certificate: &[u8]) -> Option<Duration> {
    let (parts, _) = element(certificate, SEQUENCE)?;
    let (signed, _) = element(parts, SEQUENCE)?;
    // Certificates of version 1 do not contain their version.
    let signed = element(signed, VERSION).map_or(signed, |(_, rest)| rest);
    let (_serial, rest) = element(signed, INTEGER)?;
    let (_algorithm, rest) = element(rest, SEQUENCE)?;
    let (_issuer, rest) = element(rest, SEQUENCE)?;
    let (validity, _) = element(rest, SEQUENCE)?;
    let (_begin, rest) = time(validity)?;
    time(rest).map(|(end, _)| end)
}

/// A time, and what follows it.
fn time(bytes: &[u8]) -> Option<(Duration, &[u8])> {
    let (text, century, rest) = match element(bytes, UTC_TIME) {
        Some((text, rest)) => {
            // Years from 50 on are in the last century (RFC 5280).
            let year = number(text.get(..2)?)?;
            (text, if year >= 50 { 1900 + year } else { 2000 + year }, rest)
        }
        None => {
            let (text, rest) = element(bytes, GENERALIZED_TIME)?;
            (text.get(2..)?, number(text.get(..4)?)?, rest)
        }
    };
    let field = |at: usize| number(text.get(at..at + 2)?);
    let days = days_since_1970(century, field(2)?, field(4)?);
    let seconds = field(6)? * 3600 + field(8)? * 60 + field(10)?;
    Some((Duration::from_secs(u64::try_from(days * 86_400 + seconds).unwrap_or(0)), rest))
}

fn number(digits: &[u8]) -> Option<i64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// For a date in the Gregorian calendar, computed with years that begin in March.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    365 * year + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + day_of_year
        - 719_468
}

#[cfg(test)]
mod tests {
    use super::super::end_point_hash;
    use super::*;
    use crate::base::fuzz_tests::fuzz;

    #[test]
    fn the_end_of_a_certificate_is_read() {
        // The second is written with four digits of the year.
        for (year, month, day, seconds) in
            [(2031, 3, 1, 1_930_089_600), (2055, 12, 31, 2_713_824_000)]
        {
            let key = rcgen::KeyPair::generate().unwrap();
            let mut params = rcgen::CertificateParams::new(["h".to_owned()]).unwrap();
            params.not_after = rcgen::date_time_ymd(year, month, day);
            let certificate = params.self_signed(&key).unwrap();
            assert_eq!(end_of(certificate.der()), Some(Duration::from_secs(seconds)), "{year}");
            for end in 0..60 {
                assert!(end_of(&certificate.der()[..end]).is_none());
            }
        }
    }

    #[test]
    fn days_are_counted() {
        for (date, days) in [
            ((1970, 1, 1), 0),
            ((2000, 2, 29), 11_016),
            ((2000, 3, 1), 11_017),
            ((2026, 11, 22), 20_779),
        ] {
            assert_eq!(days_since_1970(date.0, date.1, date.2), days, "{date:?}");
        }
    }

    #[test]
    fn fuzzed_certificates_have_an_end_and_a_hash_or_none() {
        let whole = || {
            let key = rcgen::KeyPair::generate().unwrap();
            let params = rcgen::CertificateParams::new(["h".to_owned()]).unwrap();
            params.self_signed(&key).unwrap().der().to_vec()
        };
        let certificates = [whole(), whole()];
        fuzz(
            move |dice| dice.choose(&certificates).clone(),
            |bytes, _| {
                let _ = (end_of(bytes), end_point_hash(bytes));
            },
        );
    }

    #[test]
    fn a_time_has_hours_minutes_and_seconds() {
        let at = |tag: u8, text: &str| {
            let bytes =
                [&[tag, u8::try_from(text.len()).unwrap()], text.as_bytes(), b"rest"].concat();
            time(&bytes).map(|(time, rest)| (time.as_secs(), rest.to_vec()))
        };
        let seconds = 20_455 * 86_400 + 3 * 3600 + 4 * 60 + 5;
        assert_eq!(at(UTC_TIME, "260102030405Z"), Some((seconds, b"rest".to_vec())));
        assert_eq!(at(GENERALIZED_TIME, "20260102030405Z"), Some((seconds, b"rest".to_vec())));
        assert_eq!(at(UTC_TIME, "500101000000Z").map(|(seconds, _)| seconds), Some(0), "1950");
        assert_eq!(at(UTC_TIME, "2601020304"), None);
    }
}
