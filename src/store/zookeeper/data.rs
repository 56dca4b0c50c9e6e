//! How the data of a hold is written into its node: behind the text, after a zero byte and a number.

use crate::base::data::HoldData;

/// Appends data to the text of a node.
pub(super) fn with_data(mut text: Vec<u8>, number: u64, data: &HoldData) -> Vec<u8> {
    text.extend_from_slice(format!("\0{number} ").as_bytes());
    text.extend_from_slice(data.bytes());
    text
}

/// The text of a node, and its data with the number.
pub(super) fn split(node: &[u8]) -> (&[u8], Option<(u64, &[u8])>) {
    let Some(end) = node.iter().position(|byte| *byte == 0) else { return (node, None) };
    let rest = &node[end + 1..];
    let numbered = || {
        let space = rest.iter().position(|byte| *byte == b' ')?;
        let number = std::str::from_utf8(&rest[..space]).ok()?.parse().ok()?;
        Some((number, &rest[space + 1..]))
    };
    (&node[..end], numbered())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_comes_behind_the_text() {
        let data = HoldData::new(b"a\0 b\xff");
        let node = with_data(b"h:1 name".to_vec(), 7, &data);
        assert_eq!(split(&node), (&b"h:1 name"[..], Some((7, data.bytes()))));
        assert_eq!(split(b"h:1 name"), (&b"h:1 name"[..], None));
        for odd in [&b"h\0"[..], b"h\0x y", b"h\07", b"h\0 7"] {
            assert_eq!(split(odd), (&b"h"[..], None), "{odd:?}");
        }
    }
}
