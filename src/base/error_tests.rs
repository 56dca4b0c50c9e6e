use super::*;

#[test]
fn displays_name_and_message_but_not_the_cause() {
    let e = Error::named(ErrorKind::Unreachable, "job", "no answer")
        .caused_by(std::io::Error::other("reset"));
    assert_eq!(e.to_string(), "\"job\": no answer");
    assert_eq!(e.source().unwrap().to_string(), "reset");
    assert_eq!((e.kind(), e.name()), (ErrorKind::Unreachable, Some("job")));
    assert_eq!(size_of::<Error>(), size_of::<usize>());
}

#[test]
fn the_alternate_form_and_the_report_have_all_causes() {
    let inner = Error::new(ErrorKind::Unreachable, "no answer within 1 s")
        .caused_by(std::io::Error::other("reset by peer"));
    let e = Error::named(ErrorKind::Lost, "job", "its lease could not be renewed")
        .caused_by(inner)
        .advise(Advice::Words("ask again".into()));
    let line = "\"job\": its lease could not be renewed: no answer within 1 s: reset by peer; \
                ask again";
    assert_eq!(format!("{e:#}"), line);
    assert_eq!(format!("{e:?}"), format!("Lost: {line}"));
    assert!(format!("{e:#?}").starts_with("Error {\n    kind: Lost"));
}

#[test]
fn advice_is_shown_and_is_not_part_of_the_message() {
    let e = Error::named(ErrorKind::WrongType, "max_hold", "something else has it")
        .advise(Advice::ChooseName);
    assert_eq!(
        e.to_string(),
        "\"max_hold\": something else has it; use another name or a key_prefix"
    );
    assert_eq!((e.message(), e.advice()), ("something else has it", Some(&Advice::ChooseName)));
    let reworded = e.reworded(|said| format!("refused ({said})"));
    assert_eq!(reworded.advice(), Some(&Advice::ChooseName), "a new message keeps the advice");
}

#[test]
fn an_outage_is_transient_and_a_lost_hold_is_not() {
    let of = |kind| Error::new(kind, "why");
    for kind in
        [ErrorKind::Unreachable, ErrorKind::NoQuorum, ErrorKind::NotReady, ErrorKind::Protocol]
    {
        assert!(of(kind).is_outage() && of(kind).is_transient(), "{kind:?}");
    }
    assert!(of(ErrorKind::Full).is_transient() && !of(ErrorKind::Full).is_outage());
    for kind in
        [ErrorKind::Lost, ErrorKind::Denied, ErrorKind::Tls, ErrorKind::Conflict, ErrorKind::Server]
    {
        assert!(!of(kind).is_outage() && !of(kind).is_transient(), "{kind:?}");
    }
}

#[test]
fn all_kinds_are_listed() {
    // This match fails to compile for a new kind: add it here, and then to `ErrorKind::ALL`.
    let place = |kind: ErrorKind| match kind {
        ErrorKind::InvalidInput => 0,
        ErrorKind::Lost => 1,
        ErrorKind::Unreachable => 2,
        ErrorKind::NoQuorum => 3,
        ErrorKind::NotReplicated => 4,
        ErrorKind::NotReady => 5,
        ErrorKind::Denied => 6,
        ErrorKind::Tls => 7,
        ErrorKind::WrongType => 8,
        ErrorKind::ReadOnly => 9,
        ErrorKind::Full => 10,
        ErrorKind::Protocol => 11,
        ErrorKind::Unsupported => 12,
        ErrorKind::Closed => 13,
        ErrorKind::Cancelled => 14,
        ErrorKind::Forked => 15,
        ErrorKind::Stale => 16,
        ErrorKind::Conflict => 17,
        ErrorKind::Server => 18,
    };
    for (number, kind) in ErrorKind::ALL.into_iter().enumerate() {
        assert_eq!((place(kind), kind as usize), (number, number));
    }
    assert_eq!(ErrorKind::NoQuorum.label(), "no_quorum");
}

#[test]
fn a_log_line_has_every_cause_once() {
    let refused = Error::new(ErrorKind::Unreachable, "no server listens")
        .caused_by(std::io::Error::other("refused"));
    let e = Error::named(ErrorKind::Unreachable, "job", "handshake: no server listens")
        .caused_by(refused);
    assert_eq!(e.chain().to_string(), "\"job\": handshake: no server listens: refused");
}
