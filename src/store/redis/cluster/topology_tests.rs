use super::*;
use crate::base::fuzz_tests::fuzz;
use crate::store::redis::wire::fuzz_tests::{any, read, sent};

fn text(text: &str) -> Reply {
    Reply::Bytes(text.as_bytes().to_vec())
}

fn at(host: Reply, port: i64) -> Reply {
    Reply::Array(vec![
        host,
        Reply::Int(port),
        text("id"),
        Reply::Array(vec![text("hostname"), text("h")]),
    ])
}

#[test]
fn a_range_has_a_primary_and_replicas() {
    let range = |primary, replicas: Vec<Reply>| {
        Reply::Array([vec![Reply::Int(0), Reply::Int(5460), primary], replicas].concat())
    };
    let address = |host: &str, port| NodeAddress { host: host.to_owned(), port };
    let reply = Reply::Array(vec![
        range(at(text("10.0.0.1"), 7000), vec![at(text("::1"), 7003)]),
        range(at(Reply::Nil, 7001), vec![at(text("?"), 7004), Reply::Nil]),
    ]);
    let ranges = slot_ranges(&reply, "asked").unwrap();
    assert_eq!((ranges[0].first, ranges[0].last), (0, 5460));
    assert_eq!(
        (&ranges[0].primary, &ranges[0].replicas[..]),
        (&address("10.0.0.1", 7000), &[address("::1", 7003)][..])
    );
    assert_eq!(
        (&ranges[1].primary, &ranges[1].replicas[..]),
        (&address("asked", 7001), &[address("asked", 7004)][..])
    );
    for bad in [
        Reply::Nil,
        Reply::Array(vec![Reply::Int(1)]),
        Reply::Array(vec![range(Reply::Nil, Vec::new())]),
    ] {
        assert_eq!(slot_ranges(&bad, "asked").unwrap_err().kind(), ErrorKind::Protocol);
    }
}

#[test]
fn a_redirect_may_lack_the_host() {
    let parse =
        |text| NodeAddress::parse(text, "asked").map(|address| (address.host, address.port));
    assert_eq!(parse("10.0.0.1:7000"), Some(("10.0.0.1".to_owned(), 7000)));
    assert_eq!(parse("::1:7000"), Some(("::1".to_owned(), 7000)));
    assert_eq!(parse(":7000"), Some(("asked".to_owned(), 7000)));
    assert_eq!(parse("nowhere"), None);
    assert_eq!(parse("host:99999"), None);
}

#[test]
fn fuzzed_answers_are_maps_or_errors() {
    fuzz(
        |dice| {
            let host = Reply::Bytes(dice.text().into_bytes());
            let nodes = [at(host, dice.number()), at(text("h"), 7000)];
            let range =
                [vec![Reply::Int(dice.number()), Reply::Int(dice.number())], nodes.to_vec()]
                    .concat();
            sent(&Reply::Array(vec![Reply::Array(range), any(dice, 2)]))
        },
        |bytes, _| {
            for reply in read(bytes) {
                if let Err(error) = slot_ranges(&reply, "asked") {
                    assert_eq!(error.kind(), ErrorKind::Protocol);
                }
            }
            let _ = NodeAddress::parse(&String::from_utf8_lossy(bytes), "asked");
        },
    );
}
