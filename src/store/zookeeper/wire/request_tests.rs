use super::*;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn frame(request: &Request) -> String {
    let mut bytes = Vec::new();
    request.write_to(7, &mut bytes);
    hex(&bytes)
}

const OPEN: &str = "000000010000001f00000005776f726c6400000006616e796f6e65";

#[test]
fn each_request_has_golden_bytes() {
    let path = "000000022f61";
    let golden = [
        (Request::delete("/a"), format!("00000012 00000007 00000002 {path} ffffffff")),
        (Request::exists("/a", true), format!("0000000f 00000007 00000003 {path} 01")),
        (Request::get_data("/a", false), format!("0000000f 00000007 00000004 {path} 00")),
        (
            Request::set_data("/a", &[0, 0, 0, 3], 9),
            format!("0000001a 00000007 00000005 {path} 00000004 00000003 00000009"),
        ),
        (Request::remove_watches("/a"), format!("00000012 00000007 00000012 {path} 00000003")),
        (Request::sync("/a"), format!("0000000e 00000007 00000009 {path}")),
        (Request::ping(), "00000008 00000007 0000000b".to_owned()),
        (Request::children("/a", true), format!("0000000f 00000007 00000008 {path} 01")),
        (
            Request::create("/a", b"x", Acl::Open, Mode::EphemeralSequential),
            format!("00000032 00000007 0000000f {path} 0000000178 {OPEN} 00000003"),
        ),
        (
            Request::create("/a", b"", Acl::CreatorAll, Mode::Ephemeral),
            format!(
                "0000002a 00000007 0000000f {path} 00000000 000000010000001f000000046175746800000000 00000001"
            ),
        ),
        (
            Request::create("/a", b"", Acl::Open, Mode::Container),
            format!("00000031 00000007 00000013 {path} 00000000 {OPEN} 00000004"),
        ),
        (
            Request::create("/a", b"", Acl::Open, Mode::Persistent),
            format!("00000031 00000007 0000000f {path} 00000000 {OPEN} 00000000"),
        ),
        (
            Request::multi(&[
                Request::create("/a", b"", Acl::Open, Mode::Container),
                Request::delete("/a"),
            ]),
            format!(
                "00000056 00000007 0000000e \
                 00000013 00 ffffffff {path} 00000000 {OPEN} 00000004 \
                 00000002 00 ffffffff {path} ffffffff \
                 ffffffff 01 ffffffff"
            ),
        ),
        (
            Request::multi(&[
                Request::multi(&[Request::delete("/a"), Request::delete("/a")]),
                Request::delete("/a"),
            ]),
            format!(
                "0000004a 00000007 0000000e \
                 00000002 00 ffffffff {path} ffffffff \
                 00000002 00 ffffffff {path} ffffffff \
                 00000002 00 ffffffff {path} ffffffff \
                 ffffffff 01 ffffffff"
            ),
        ),
        (
            Request::multi_read(&[Request::children("/a", false), Request::children("/a", false)]),
            format!(
                "00000031 00000007 00000016 \
                 00000008 00 ffffffff {path} 00 00000008 00 ffffffff {path} 00 \
                 ffffffff 01 ffffffff"
            ),
        ),
        (
            Request::quorum_check("/a"),
            format!(
                "00000024 00000007 0000000e 0000000d 00 ffffffff {path} ffffffff ffffffff 01 ffffffff"
            ),
        ),
        (Request::close_session(), "00000008 00000007 fffffff5".to_owned()),
        (
            Request::auth("digest", b"u:p"),
            "0000001d 00000007 00000064 00000000 00000006646967657374 00000003753a70".to_owned(),
        ),
    ];
    for (request, bytes) in golden {
        assert_eq!(frame(&request), bytes.replace(' ', ""), "{:?}", request.shape);
    }
}

#[test]
fn a_transaction_knows_where_it_draws_tokens() {
    let make = |path| Request::create(path, b"", Acl::Open, Mode::EphemeralSequential);
    let inner = Request::multi(&[Request::delete("/x/y"), make("/a/b/n-").drawing_in("/a/b")]);
    let all = Request::multi(&[make("/c"), inner, make("/a/n-").drawing_in("/a")]);
    assert_eq!(all.draws_in(), ["/a/b", "/a"]);
    assert_eq!(all.shape.parts.len(), 4);
}

#[test]
fn a_connection_begins_with_golden_bytes() {
    let fresh = "0000002d 00000000 0000000000000000 00000fa0 0000000000000000 00000010 \
                 00000000000000000000000000000000 00";
    assert_eq!(hex(&connect_frame(None, 0, 4000)), fresh.replace(' ', ""));
    let session = SessionId { id: 0x1000_0000_0000_0001, password: [0xab; 16] };
    let again = "0000002d 00000000 0000000100000005 00000fa0 1000000000000001 00000010 \
                 abababababababababababababababab 00";
    assert_eq!(hex(&connect_frame(Some(session), 0x1_0000_0005, 4000)), again.replace(' ', ""));
    assert!(!format!("{session:?}").contains("171"), "the password is not shown");
}
