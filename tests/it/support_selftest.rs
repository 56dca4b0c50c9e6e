//! The tools of the tests, tested: a fault that does not happen where it should would prove nothing.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use redis::{Connection, RedisResult};

use crate::support::*;

fn open(url: &str) -> Connection {
    let client = redis::Client::open(url).unwrap();
    let connection = client.get_connection_with_timeout(CAP).unwrap();
    connection.set_read_timeout(Some(CAP)).unwrap();
    connection
}

fn set(connection: &mut Connection, key: &str) -> RedisResult<String> {
    redis::cmd("SET").arg(key).arg("1").query(connection)
}

fn raw(proxy: &Proxy) -> UnixStream {
    let url = proxy.url();
    let stream = UnixStream::connect(url.strip_prefix("redis+unix://").unwrap()).unwrap();
    stream.set_read_timeout(Some(CAP)).unwrap();
    stream
}

/// What arrives until a plain end of file; a reset would panic.
fn rest(mut stream: &UnixStream) -> String {
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

fn expect(mut stream: &UnixStream, text: &str) {
    let mut got = vec![0; text.len()];
    stream.read_exact(&mut got).unwrap();
    assert_eq!(String::from_utf8(got).unwrap(), text);
}

/// What this panics with.
fn panics(work: impl FnOnce()) -> String {
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).expect_err("this should panic");
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap()
}

fn is_silent(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut)
}

#[test]
fn every_server_starts_crashes_and_returns() {
    let kinds = [Some(Server::options()), Server::oldest(), Server::valkey()];
    for options in kinds.into_iter().flatten() {
        for (tcp, persistent) in [(false, false), (false, true), (true, false), (true, true)] {
            let options = if tcp { options.clone().tcp() } else { options.clone() };
            let server = if persistent { options.persistent() } else { options }.start();
            let (url, pid) = (server.url(), server.pid());
            server.cmd(&["SET", "a", "1"]);
            server.kill();
            assert!(redis::Client::open(&*url).unwrap().get_connection().is_err());
            server.restart();
            assert_eq!(server.url(), url);
            assert_ne!(server.pid(), pid);
            assert_eq!(server.get("a").is_some(), persistent, "{:?}", server.binary());
            server.cmd(&["SET", "b", "1"]);
            server.shutdown_save();
            server.restart();
            assert_eq!(server.get("b").as_deref(), Some("1"));
            server.cmd(&["FLUSHALL"]);
            server.assert_clean();
        }
    }
}

#[test]
fn inspection() {
    let server = Server::start_with(&["--databases", "3"]);
    server.cmd(&["HSET", "h", "f", "v"]);
    server.cmd(&["SET", "redisson_lock_token:{a}", "7", "PX", "60000"]);
    assert_eq!(server.keys().into_iter().collect::<Vec<_>>(), ["h", "redisson_lock_token:{a}"]);
    assert_eq!(server.hash("h")["f"], "v");
    assert!(server.hash("none").is_empty());
    assert!((1..=60_000).contains(&server.pttl("redisson_lock_token:{a}")));
    assert_eq!((server.pttl("h"), server.pttl("none"), server.get("none")), (-1, -2, None));
    server.cmd(&["DEL", "h"]);
    server.assert_clean();

    let mut connection = server.connect();
    let _: () = redis::cmd("SUBSCRIBE").arg("c").query(&mut connection).unwrap();
    assert_eq!(server.client_count(), 1);
    assert_eq!(server.pubsub_channels(), ["c"]);
    drop(connection);
    server.assert_clean();

    server.reset_stats();
    assert_eq!(server.total_commands(), 0);
    server.query::<i64>(&["EVAL", "redis.call('SET', KEYS[1], 1) return 1", "1", "x"]);
    let stats = server.commandstats();
    assert_eq!((stats["eval"], stats["set"], server.total_commands()), (1, 1, 2));
    assert!(panics(|| server.assert_clean()).contains("key \"x\""));
}

#[test]
fn a_password() {
    for options in [Server::options(), Server::options().tcp()] {
        let server = options.password("secret7").start();
        let (monitor, proxy) = (server.monitor(), Proxy::start(&server));
        set(&mut open(&proxy.url()), "a").unwrap();
        assert_eq!(monitor.count(|line| line.name() == "SET"), 1);
        server.restart();
        server.reset_stats();
        assert_eq!(server.total_commands(), 0);
    }
}

#[test]
fn a_stopped_server_is_silent_and_comes_back() {
    let server = Server::start();
    let mut connection = server.connect();
    connection.set_read_timeout(Some(ms(100))).unwrap();
    server.stop_process();
    assert!(set(&mut connection, "a").unwrap_err().is_timeout());
    server.continue_process();
    assert!(server.connect().set_read_timeout(None).is_ok());
    wait_until("the request of the frozen time has run", CAP, || server.get("a").is_some());
    server.stop_process();
    // Dropping a stopped server must not hang.
}

#[test]
fn monitor_sees_clients_and_scripts() {
    for server in [Server::start(), Server::start_tcp()] {
        let monitor = server.monitor();
        server.cmd(&["SET", "a \"b\\\r\n\u{e9}", ""]);
        server.cmd(&["EVAL", "return redis.call('get', KEYS[1])", "1", "k"]);
        let lines = monitor.lines();
        let names: Vec<_> = lines.iter().map(|line| (line.name(), line.is_lua())).collect();
        assert_eq!(names, [("SET".to_owned(), false), ("EVAL".to_owned(), false), ("GET".to_owned(), true)]);
        assert_eq!(lines[0].words[1], "a \"b\\\r\n\u{e9}".as_bytes());
        assert_eq!(lines[0].word(2), "");
        assert!(lines[0].at_us <= lines[2].at_us && lines[0].at_us > 1_600_000_000_000_000);
        server.cmd(&["PING"]);
        monitor.wait_for("there is a ping", |line| line.name() == "PING");
        assert_eq!(monitor.lines().len(), 4);
        drop(monitor);
        server.cmd(&["FLUSHALL"]);
        server.assert_clean();
    }
}

#[test]
fn cuts_hit_exactly_one_exchange() {
    for server in [Server::start(), Server::start_tcp()] {
        let proxy = Proxy::start(&server);
        for (action, applied) in [
            (Action::CutBeforeSend, false),
            (Action::CutAfterApplied, true),
            (Action::CutRequestAt(20), false),
            (Action::CutReplyAt(2), true),
        ] {
            server.cmd(&["FLUSHALL"]);
            let rule = proxy.inject(Fault::new(word_containing("key"), action.clone()).skip(1).times(2));
            for (key, expected) in [("key1", true), ("key2", applied), ("key3", applied), ("key4", true)] {
                let mut connection = open(&proxy.url());
                let fails = matches!(key, "key2" | "key3");
                let outcome = set(&mut connection, key);
                assert_eq!(outcome.is_err(), fails, "{action:?} {key}: {outcome:?}");
                if let Err(error) = outcome {
                    assert!(error.is_connection_dropped(), "{action:?}: {error:?}");
                }
                drop(connection);
                // What the server has of it, it has read before it lets go of the connection.
                wait_until("the server has no connection", CAP, || server.client_count() == 0);
                assert_eq!(server.get(key).is_some(), expected, "{action:?} {key}");
            }
            assert_eq!((rule.hits(), rule.seen()), (2, 4), "{action:?}");
            rule.cancel();
        }
        server.cmd(&["FLUSHALL"]);
        server.assert_clean();
        assert_eq!(proxy.connections(), 0);
    }
}

#[test]
fn pieces_and_pipelines_are_framed() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let mut stream = raw(&proxy);
    for byte in b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$4\r\n1\r\n2\r\n" {
        stream.write_all(&[*byte]).unwrap();
    }
    expect(&stream, "+OK\r\n");
    let cut = proxy.inject_once(any_word("c"), Action::CutReplyAt(3));
    stream.write_all(b"GET a\r\nLRANGE l 0 -1\r\nGET c\r\nSET d 1\r\n").unwrap();
    assert_eq!(rest(&stream), "$4\r\n1\r\n2\r\n*0\r\n$-1");
    assert_eq!((cut.hits(), server.get("d")), (1, None));

    // The replies before a cut arrive whole, and what is behind it is not run.
    let cut = proxy.inject_once(command("incr"), Action::CutBeforeSend);
    let mut stream = raw(&proxy);
    stream.write_all(b"SET e 1\r\nGET e\r\nINCR e\r\nINCR e\r\n").unwrap();
    assert_eq!(rest(&stream), "+OK\r\n$1\r\n1\r\n");
    assert_eq!((cut.hits(), server.get("e").as_deref()), (1, Some("1")));

    // A client that has said its last word still gets the answers.
    let mut stream = raw(&proxy);
    stream.write_all(b"INCR e\r\nPI").unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(rest(&stream), ":2\r\n");
}

#[test]
fn replies_stall_vanish_or_turn_to_garbage() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let mut connection = open(&proxy.url());
    let stall = proxy.inject_once(command("set"), Action::StallReply(ms(120)));
    let start = Instant::now();
    set(&mut connection, "a").unwrap();
    assert!(start.elapsed() >= ms(120) && stall.hits() == 1);

    let mut stream = raw(&proxy);
    proxy.inject_once(command("GET"), Action::GarbageReply(b"?what\r\n".to_vec()));
    stream.write_all(b"GET a\r\nGET a\r\n").unwrap();
    expect(&stream, "?what\r\n$1\r\n1\r\n");

    let hole = proxy.inject_once(command("GET"), Action::BlackHoleReply);
    stream.write_all(b"PING\r\nGET a\r\nPING\r\n").unwrap();
    expect(&stream, "+PONG\r\n");
    proxy.wait_hits(&hole, 1);
    stream.set_read_timeout(Some(ms(50))).unwrap();
    assert!(is_silent(&stream.read(&mut [0]).unwrap_err()));
    // Not even the end of the server shows.
    server.kill();
    assert!(is_silent(&stream.read(&mut [0]).unwrap_err()));
    assert!(set(&mut connection, "a").is_err());
    server.restart();
    drop((stream, connection));
    server.assert_clean();
    wait_until("all connections have ended", CAP, || proxy.connections() == 0);
}

#[test]
fn a_held_request_arrives_late() {
    for server in [Server::start(), Server::start_tcp()] {
        let proxy = Proxy::start(&server);
        let hold = proxy.inject(Fault::new(command("SET"), Action::HoldRequest).times(3));
        let mut patient = open(&proxy.url());
        std::thread::scope(|s| {
            let reply = s.spawn(|| set(&mut patient, "patient"));
            let mut hasty = open(&proxy.url());
            hasty.set_read_timeout(Some(ms(50))).unwrap();
            assert!(set(&mut hasty, "hasty").unwrap_err().is_timeout());
            drop(hasty);
            proxy.wait_hits(&hold, 2);
            assert_eq!(server.keys().len(), 0);
            proxy.release_held();
            reply.join().unwrap().unwrap();
        });
        wait_until("both are applied", CAP, || server.keys().len() == 2);

        // Even when the connection is cut meanwhile.
        std::thread::scope(|s| {
            let reply = s.spawn(|| set(&mut patient, "cut"));
            proxy.wait_hits(&hold, 3);
            proxy.kill_all();
            assert!(reply.join().unwrap().unwrap_err().is_connection_dropped());
        });
        assert_eq!(server.get("cut"), None);
        proxy.release_held();
        wait_until("the request of the cut connection is applied", CAP, || server.get("cut").is_some());
        server.cmd(&["FLUSHALL"]);
        server.assert_clean();
    }
}

#[test]
fn switches_for_all_connections() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let mut connection = open(&proxy.url());
    set(&mut connection, "a").unwrap();
    proxy.kill_all();
    assert!(set(&mut connection, "b").unwrap_err().is_connection_dropped());

    proxy.refuse(true);
    assert_eq!(rest(&raw(&proxy)), "");
    proxy.refuse(false);

    let mut old = raw(&proxy);
    old.write_all(b"PING\r\n").unwrap();
    expect(&old, "+PONG\r\n");
    proxy.black_hole(true);
    let mut new = raw(&proxy);
    for stream in [&mut old, &mut new] {
        stream.set_read_timeout(Some(ms(30))).unwrap();
        stream.write_all(b"SET swallowed 1\r\n").unwrap();
        assert!(is_silent(&stream.read(&mut [0]).unwrap_err()));
    }
    proxy.black_hole(false);
    let mut fresh = raw(&proxy);
    fresh.write_all(b"EXISTS swallowed\r\n").unwrap();
    expect(&fresh, ":0\r\n");

    proxy.pause(true);
    fresh.write_all(b"INCR n\r\n").unwrap();
    fresh.set_read_timeout(Some(ms(50))).unwrap();
    assert!(is_silent(&fresh.read(&mut [0]).unwrap_err()));
    assert_eq!(server.get("n"), None);
    proxy.pause(false);
    fresh.set_read_timeout(Some(CAP)).unwrap();
    expect(&fresh, ":1\r\n");
    drop((old, new, fresh));
    server.cmd(&["FLUSHALL"]);
    server.assert_clean();
}

#[test]
fn subscriptions_pass_and_may_lose_messages() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let mut connection = open(&proxy.url());
    let mut pubsub = connection.as_pubsub();
    pubsub.subscribe(&["a", "b"]).unwrap();
    server.cmd(&["PUBLISH", "a", "1"]);
    assert_eq!(pubsub.get_message().unwrap().get_payload::<String>().unwrap(), "1");
    proxy.drop_messages(true);
    server.cmd(&["PUBLISH", "a", "2"]);
    // The confirmation stands behind the message, which has therefore been dropped.
    pubsub.subscribe("c").unwrap();
    proxy.drop_messages(false);
    server.cmd(&["PUBLISH", "c", "3"]);
    assert_eq!(pubsub.get_message().unwrap().get_payload::<String>().unwrap(), "3");
    let cut = proxy.inject_once(any_word("d"), Action::CutAfterApplied);
    assert!(pubsub.subscribe("d").is_err());
    assert_eq!(cut.hits(), 1);
    drop(pubsub);
    drop(connection);
    server.assert_clean();
}

#[test]
fn scripts_are_matched() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let mut connection = open(&proxy.url());
    let (first, second) = (
        proxy.inject_once(evalsha_containing("token-x"), Action::StallReply(ms(1))),
        proxy.inject_once(script_containing("token-y"), Action::StallReply(ms(1))),
    );
    let script = redis::Script::new("return ARGV[1]");
    for token in ["a-token-x", "a-token-y"] {
        assert_eq!(script.arg(token).invoke::<String>(&mut connection).unwrap(), token);
    }
    assert_eq!((first.hits(), second.hits()), (1, 1));
}

#[test]
fn a_panicking_matcher_is_loud() {
    let server = Server::start();
    let text = panics(|| {
        let proxy = Proxy::start(&server);
        proxy.inject_once(|words| words[99].is_empty(), Action::CutBeforeSend);
        let mut stream = raw(&proxy);
        stream.write_all(b"PING\r\n").unwrap();
        assert_eq!(rest(&stream), "");
    });
    assert!(text.contains("matcher"), "{text}");
    server.assert_clean();
}

#[test]
fn a_proxy_ends_whatever_it_is_doing() {
    let server = Server::start();
    for action in [Action::HoldRequest, Action::StallReply(Duration::from_secs(60)), Action::BlackHoleReply] {
        let proxy = Proxy::start(&server);
        let rule = proxy.inject_once(any_request(), action);
        let mut stream = raw(&proxy);
        stream.write_all(b"SET a 1\r\n").unwrap();
        proxy.wait_hits(&rule, 1);
        drop(proxy);
        assert_eq!(rest(&stream), "");
    }
    let proxy = Proxy::start(&server);
    let mut connection = open(&proxy.url());
    proxy.pause(true);
    server.stop_process();
    connection.set_read_timeout(Some(ms(20))).unwrap();
    assert!(set(&mut connection, "b").is_err());
    drop(proxy);
    server.continue_process();
    server.cmd(&["FLUSHALL"]);
    drop(connection);
    server.assert_clean();
}

#[test]
fn a_child_talks_freezes_and_dies() {
    let mut child = Child::spawn("support_selftest::talking_program", &[("LEASEHOLD_TEST_WORD", "wine")]);
    assert_eq!(child.expect_line("@@held "), "wine");
    child.say("one");
    assert_eq!(child.expect_line("heard"), "one");
    child.sigstop();
    child.say("two");
    child.sigcont();
    assert_eq!(child.expect_line("heard"), "two");
    child.wait_success();

    let mut child = Child::spawn("support_selftest::talking_program", &[("LEASEHOLD_TEST_WORD", "beer")]);
    child.expect_line("held");
    child.sigkill();
    assert!(!child.wait().success());
    let report = panics(|| drop(child.expect_line("never")));
    assert!(report.contains("ended without @@never") && report.contains("@@held beer"), "{report}");

    let mut child = Child::spawn("support_selftest::misspelt", &[]);
    assert!(panics(|| child.wait_success()).contains("ran no test"));
}

#[test]
#[ignore = "a program for other tests"]
fn talking_program() {
    process::tell(&format!("held {}", std::env::var("LEASEHOLD_TEST_WORD").unwrap()));
    while let Some(line) = process::hear() {
        process::tell(&format!("heard {line}"));
    }
}

#[test]
fn threads_and_logs_are_found() {
    let leak = Leak::start("selftest-leak-and-more");
    let (sender, receiver) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::Builder::new().name("selftest-leak-and-so-on".to_owned());
    let thread = thread.spawn(move || receiver.recv()).unwrap();
    wait_until("the thread has its name", CAP, || threads_named("selftest-leak") == 1);
    assert_eq!(leak.left().len(), 1);
    drop(sender);
    let _ = thread.join();
    leak.check();

    let mark = logs::mark();
    let word = unique_name("word");
    log::warn!("a {word}");
    let found = logs::logged_since(mark);
    assert!(found.iter().any(|record| record.message == format!("a {word}") && record.level == log::Level::Warn));
}
