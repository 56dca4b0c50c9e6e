use std::collections::BTreeSet;
use std::time::Duration;

use super::masters_tests::*;
use crate::base::error::ErrorKind;
use crate::base::glob::Glob;
use crate::base::lock_name::{Kind, LockName};
use crate::base::node_status::NodeState;
use crate::report::diagnosis::{Check, Finding, Severity};
use crate::store::{
    Announced, Diagnose, Found, FoundHolder, ListingStore, LockStore, NameFilter, OwnerStore,
};

const DENIED: &str = "NOPERM this user has no permissions";

/// A store whose masters have the lock held as the letters say.
fn held(holders: &str) -> Stage {
    let stage = Stage::new(holders.len());
    for (master, holder) in stage.masters.iter().zip(holders.chars()) {
        match holder {
            '-' => {}
            's' => master.give("l", SOMEBODY),
            'n' => master.give("l", NOBODY_ELSE),
            'j' => master.give("l", OF_JAVA),
            'k' => master.give("l", OF_JAVA_ELSEWHERE),
            'd' => master.goes_down(),
            other => panic!("{other}"),
        }
    }
    stage
}

#[test]
fn a_lock_is_held_by_who_has_a_majority() {
    for (holders, holder) in [
        ("sss", Some(SOMEBODY)),
        ("ss-", Some(SOMEBODY)),
        ("s-s", Some(SOMEBODY)),
        ("nss", Some(SOMEBODY)),
        ("ssd", Some(SOMEBODY)),
        ("s--", None),
        ("---", None),
        ("sn-", None),
        ("s-d", None),
        ("ssnn", None),
        ("ssnsn", Some(SOMEBODY)),
        // It is one thread of Java, with an id of its own at each master.
        ("jk-", Some(OF_JAVA)),
        ("sjk", Some(OF_JAVA)),
    ] {
        let stage = held(holders);
        let status = stage.store.inspect(&stage.name).unwrap();
        assert_eq!(stage.store.inspect(&stage.name).unwrap(), status);
        match status {
            None => assert_eq!(holder, None, "{holders}"),
            Some(status) => {
                assert_eq!(status.holders, [(holder.unwrap().to_owned(), 1)], "{holders}");
                assert_eq!(status.ttl, Some(Duration::from_secs(5)), "{holders}");
            }
        }
    }
    for holders in ["sdd", "ddd"] {
        let stage = held(holders);
        let error = stage.store.inspect(&stage.name).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NoQuorum, "{holders}");
        assert!(error.message().contains("the connection"), "{error}");
    }
}

/// It is held as long as a majority has it.
#[test]
fn the_time_left_is_that_of_a_majority() {
    let stage = Stage::new(3);
    for (master, ttl) in stage.masters.iter().zip([9000, 3000, 5000]) {
        let nil = "$-1\r\n".to_owned();
        let status = [int(ttl), nil, bulk(SOMEBODY), bulk("2")];
        master.next("mutex_inspect", [Does::Says(list(&status))]);
    }
    let status = stage.store.inspect(&stage.name).unwrap().unwrap();
    assert_eq!(status.ttl, Some(Duration::from_secs(5)));
    assert_eq!(status.holders, [(SOMEBODY.to_owned(), 2)]);
}

#[test]
fn a_lock_is_freed_by_force_on_all_masters() {
    for (holders, freed) in [("sss", Some(true)), ("s--", Some(true)), ("---", Some(false))] {
        let stage = held(holders);
        assert_eq!(stage.store.force_unlock(&stage.name).ok(), freed, "{holders}");
        assert!(stage.masters.iter().all(|master| master.holder("l").is_none()));
    }
    let stage = held("ssd");
    assert!(stage.store.force_unlock(&stage.name).unwrap());
    let stage = held("sdd");
    assert_eq!(stage.store.force_unlock(&stage.name).unwrap_err().kind(), ErrorKind::NoQuorum);
}

/// What a master is not asked to free stays taken there.
#[test]
fn a_late_master_is_freed_by_force_as_well() {
    let stage = Stage::new(3);
    let holder = stage.holder();
    stage.masters[2].next("redlock_acquire", [Does::Waits]);
    granted(stage.lock(&holder).0);
    stage.while_time_passes(|| stage.store.force_unlock(&stage.name)).unwrap();
    assert_eq!(stage.asked("mutex_force_unlock"), [1, 1, 1]);
    // A question does not wait for it.
    stage.store.inspect(&stage.name).unwrap();
    stage.masters[2].let_run(true);
}

/// One that the user may not ask says why, if the others do not suffice.
#[test]
fn a_refusal_is_the_answer_if_there_is_no_majority() {
    let (no_quorum, denied) = (Some(ErrorKind::NoQuorum), Some(ErrorKind::Denied));
    for (refusing, down, expected) in
        [(1, 0, None), (2, 0, denied), (1, 1, no_quorum), (2, 1, denied)]
    {
        let stage = Stage::new(3);
        stage.masters[3 - down..].iter().for_each(Master::goes_down);
        for master in &stage.masters[..refusing] {
            master.next("mutex_inspect", [error(DENIED)]);
        }
        assert_eq!(stage.store.inspect(&stage.name).err().map(|e| e.kind()), expected);
    }
}

#[test]
fn only_plain_locks_can_be_on_several_masters() {
    let stage = Stage::new(3);
    let store = &stage.store;
    for kind in [
        Kind::Fair,
        Kind::Read,
        Kind::Write,
        Kind::Semaphore,
        Kind::CountingSemaphore,
        Kind::Latch,
        Kind::RateLimiter,
        Kind::Job,
    ] {
        let name = LockName::new("", "other", kind).unwrap();
        let refused = [
            store.check(&name).unwrap_err(),
            store.inspect(&name).unwrap_err(),
            store.look_at(&name).unwrap_err(),
        ];
        assert!(refused.iter().all(|e| e.kind() == ErrorKind::Unsupported), "{refused:?}");
    }
    store.check(&stage.name).unwrap();
    assert!(store.check(&LockName::new("", "a{b}{", Kind::Mutex).unwrap()).is_ok());
    assert!(store.check(&LockName::new("", "a{", Kind::Mutex).unwrap()).is_err());
    let unsupported = [
        store.multi().err(),
        store.queue().err(),
        store.counts().err(),
        store.data().err(),
        store.jobs().err(),
        store.fence().err(),
        store.rates().err(),
    ];
    assert!(unsupported.into_iter().all(|e| e.unwrap().kind() == ErrorKind::Unsupported));
    // Only the spans of a tracer say it.
    #[cfg(feature = "tracing")]
    assert_eq!(store.kind(), "redlock");
    assert_eq!(store.messages_per_release(), 3);
    assert!(!store.passes_on() && store.owners().is_some());
}

#[test]
fn the_states_of_the_masters_are_shown() {
    let stage = Stage::new(3);
    stage.masters[1].goes_down();
    granted(stage.lock(&stage.holder()).0);
    let nodes = stage.store.nodes();
    for (node, master) in nodes.iter().zip(&stage.masters) {
        assert_eq!(node.address(), master.address());
    }
    let states: Vec<_> = nodes.iter().map(|node| node.state()).collect();
    assert_eq!(states, [NodeState::Voting, NodeState::Down, NodeState::Voting]);
    assert!(nodes[0].latency().is_some_and(|latency| latency < IO_TIMEOUT));
    assert!(nodes[0].last_error().is_none() && nodes[1].last_error().is_some());
}

#[test]
fn a_client_is_not_made_over_masters_that_are_no_majority() {
    let made = |stage: &Stage| {
        let store = stage.other_client(Client::default());
        store.connect_now().map_err(|e| (e.kind(), e.message().to_owned()))
    };
    let stage = Stage::lazy(3, Client::default());
    stage.masters[0].goes_down();
    made(&stage).unwrap();
    stage.masters[1].goes_down();
    let (kind, message) = made(&stage).unwrap_err();
    assert_eq!(kind, ErrorKind::NoQuorum);
    assert!(message.contains("reached") && message.contains("no majority (2 of 3)"), "{message}");

    // One that can never be used is an error of the settings.
    let stage = Stage::lazy(3, Client::default());
    stage.masters[0].next("INFO server", [Does::Says(bulk("redis_version:5.0.0"))]);
    assert_eq!(made(&stage).unwrap_err().0, ErrorKind::Unsupported);

    // Two URLs of one server, for example by two of its names.
    let stage = Stage::lazy(3, Client::default());
    stage.masters[2].restart("run1");
    let (kind, message) = made(&stage).unwrap_err();
    assert!(kind == ErrorKind::InvalidInput && message.contains("same server"), "{message}");
}

#[test]
fn a_closed_client_asks_nothing() {
    let stage = Stage::new(3);
    stage.store.close();
    wait_until("it has no connection", || stage.masters.iter().all(|m| m.connections() == 0));
    let (acquired, _) = stage.lock(&stage.holder());
    assert_eq!(acquired.unwrap_err().kind(), ErrorKind::Closed);
    assert!(stage.masters.iter().all(|m| m.connections() == 0));
}

/// Each call that waits for a round has one connection to each master.
#[test]
fn only_so_many_rounds_run_at_once() {
    let client = Client { io_timeout: Duration::from_millis(40), rounds: 2, ..Client::default() };
    let stage = Stage::lazy(3, client);
    let store = &stage.store;
    let first = store.begin_round().unwrap();
    let query = store.begin_query().unwrap();
    // A second query would leave too few to the calls.
    let error = store.begin_query().err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    assert!(error.message().starts_with("2 other calls"), "{error}");
    let second = store.begin_round().unwrap();
    assert!(store.begin_round().is_err());
    drop(first);
    drop(store.begin_round().unwrap());
    drop(query);
    let first = store.begin_round().unwrap();
    assert!(store.begin_round().is_err());
    drop((first, second));
}

/// One that waits has its turn when another one ends, whichever that is.
#[test]
fn rounds_wait_for_each_other() {
    let stage = Stage::lazy(3, Client { rounds: 1, ..Client::default() });
    let store = &stage.store;
    for ends_first in ["round", "query"] {
        let round = store.begin_round().unwrap();
        let query = store.begin_query().unwrap();
        std::thread::scope(|scope| {
            let rounds = scope.spawn(|| store.begin_round().is_ok());
            let queries = scope.spawn(|| store.begin_query().is_ok());
            std::thread::sleep(Duration::from_millis(10));
            if ends_first == "round" {
                drop(round);
                assert!(rounds.join().unwrap());
                drop(query);
                assert!(queries.join().unwrap());
            } else {
                drop(query);
                assert!(queries.join().unwrap());
                drop(round);
                assert!(rounds.join().unwrap());
            }
        });
    }
}

/// A look at a name: its holder, and how many wait.
fn look(holder: Option<(&str, i64, i64)>, listeners: i64) -> String {
    let holders = holder.map_or(list(&[]), |(id, count, left)| {
        list(&[bulk(id), bulk(&count.to_string()), int(left)])
    });
    let waiting = list(&[bulk("c"), int(listeners)]);
    let kind = int(i64::from(holder.is_some()));
    let none = || list(&[]);
    let parts = [
        kind,
        bulk(""),
        holders,
        bulk("7"),
        int(0),
        none(),
        int(0),
        int(0),
        int(0),
        none(),
        int(0),
        if listeners < 0 { none() } else { waiting },
        "$-1\r\n".to_owned(),
    ];
    list(&parts)
}

fn wanted(pattern: &str) -> NameFilter {
    NameFilter { prefix: String::new(), pattern: Glob::parse(pattern).unwrap() }
}

/// What is found at three masters of which two have the lock, by one way to ask.
fn found_by(ask: impl Fn(&Stage) -> crate::base::error::Result<Vec<Found>>) {
    let stage = Stage::new(3);
    for (master, (count, left)) in stage.masters.iter().zip([(1, 300), (2, 900)]) {
        master.next("name_look", [Does::Says(look(Some((SOMEBODY, count, left)), -1))]);
    }
    stage.masters[2].next("name_look", [Does::Says(look(None, -1))]);
    let found = ask(&stage).unwrap();
    let [found] = &found[..] else { panic!("{found:?}") };
    assert_eq!((&*found.key, found.kind, found.masters), ("l", Some(Kind::Mutex), Some((2, 3))));
    // Tokens differ from master to master. The lease ends when it has ended everywhere.
    assert_eq!(found.token, None);
    let left = Some(Duration::from_millis(900));
    assert_eq!(
        found.holders,
        [FoundHolder { id: SOMEBODY.to_owned(), count: 2, left, data: None }]
    );

    let stage = Stage::new(3);
    stage.masters[1..].iter().for_each(Master::goes_down);
    stage.masters[0].next("name_look", [Does::Says(look(None, -1))]);
    assert_eq!(ask(&stage).unwrap_err().kind(), ErrorKind::NoQuorum);
}

#[test]
fn a_lock_is_found_with_all_of_its_masters() {
    found_by(|stage| stage.store.look_at(&stage.name));
    found_by(|stage| stage.store.list(&wanted("l")));
    found_by(|stage| {
        stage.all_do("PUBSUB CHANNELS", &Does::Says(list(&[])));
        stage.store.list_named(&wanted("*"), &BTreeSet::from(["l".to_owned()]))
    });
    // One that is only waited for.
    let channel = bulk("redisson_lock__channel:{l}");
    found_by(move |stage| {
        stage.all_do("PUBSUB CHANNELS", &Does::Says(list(std::slice::from_ref(&channel))));
        stage.store.list_named(&wanted("*"), &BTreeSet::new())
    });
}

#[test]
fn holders_of_a_lock_are_listed_once() {
    let stage = Stage::new(3);
    let ids = [OF_JAVA, OF_JAVA_ELSEWHERE, SOMEBODY];
    for (master, id) in stage.masters.iter().zip(ids) {
        master.next("name_look", [Does::Says(look(Some((id, 1, 500)), -1))]);
    }
    let found = stage.store.look_at(&stage.name).unwrap();
    let ids: Vec<_> = found[0].holders.iter().map(|holder| &*holder.id).collect();
    assert_eq!((ids, found[0].masters), (vec![OF_JAVA, SOMEBODY], Some((3, 3))));
}

fn announced(text: &str) -> Announced {
    Announced { text: text.to_owned(), left: Duration::from_millis(700) }
}

fn no_text() -> Does {
    Does::Says(list(&[int(-2), "$-1\r\n".to_owned()]))
}

fn text(text: &str) -> Does {
    Does::Says(list(&[int(700), bulk(text)]))
}

#[test]
fn an_owner_is_written_to_every_master_and_read_from_any() {
    let stage = Stage::new(3);
    stage.masters[0].goes_down();
    stage.all_do("client_enter", &Does::Says(int(1)));
    stage.store.announce("c", "me", LEASE).unwrap();
    assert_eq!(stage.asked("SET"), [0, 1, 1]);
    let written = &stage.masters[1].asked("SET")[0].words;
    assert_eq!(written[1..], ["me".to_owned(), "PX".to_owned(), LEASE.as_millis().to_string()]);
    stage.masters[1].next("client_look", [no_text()]);
    stage.masters[2].next("client_look", [text("me")]);
    assert_eq!(stage.store.announced("c").unwrap(), Some(announced("me")));
    stage.store.withdraw("c").unwrap();
    assert_eq!((stage.asked("DEL"), stage.asked("ZREM")), (vec![0, 1, 1], vec![0, 1, 1]));
    for master in &stage.masters[1..] {
        master.next("client_look", [no_text()]);
    }
    // One of them may have it.
    assert!(stage.store.announced("c").is_err());
}

#[test]
fn an_owner_that_no_master_takes_is_an_error() {
    let stage = Stage::new(3);
    stage.all_do("SET", &error(DENIED));
    stage.all_do("client_enter", &Does::Says(int(1)));
    assert_eq!(stage.store.announce("c", "me", LEASE).unwrap_err().kind(), ErrorKind::Denied);
    stage.all_do("DEL", &error(DENIED));
    assert_eq!(stage.store.withdraw("c").unwrap_err().kind(), ErrorKind::Denied);
    for master in &stage.masters {
        master.next("client_look", [no_text()]);
    }
    assert_eq!(stage.store.announced("c").unwrap(), None, "all say that there is none");
}

#[test]
fn the_owners_of_all_clients_are_those_of_any_master() {
    let stage = Stage::new(3);
    stage.masters[0].goes_down();
    stage.masters[1].next("ZRANGE", [Does::Says(list(&[bulk("a"), bulk("b")]))]);
    stage.masters[1].next("client_look", [text("A"), text("B")]);
    stage.masters[2].next("ZRANGE", [Does::Says(list(&[bulk("b"), bulk("c")]))]);
    stage.masters[2].next("client_look", [text("B"), text("C")]);
    let all = stage.store.announced_by_all().unwrap();
    let expected = ["a", "b", "c"].map(|key| (key.to_owned(), announced(&key.to_uppercase())));
    assert_eq!(all, expected);

    let stage = Stage::new(3);
    stage.all_do("ZRANGE", &Does::Says(list(&[])));
    assert_eq!(stage.store.announced_by_all().unwrap(), []);
    stage.masters[1..].iter().for_each(Master::goes_down);
    stage.all_do("ZRANGE", &Does::Says(list(&[])));
    assert_eq!(stage.store.announced_by_all().unwrap_err().kind(), ErrorKind::NoQuorum);
}

/// The findings about all masters together.
fn diagnosed(stage: &Stage) -> Vec<Finding> {
    stage.store.diagnose(&Diagnose { lease: LEASE, key_prefix: "" })
}

#[test]
fn a_diagnosis_says_how_many_masters_can_be_used() {
    let about = |down: usize, all: usize| {
        let stage = Stage::new(all);
        stage.masters[..down].iter().for_each(Master::goes_down);
        let found: Vec<_> = diagnosed(&stage)
            .into_iter()
            .filter(|finding| finding.check() == Check::Quorum)
            .map(|finding| (finding.severity(), finding.found().to_owned()))
            .collect();
        found
    };
    for (down, all, severity, says) in [
        (1, 3, Severity::Warning, "2 of 3 masters can be used, and a lock needs 2: no other may"),
        (1, 5, Severity::Warning, "4 of 5 masters can be used, and a lock needs 3: 1 more may"),
        (2, 3, Severity::Problem, "1 of 3 masters can be used, and a lock needs 2: nothing can"),
        (0, 3, Severity::Ok, "3 of 3 masters can be used, and a lock needs 2"),
    ] {
        let found = about(down, all);
        assert!(
            found[0].0 == severity && found[0].1.starts_with(says),
            "{down} of {all}: {found:?}"
        );
    }
}

#[test]
fn a_diagnosis_says_how_many_masters_vote_and_what_to_do_about_the_others() {
    for (new, down, severity, says, advice) in [
        (0, 0, Severity::Ok, "3 of 3 masters vote", None),
        (1, 0, Severity::Warning, "2 of 3 masters vote", Some("wait for 1")),
        (2, 0, Severity::Problem, "1 of 3 masters vote: nothing can be locked", Some("wait for ")),
        (0, 1, Severity::Warning, "2 of 3 masters vote", Some("bring the others back")),
        (0, 2, Severity::Problem, "1 of 3 masters vote: nothing", Some("bring the others back")),
    ] {
        let stage = Stage::lazy(3, Client { fresh: false, ..Client::default() });
        stage.masters[..new].iter().for_each(|master| master.set_votes(false));
        stage.store.connect_now().unwrap();
        stage.masters[..down].iter().for_each(Master::goes_down);
        if down > 0 {
            let _ = stage.store.inspect(&stage.name);
        }
        let found = diagnosed(&stage);
        let about_votes = |finding: &&Finding| finding.found().contains("masters vote");
        let found = found.iter().find(about_votes).unwrap();
        assert!(found.severity() == severity && found.found().starts_with(says), "{found:?}");
        let given = found.advice().map(ToString::to_string).unwrap_or_default();
        match advice {
            Some(advice) => assert!(given.starts_with(advice), "{given}"),
            None => assert_eq!(given, ""),
        }
    }
}

/// The address of a server whose certificate nobody has signed.
#[cfg(feature = "tls")]
fn uncertified() -> String {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    let config = std::sync::Arc::new(config);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        // Two connects at most for each client.
        for mut socket in listener.incoming().take(8).flatten() {
            let mut server = rustls::ServerConnection::new(config.clone()).unwrap();
            let _ = server.complete_io(&mut socket);
        }
    });
    format!("rediss://localhost:{port}")
}

#[cfg(feature = "tls")]
#[test]
fn one_expired_certificate_is_no_worse_than_one_master_that_is_down() {
    let stage = Stage::lazy(2, Client::default());
    let mut urls: Vec<String> = stage.masters.iter().map(Master::url).collect();
    urls.push(uncertified());
    let connect = |urls: &[String]| store_of(urls, &stage.clock, Client::default()).connect_now();
    connect(&urls).unwrap();
    urls[0] = uncertified();
    assert_eq!(connect(&urls).unwrap_err().kind(), ErrorKind::Tls);
}
