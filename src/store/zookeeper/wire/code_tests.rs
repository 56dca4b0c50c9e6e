use super::*;

#[test]
fn errors_have_the_kinds_of_the_crate() {
    let kinds = [
        (-4, ErrorKind::Unreachable),
        (-7, ErrorKind::Unreachable),
        (-118, ErrorKind::Unreachable),
        (-102, ErrorKind::Denied),
        (-114, ErrorKind::Denied),
        (-115, ErrorKind::Denied),
        (-124, ErrorKind::Denied),
        (-120, ErrorKind::Unsupported),
        (-108, ErrorKind::WrongType),
        (-6, ErrorKind::Unsupported),
        (-125, ErrorKind::Full),
        (-127, ErrorKind::NotReady),
        (-119, ErrorKind::ReadOnly),
        (-8, ErrorKind::InvalidInput),
        (-5, ErrorKind::Protocol),
        (-9999, ErrorKind::Server),
        (17, ErrorKind::Server),
    ];
    for (code, kind) in kinds {
        let error = Code(code).to_error("/a");
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains("/a"), "{error}");
    }
}

#[test]
fn some_codes_end_more_than_a_request() {
    for code in [-118, -112] {
        assert!(Code(code).ends_the_connection(), "{code}");
    }
    assert!(!Code(0).ends_the_connection() && !Code(-124).ends_the_connection());
    assert!(
        Code(-124).demands_an_identity()
            && !Code(124).demands_an_identity()
            && !Code(0).demands_an_identity()
    );
    for (code, is_for_all) in [(-118, true), (-127, true), (-119, true), (-101, false), (-6, false)]
    {
        assert_eq!(Code(code).is_for_all(), is_for_all, "{code}");
    }
    assert!(Code(0).is_ok() && !Code(-101).is_ok());
}
