//! `leasehold watch`: the order of its events, the summary, and the picture.

use std::path::Path;

use leasehold::LockClient;
use serde_json::Value;

use crate::json::checked;
use crate::program::{Program, leasehold, leasehold_at, run};
use crate::rig::{Proxy, Server, wait_until};
use crate::support::Clients;

fn watch(url: &str, more: &[&str]) -> Program {
    Program::start(leasehold_at(url, &[&["watch", "job", "--interval", "20ms"], more].concat()))
}

fn client(server: &Server, owner: &str) -> LockClient {
    server.builder().owner(owner).build().unwrap()
}

fn next(program: &Program) -> Value {
    checked("watch", &program.expect(""))
}

/// The next event, which must be one of these; events that identify a holder may come at any time.
#[track_caller]
fn expect(program: &Program, events: &[&str]) -> Value {
    let event =
        std::iter::from_fn(|| Some(next(program))).find(|event| event["event"] != "named").unwrap();
    assert!(events.iter().any(|name| event["event"] == *name), "{event}, not one of {events:?}");
    event
}

#[test]
fn events_come_in_their_order() {
    let server = Server::start();
    let program = watch(&server.url(), &["--json"]);
    expect(&program, &["free"]);
    let (first, second) = (client(&server, "billing-1"), client(&server, "billing-2"));
    let lock = first.fair("job");
    let guard = lock.lock_owned().unwrap();
    let token = guard.fencing_token().unwrap().get();
    let taken = expect(&program, &["taken"]);
    assert_eq!((&taken["token"], &taken["holders"]), (&token.into(), &1.into()));
    let waiter = std::thread::spawn(move || {
        let guard = second.fair("job").lock_owned().unwrap();
        (guard, second)
    });
    assert_eq!(expect(&program, &["waiting"])["waiting"], 1);
    guard.unlock().unwrap();
    // A check may fall between the two.
    let handed = expect(&program, &["handed_over", "free"]);
    assert_eq!(handed["from"]["id"], taken["holder"]["id"]);
    assert!(handed["held_for_ms"].is_u64());
    if handed["event"] == "free" {
        expect(&program, &["taken", "waiting"]);
    }
    let (guard, second) = waiter.join().unwrap();
    let reads_end = |program: &Program| {
        guard.unlock().unwrap();
        std::iter::from_fn(|| Some(next(program)))
            .find(|event| event["event"] == "free" && event["holders"] == 0)
    };
    assert!(reads_end(&program).is_some());
    program.signal("TERM");
    let end = program.end();
    assert_eq!((end.status, &end.err[..]), (Some(0), &[][..]));
    let summary = checked("watch", end.out.last().unwrap());
    assert_eq!(summary["event"], "summary");
    let holders = summary["holders"].as_array().unwrap();
    assert_eq!(holders.len(), 2, "{summary}");
    assert!(
        holders.iter().all(
            |one| one["times"] == 1 && one["held_ms"].as_u64() < summary["watched_ms"].as_u64()
        )
    );
    drop((first, second));
}

#[test]
fn readers_come_and_go() {
    let server = Server::start();
    let (one, other) = (client(&server, "reader-1"), client(&server, "reader-2"));
    let first = one.rw_lock("job").read_owned().unwrap();
    let program = watch(&server.url(), &["--json"]);
    assert_eq!(expect(&program, &["held"])["holders"], 1);
    let second = other.rw_lock("job").read_owned().unwrap();
    assert_eq!(expect(&program, &["taken"])["holders"], 2);
    first.unlock().unwrap();
    assert_eq!(expect(&program, &["left"])["holders"], 1);
    second.unlock().unwrap();
    assert_eq!(expect(&program, &["free"])["holders"], 0);
    program.signal("INT");
    assert_eq!(program.ends_with(0), "");
}

fn temporary_files(dir: &Path) -> usize {
    let names = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name());
    names.filter(|name| name.to_string_lossy().contains("watch.svg.")).count()
}

#[test]
fn the_summary_and_the_picture_name_each_holder() {
    const SECRET: &str = "s3cr3t-of-the-picture";
    let server = Server::start_with(&["--requirepass", SECRET]);
    let url = format!("{}?pass={SECRET}", server.url());
    let file = server.dir().join("watch.svg");
    let program = watch(&url, &["--svg", file.to_str().unwrap()]);
    program.expect("");
    let with_password = LockClient::builder().url(&url).owner("<b> & \"x\"").build().unwrap();
    let guard = with_password.mutex("job").lock_owned().unwrap();
    let mutex = with_password.mutex("job");
    wait_until("it has published its identity", || {
        mutex.holder().unwrap().is_some_and(|holder| holder.owner().is_some())
    });
    let mut said = program.expect("");
    while !said.contains("<b> & \"x\" (pid ") {
        said = program.expect("");
    }
    guard.unlock().unwrap();
    while !program.expect("").contains("free after ") {}
    program.signal("TERM");
    let end = program.end();
    assert_eq!((end.status, &end.err[..]), (Some(0), &[][..]));
    let line = end.out.iter().find(|line| line.contains("<b> & \"x\" (pid ")).unwrap();
    assert!(line.contains(" %  ") && line.ends_with("  once"), "{line}");
    let svg = std::fs::read_to_string(&file).unwrap();
    assert_well_formed(&svg);
    assert!(svg.contains("&lt;b&gt; &amp; &quot;x&quot; (pid "), "{svg}");
    assert!(svg.contains(&format!("redis+unix://{}", server.socket().display())), "{svg}");
    assert!(!svg.contains(SECRET) && !end.out.concat().contains(SECRET));
    assert_eq!(temporary_files(server.dir()), 0);
}

#[test]
fn a_server_that_goes_away_and_comes_back() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let client = client(&server, "billing-7");
    let guard = client.mutex("job").lock_owned().unwrap();
    let file = server.dir().join("watch.svg");
    let program = watch(&proxy.url(), &["--json", "--svg", file.to_str().unwrap()]);
    let held = expect(&program, &["held"]);
    proxy.refuse(true);
    proxy.cut_all();
    assert!(expect(&program, &["cut_off"])["error"].is_string());
    std::thread::sleep(crate::rig::ms(300));
    proxy.refuse(false);
    let back = expect(&program, &["back"]);
    assert!(back["unknown_ms"].as_u64().unwrap() >= 250, "{back}");
    assert_eq!(expect(&program, &["held"])["holder"]["id"], held["holder"]["id"]);
    program.signal("TERM");
    let end = program.end();
    let summary = checked("watch", end.out.last().unwrap());
    assert!(
        summary["unknown_ms"].as_u64() >= back["unknown_ms"].as_u64() && summary["free_ms"] == 0,
        "{summary}"
    );
    let svg = std::fs::read_to_string(&file).unwrap();
    assert_well_formed(&svg);
    assert!(
        svg.contains("fill=\"url(#gap)\"") && svg.contains("the store could not be queried for ")
    );
    drop(guard);
}

/// The picture is written even if stdout cannot be.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_below_stdout_costs_no_picture() {
    let server = Server::start();
    let file = server.dir().join("watch.svg");
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut command =
        leasehold(&server, &["watch", "job", "--for", "10s", "--svg", file.to_str().unwrap()]);
    let status = command.stdout(full).stderr(std::process::Stdio::null()).status().unwrap();
    assert_eq!(status.code(), Some(69));
    assert_well_formed(&std::fs::read_to_string(&file).unwrap());
    assert_eq!(temporary_files(server.dir()), 0);
}

/// A server that accepts a connection and sends nothing.
#[test]
fn a_signal_while_it_connects_leaves_no_file() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let dir = Server::start();
    let file = dir.dir().join("watch.svg");
    let url = format!("redis://{}", silent.local_addr().unwrap());
    let mut program = watch(&url, &["--svg", file.to_str().unwrap()]);
    let _connection = silent.accept().unwrap();
    program.signal("TERM");
    wait_until("it has ended", || program.has_ended());
    assert_eq!((file.exists(), temporary_files(dir.dir())), (false, 0));
}

#[test]
fn it_ends_after_its_time() {
    let server = Server::start();
    let (status, out, said) = run(leasehold(&server, &["watch", "job", "--for", "300ms"]));
    assert_eq!((status, &*said), (Some(0), ""));
    assert!(out.contains("  free\n\nwatched for ") && out.contains("100.0 %"), "{out}");
}

#[test]
fn what_cannot_be_watched() {
    let server = Server::start();
    let not_there = server.dir().join("none/watch.svg");
    server.cmd::<()>(&["SADD", "set", "x"]);
    for (arguments, status) in [
        (&["watch"][..], 64),
        (&["watch", "job", "--interval", "9ms"], 64),
        (&["watch", "job", "--svg", not_there.to_str().unwrap()], 64),
        (&["watch", "job", "--svg", server.dir().to_str().unwrap()], 64),
        (&["watch", ""], 64),
        (&["watch", "set"], 76),
    ] {
        assert_eq!(run(leasehold(&server, arguments)).0, Some(status), "{arguments:?}");
    }
    let svg = server.dir().join("watch.svg");
    let nowhere = ["watch", "job", "--svg", svg.to_str().unwrap()];
    assert_eq!(run(leasehold_at("redis+unix:///nowhere.sock", &nowhere)).0, Some(69));
    assert_eq!((svg.exists(), temporary_files(server.dir())), (false, 0), "nothing is left of it");
}

#[cfg(target_os = "linux")]
#[test]
fn a_terminal_gets_bars_as_wide_as_it_is() {
    let server = Server::start();
    let client = client(&server, "東京-7");
    let guard = client.mutex("job").lock_owned().unwrap();
    let line = "stty rows 24 cols 70; $LEASEHOLD watch job --for 1500ms; echo done.";
    let mut session = crate::terminal::Session::start_at(&server.url(), "sh -c", line);
    let whole = || session.so_far().contains("done.");
    wait_until("it has ended", whole);
    let shown = session.so_far().to_owned();
    let bar = shown.lines().find(|line| line.contains('│')).unwrap_or_else(|| panic!("{shown}"));
    assert!(bar.contains("██████████") && bar.contains("東京-7"), "{bar}");
    let wide = bar.chars().filter(|c| "東京".contains(*c)).count();
    assert_eq!(bar.trim_end().chars().count() + wide, 70, "{bar:?}");
    drop(guard);
}

#[cfg(feature = "postgres")]
#[test]
fn over_postgres() {
    let server = crate::rig::Postgres::start();
    let client = server.client();
    let program = watch(&server.url(), &["--json"]);
    expect(&program, &["free"]);
    let guard = client.mutex("job").lock_owned().unwrap();
    expect(&program, &["taken"]);
    guard.unlock().unwrap();
    expect(&program, &["free"]);
    program.signal("INT");
    assert_eq!(program.ends_with(0), "");
}

/// Checks that every tag is closed, that attributes are quoted, and that `&` and `<` are escaped.
#[track_caller]
fn assert_well_formed(xml: &str) {
    let mut open: Vec<&str> = Vec::new();
    let mut rest = xml;
    while let Some((text, behind)) = rest.split_once('<') {
        assert_text(text);
        let (tag, behind) = behind.split_once('>').expect("a tag ends");
        rest = behind;
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "{tag}");
            continue;
        }
        let (name, attributes) = tag.trim_end_matches('/').split_once(' ').unwrap_or((tag, ""));
        let mut parts = attributes.split('"');
        while let (Some(key), Some(value)) = (parts.next(), parts.next()) {
            assert!(key.trim().ends_with('=') && !value.contains('<'), "{tag}");
            assert_text(value);
        }
        if !tag.ends_with('/') {
            open.push(name);
        }
    }
    assert!(open.is_empty() && rest.trim().is_empty(), "{open:?} {rest:?}");
}

#[track_caller]
fn assert_text(text: &str) {
    assert!(!text.contains('>') && !text.chars().any(|c| c.is_control() && c != '\n'), "{text:?}");
    for behind in text.split('&').skip(1) {
        let (entity, _) = behind.split_once(';').unwrap_or_else(|| panic!("{text:?}"));
        assert!(["amp", "lt", "gt", "quot", "#39"].contains(&entity), "{text:?}");
    }
}
