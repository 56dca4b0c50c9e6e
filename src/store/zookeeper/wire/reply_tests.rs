use super::*;
use crate::base::error::ErrorKind;
use crate::store::zookeeper::wire::request::{Acl, Mode};

#[test]
fn an_event_says_what_has_happened() {
    use EventKind::{ChildrenChanged, Created, DataChanged, Deleted, Other};
    let kinds = [-1, 0, 1, 2, 3, 4, 5].map(EventKind::of);
    assert_eq!(kinds, [Other, Other, Created, Deleted, DataChanged, ChildrenChanged, Other]);
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<char> = hex.chars().filter(char::is_ascii_hexdigit).collect();
    digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(&pair.iter().collect::<String>(), 16).unwrap())
        .collect()
}

const STAT: &str = "0000000100000012 0000000100000013 0000018c00000000 0000018c00000001 \
                    00000002 00000000 00000000 1000000000000001 00000004 00000005 0000000100000012";

fn stat() -> Stat {
    let czxid = 0x1_0000_0012;
    let mzxid = 0x1_0000_0013;
    let (ctime, mtime) = (0x18c_0000_0000, 0x18c_0000_0001);
    Stat { czxid, mzxid, ctime, mtime, version: 2, ephemeral_owner: 0x1000_0000_0000_0001 }
}

/// The body of the reply to a create.
fn stat_of(path: &str) -> Vec<u8> {
    let length = u32::try_from(path.len()).unwrap().to_be_bytes();
    [&length, path.as_bytes(), &bytes(STAT)].concat()
}

fn reply(body: &str) -> Vec<u8> {
    bytes(&format!("00000007 0000000100000014 00000000 {body}"))
}

#[test]
fn replies_are_read_and_every_cut_is_noticed() {
    let (create, delete) =
        (Request::create("/a", b"", Acl::Open, Mode::Container), Request::delete("/a"));
    let set = Request::set_data("/a", b"", -1);
    let requested = [create, delete, set];
    let done = format!(
        "0000000f 00 00000000 000000022f61 {STAT} 00000002 00 00000000 00000005 00 00000000 {STAT} \
         ffffffff 01 ffffffff"
    );
    let created = Created { path: "/a".to_owned(), stat: stat() };
    let made = created.clone();
    type IsRight = Box<dyn Fn(&Reply) -> Result<bool>>;
    let whole: [(String, IsRight); 4] = [
        (format!("000000022f61 {STAT}"), Box::new(move |reply| Ok(reply.created()? == created))),
        (
            format!("0000000178 {STAT}"),
            Box::new(|reply| Ok(reply.data()? == (b"x".to_vec(), stat()))),
        ),
        (
            "00000002 0000000161 0000000162".to_owned(),
            Box::new(|reply| Ok(reply.children()? == ["a", "b"])),
        ),
        (
            done,
            Box::new(move |reply| {
                Ok(reply.transacted(&requested)? == Transacted::Made(vec![made.clone()]))
            }),
        ),
    ];
    for (body, is_right) in whole {
        let frame = reply(&body);
        assert!(is_right(&Reply::decode(&frame).unwrap()).unwrap(), "{body}");
        for length in 0..frame.len() {
            let cut = Reply::decode(&frame[..length]).and_then(|reply| is_right(&reply));
            assert_eq!(cut.unwrap_err().kind(), ErrorKind::Protocol, "{body} cut at {length}");
        }
        let longer = [&frame[..], &[0]].concat();
        assert!(
            Reply::decode(&longer).and_then(|reply| is_right(&reply)).is_err(),
            "{body} and more"
        );
    }
}

/// From ZooKeeper 3.5.10, with a directory and its first child.
#[test]
fn a_node_may_be_made_without_its_stat() {
    let requested = [
        Request::create("/c", b"", Acl::Open, Mode::Container),
        Request::create("/c/x", b"", Acl::Open, Mode::EphemeralSequential),
    ];
    let body = format!(
        "0000000f 00 00000000 000000022f63 {STAT} 00000001 00 00000000 000000042f632f78 ffffffff 01 ffffffff"
    );
    let outcome = Reply::decode(&reply(&body)).unwrap().transacted(&requested).unwrap();
    let Transacted::Made(made) = &outcome else { panic!("{outcome:?}") };
    assert_eq!((made[1].path.as_str(), made[1].stat.czxid), ("/c/x", 0));
    let shape = Request::multi(&requested).shape;
    let reports = |body: &str| Reply::decode(&reply(body)).unwrap().reports_numbers(&shape);
    assert_eq!(reports(&body), Some(false));
    let whole = format!("0000000f 00 00000000 000000042f632f78 {STAT}");
    assert_eq!(reports(&body.replace("00000001 00 00000000 000000042f632f78", &whole)), Some(true));
    let deletes = Request::multi(&[Request::delete("/a")]).shape;
    let deleted = Reply::decode(&reply("00000002 00 00000000 ffffffff 01 ffffffff")).unwrap();
    assert_eq!(deleted.reports_numbers(&deletes), None);
}

#[test]
fn a_transaction_fails_at_any_place() {
    let requested = [Request::delete("/a"), Request::delete("/b"), Request::delete("/c")];
    for place in 0..3 {
        let code = |at: usize| match at.cmp(&place) {
            std::cmp::Ordering::Less => "00000000",
            std::cmp::Ordering::Equal => "ffffff9b",
            std::cmp::Ordering::Greater => "fffffffe",
        };
        let body: String = (0..3).map(|at| format!("ffffffff 00 {0} {0}", code(at))).collect();
        let failed = Reply::decode(&reply(&format!("{body} ffffffff 01 ffffffff"))).unwrap();
        let refused = Transacted::Refused { place, code: Code::NO_NODE };
        assert_eq!(failed.transacted(&requested).unwrap(), refused);
    }
    let fewer = Reply::decode(&reply("00000002 00 00000000 ffffffff 01 ffffffff")).unwrap();
    assert_eq!(fewer.transacted(&requested).unwrap_err().kind(), ErrorKind::Protocol);
}

#[test]
fn a_transaction_of_several_requests_is_several_replies() {
    let make = |path| Request::create(path, b"", Acl::Open, Mode::EphemeralSequential);
    let first = [Request::check("/g", 3), make("/a")];
    let last = [make("/a"), Request::set_data("/b", b"", -1)];
    let parts = [Request::multi(&first), Request::delete("/c"), Request::multi(&last)];
    let shapes = || parts.iter().map(|part| &part.shape);
    let made = format!("0000000f 00 00000000 000000022f61 {STAT}");
    let own = format!("0000000d 00 00000000 {made}");
    let body = format!(
        "{own} 00000002 00 00000000 {made} 00000005 00 00000000 {STAT} ffffffff 01 ffffffff"
    );
    let all = Reply::decode(&reply(&body)).unwrap();
    let replies = all.split(shapes()).unwrap().expect("all have run");
    let created = || Created { path: "/a".to_owned(), stat: stat() };
    for (at, requested) in [(0, &first), (2, &last)] {
        let outcome = replies[at].transacted(requested).unwrap();
        assert_eq!(outcome, Transacted::Made(vec![created()]), "{at}");
    }
    assert_eq!(replies[0], Reply::decode(&reply(&format!("{own} ffffffff 01 ffffffff"))).unwrap());
    assert_eq!(replies[1], Reply::decode(&reply("")).unwrap());
    let failed = "ffffffff 00 00000000 00000000".repeat(4) + "ffffffff 00 ffffff9b ffffff9b";
    let refused = Reply::decode(&reply(&format!("{failed} ffffffff 01 ffffffff"))).unwrap();
    assert_eq!(refused.split(shapes()).unwrap(), None);
    let short = Reply::decode(&reply(&own)).unwrap();
    assert_eq!(short.split(shapes()).unwrap_err().kind(), ErrorKind::Protocol);
}

#[test]
fn looks_that_were_asked_for_together_have_a_reply_each() {
    let body = "00000008 00 00000000 00000002 0000000161 0000000162 \
                ffffffff 00 ffffff9b ffffff9b 00000008 00 00000000 00000000";
    let all = Reply::decode(&reply(&format!("{body} ffffffff 01 ffffffff"))).unwrap();
    let replies = all.split_looks(3).unwrap();
    assert_eq!(replies[0].children().unwrap(), ["a", "b"]);
    assert_eq!((replies[1].code, replies[1].body.len()), (Code::NO_NODE, 0));
    assert_eq!(replies[2].children().unwrap(), [""; 0]);
    for wrong in [2, 4] {
        assert_eq!(all.split_looks(wrong).unwrap_err().kind(), ErrorKind::Protocol, "{wrong}");
    }
}

#[test]
fn a_transaction_says_inside_that_its_session_has_ended() {
    let transaction = |changes: &[Opcode]| Shape { opcode: Opcode::Multi, parts: changes.to_vec() };
    let check = transaction(&[Opcode::Check]);
    let verdict = |results: &str, shape: &Shape| {
        let frame = reply(&format!("{results} ffffffff 01 ffffffff"));
        Reply::decode(&frame).unwrap().verdict(shape)
    };
    let failed = |code: &str| format!("ffffffff 00 {code} {code}");
    assert_eq!(verdict("0000000d 00 00000000", &check).unwrap(), Code::OK, "the node is there");
    for agreed in ["ffffff9b", "ffffff9a"] {
        assert_eq!(
            verdict(&failed(agreed), &check).unwrap(),
            Code::OK,
            "the leader has looked, and the session lives"
        );
    }
    assert_eq!(verdict(&failed("ffffff90"), &check).unwrap(), Code::SESSION_EXPIRED);
    assert_eq!(verdict(&failed("ffffff8a"), &check).unwrap(), Code::SESSION_MOVED);
    let none = verdict(&failed("00000000"), &check).unwrap_err();
    assert_eq!(none.kind(), ErrorKind::Protocol, "it did not run, and was not refused");
    let second = [failed("00000000"), failed("ffffff90"), failed("fffffffe")].concat();
    assert_eq!(
        verdict(&second, &transaction(&[Opcode::Delete; 3])).unwrap(),
        Code::SESSION_EXPIRED
    );
    let refused = Reply::decode(&bytes("00000007 0000000100000014 ffffff81")).unwrap();
    assert_eq!(refused.verdict(&check).unwrap(), Code(-127), "nothing was proposed");
    let cut = Reply::decode(&reply("ffffffff 00")).unwrap();
    assert_eq!(cut.verdict(&check).unwrap_err().kind(), ErrorKind::Protocol);
    assert_eq!(
        verdict("00000002 00 00000000", &check).unwrap_err().kind(),
        ErrorKind::Protocol,
        "another change"
    );
}

#[test]
fn messages_about_watches_are_read() {
    let frame = bytes("ffffffff ffffffffffffffff 00000000 00000002 00000003 000000022f61");
    let deleted = WatchEvent { kind: EventKind::Deleted, path: "/a".to_owned() };
    assert_eq!(Reply::decode(&frame).unwrap().event().unwrap(), deleted);
    assert_eq!(EventKind::of(99), EventKind::Other);
}

#[test]
fn a_connection_gets_a_session_or_hears_that_it_is_over() {
    let frame =
        bytes("00000000 00000fa0 1000000000000001 00000010 abababababababababababababababab 00");
    let session = SessionId { id: 0x1000_0000_0000_0001, password: [0xab; 16] };
    assert_eq!(
        Connected::decode(&frame).unwrap(),
        Connected::Session { session, timeout_ms: 4000 }
    );
    assert!(Connected::decode(&frame[..36]).is_ok(), "without the last field");
    for length in 0..36 {
        assert_eq!(
            Connected::decode(&frame[..length]).unwrap_err().kind(),
            ErrorKind::Protocol,
            "{length}"
        );
    }
    let over =
        bytes("00000000 00000000 0000000000000000 00000010 00000000000000000000000000000000 00");
    assert_eq!(Connected::decode(&over).unwrap(), Connected::Expired);
    let event = bytes("ffffffff ffffffffffffffff 00000000 00000002 00000003 000000022f61");
    let answer = bytes("00000007 0000000000000000 00000000");
    for other in
        [event, answer.clone(), [answer, stat_of("x")].concat(), [&frame[..], &[0]].concat()]
    {
        assert_eq!(Connected::decode(&other).unwrap_err().kind(), ErrorKind::Protocol, "{other:?}");
    }
}
