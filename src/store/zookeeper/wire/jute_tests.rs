use super::*;

#[test]
fn fields_have_golden_bytes() {
    let encoded = Encoder::default().int(-2).long(258).bool(true).text("/ä").bytes(&[]).0;
    let golden = [
        0xff, 0xff, 0xff, 0xfe, 0, 0, 0, 0, 0, 0, 1, 2, 1, 0, 0, 0, 3, b'/', 0xc3, 0xa4, 0, 0, 0, 0,
    ];
    assert_eq!(encoded, golden);
    let mut fields = Decoder::new(&golden);
    assert_eq!(
        (fields.int().unwrap(), fields.long().unwrap(), fields.bool().unwrap()),
        (-2, 258, true)
    );
    assert_eq!((fields.text().unwrap(), fields.bytes().unwrap()), ("/ä", Some(&[][..])));
    assert!(fields.is_at_its_end());
}

#[test]
fn what_is_cut_or_lies_about_its_length_is_refused() {
    let kind = |outcome: Result<()>| outcome.unwrap_err().kind();
    for bytes in [&[0, 0][..], &[0, 0, 0, 5, b'a'], &[0x80, 0, 0, 0], &[0x7f, 0xff, 0xff, 0xff, 1]]
    {
        assert_eq!(kind(Decoder::new(bytes).bytes().map(drop)), ErrorKind::Protocol, "{bytes:?}");
    }
    assert_eq!(kind(Decoder::new(&[0, 0, 0, 1, 0xff]).text().map(drop)), ErrorKind::Protocol);
    // A list that claims more items than it has reserves no memory for them.
    let many = [0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0];
    assert_eq!(kind(Decoder::new(&many).list(Decoder::int).map(drop)), ErrorKind::Protocol);
    assert_eq!(Decoder::new(&[0xff, 0xff, 0xff, 0xff]).bytes().unwrap(), None);
    assert!(Decoder::new(&[0xff, 0xff, 0xff, 0xff]).list(Decoder::int).unwrap().is_empty());
}
