use super::*;

#[test]
fn a_holder_has_an_id_and_a_number() {
    let uuid = "a8a5ef81-b5b7-4d39-a987-611a1db5d2fe";
    for good in [":30", ":30:write", ":-7", ":1:kept", ":1:0f"] {
        assert!(looks_like_a_holder(format!("{uuid}{good}").as_bytes()), "{good}");
    }
    for bad in [
        uuid,
        &format!("{uuid}:"),
        &uuid.to_uppercase(),
        "mode",
        "",
        &format!("{uuid}:1\n"),
        &format!("{uuid}-1:2"),
    ] {
        assert!(!looks_like_a_holder(bad.as_bytes()), "{bad}");
    }
}

#[test]
fn permits_of_one_acquisition_are_one_holder() {
    let permit = |first: u8, number: u32| {
        let bytes = [vec![first; 12], number.to_be_bytes().to_vec()].concat();
        (bytes, Some(Duration::from_secs(1)))
    };
    let found = acquisitions(&[
        permit(1, 1),
        permit(1, 2),
        permit(2, 1),
        permit(1, u32::MAX),
        (vec![1], None),
    ]);
    let told: Vec<_> = found.iter().map(|one| (one.id.as_str(), one.count)).collect();
    let one = "01".repeat(12);
    let two = "02".repeat(12);
    assert_eq!(told, [(&*one, 2), (&*two, 1), (&*format!("{one}ffffffff"), 1)]);
}

#[test]
fn what_is_no_answer_is_an_error() {
    for reply in [Reply::Nil, Reply::Pair(1, 2), Reply::Array(vec![Reply::Int(0); 12])] {
        assert_eq!(look_answer(reply, "k", true).unwrap_err().kind(), ErrorKind::Protocol);
    }
}

/// A look at a name: what it is, its holders, and the length of its queue.
fn looked(what: i64, holder: Option<&str>, length: i64) -> Option<Found> {
    let text = |text: &str| Reply::Bytes(text.as_bytes().to_vec());
    let empty = || Reply::Array(Vec::new());
    let holders =
        holder.map_or_else(empty, |id| Reply::Array(vec![text(id), text("1"), Reply::Int(500)]));
    let parts = vec![
        Reply::Int(what),
        text(""),
        holders,
        text("7"),
        Reply::Int(length),
        empty(),
        Reply::Int(0),
        Reply::Int(0),
        Reply::Int(0),
        empty(),
        Reply::Int(0),
        empty(),
        Reply::Nil,
    ];
    look_answer(Reply::Array(parts), "k", false).unwrap()
}

#[test]
fn a_queue_makes_a_lock_a_fair_one() {
    let holder = Some("a8a5ef81-b5b7-4d39-a987-611a1db5d2fe:30");
    let kind = |found: Option<Found>| found.and_then(|found| found.kind);
    assert_eq!(kind(looked(1, holder, 0)), Some(Kind::Mutex));
    assert_eq!(kind(looked(1, holder, 1)), Some(Kind::Fair));
    assert_eq!(kind(looked(0, None, 1)), Some(Kind::Fair), "it is free, and somebody has a place");
    assert_eq!(kind(looked(0, None, 0)), None);
    assert_eq!(kind(looked(2, holder, 0)), Some(Kind::Read));
    assert_eq!(kind(looked(1, Some("a field of something else"), 0)), None);
    let found = looked(1, holder, 0).unwrap();
    assert_eq!((found.token, found.holders.len()), (Some(7), 1));
    assert_eq!(found.holders[0].left, Some(Duration::from_millis(500)));
}
