//! A number as text, without an allocation: every lock call writes a dozen of them.

pub(crate) struct Digits {
    /// The digits are at its end.
    text: [u8; MOST],
    from: usize,
}

/// Those of `u64::MAX`.
const MOST: usize = 20;

impl Digits {
    pub(crate) fn of(mut value: u64) -> Self {
        let mut text = [0; MOST];
        let mut from = MOST;
        loop {
            from -= 1;
            text[from] = b'0' + (value % 10) as u8;
            value /= 10;
            if value == 0 {
                return Self { text, from };
            }
        }
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.text[self.from..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_those_of_the_number() {
        for n in [0, 9, 10, 99, 100, 1_763_700_000_000_001, u64::MAX] {
            assert_eq!(Digits::of(n).as_bytes(), n.to_string().as_bytes());
        }
    }
}
