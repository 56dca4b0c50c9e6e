//! How the data of a hold is written into its node: behind the text, after a zero byte and two
//! numbers.

/// What a node has behind its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Written<'n> {
    /// Of the last change of the data.
    pub(super) number: u64,
    /// How often somebody has asked for the lock.
    pub(super) asked: u64,
    pub(super) data: &'n [u8],
}

impl Written<'_> {
    /// The whole content of a node with this text.
    pub(super) fn behind(self, text: &[u8]) -> Vec<u8> {
        let Self { number, asked, data } = self;
        [text, format!("\0{number} {asked} ").as_bytes(), data].concat()
    }
}

/// The text of a node, and what is behind it.
pub(super) fn split(node: &[u8]) -> (&[u8], Option<Written<'_>>) {
    let Some(end) = node.iter().position(|byte| *byte == 0) else { return (node, None) };
    let mut parts = node[end + 1..].splitn(3, |byte| *byte == b' ');
    let mut number = || std::str::from_utf8(parts.next()?).ok()?.parse().ok();
    let written = number().zip(number()).zip(parts.next());
    let written = written.map(|((number, asked), data)| Written { number, asked, data });
    (&node[..end], written)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_comes_behind_the_text() {
        let written = Written { number: 7, asked: 2, data: b"a\0 b\xff" };
        let node = written.behind(b"h:1 name");
        assert_eq!(split(&node), (&b"h:1 name"[..], Some(written)));
        assert_eq!(split(b"h:1 name"), (&b"h:1 name"[..], None));
        for odd in [&b"h\0"[..], b"h\0x y z", b"h\x007", b"h\0 7", b"h\x001 2", b"h\x001 x y"] {
            assert_eq!(split(odd), (&b"h"[..], None), "{odd:?}");
        }
    }
}
