//! `leasehold bench`: plausible figures, and nothing left behind.

use std::process::Stdio;

use serde_json::Value;

use crate::json::checked;
use crate::program::{Program, leasehold, leasehold_at, run};
use crate::rig::{Cluster, PROMPT, Server, wait_until};
use crate::support::Masters;

const SHORT: [&str; 3] = ["bench", "--seconds", "0.2"];
const PARTS: [&str; 5] =
    ["cycle", "one_name_one_client", "one_name_many_clients", "hand_off", "own_names"];

/// Runs a short benchmark with JSON output, and checks that its figures are plausible.
#[track_caller]
fn measured(url: &str, options: &[&str]) -> Value {
    let (status, out, said) = run(leasehold_at(url, &[&SHORT, options, &["--json"]].concat()));
    assert_eq!((status, out.lines().count()), (Some(0), 1), "{out} {said}");
    assert!(
        said.starts_with(
            "leasehold: locking and unlocking as fast as the store answers, for about "
        ),
        "{said}"
    );
    let json = checked("bench", &out);
    assert_eq!(json["part_ms"], 200);
    let parts = json["parts"].as_array().unwrap();
    let names: Vec<&str> = parts.iter().map(|part| part["part"].as_str().unwrap()).collect();
    assert_eq!(names, PARTS);
    for part in parts {
        check(&part["figures"]);
        assert!(
            part["clients"].as_u64() >= Some(1) && part["threads"].as_u64() >= Some(1),
            "{part}"
        );
    }
    assert_eq!(json["ratio"].is_null(), json["no_ratio"].is_string(), "{json}");
    assert_eq!(json["ratio"].is_null(), json["bare"].is_null(), "{json}");
    if !json["bare"].is_null() {
        check(&json["bare"]);
        assert!(
            json["ratio"]["per_second"].as_f64() > Some(0.0)
                && json["ratio"]["p50"].as_f64() > Some(0.0),
            "{json}"
        );
    }
    json
}

#[track_caller]
fn check(figures: &Value) {
    let number =
        |name: &str| figures[name].as_u64().unwrap_or_else(|| panic!("no {name}: {figures}"));
    assert!(number("operations") >= 1 && number("per_second") >= 1, "{figures}");
    assert!(
        number("max_us") >= 1
            && number("p50_us") <= number("p99_us")
            && number("p99_us") <= number("max_us")
    );
}

#[track_caller]
fn nothing_stays(server: &Server) {
    wait_until("no key is left", || server.cmd::<Vec<String>>(&["KEYS", "*"]).is_empty());
    server.assert_clean();
}

#[test]
fn a_short_run_has_figures_and_leaves_no_key() {
    let (server, on_tcp) = (Server::start(), Server::start_tcp(&[]));
    for (server, url) in
        [(&server, server.url()), (&on_tcp, format!("redis://127.0.0.1:{}", on_tcp.port()))]
    {
        let json = measured(&url, &["--threads", "3"]);
        assert!(json["ratio"].is_object() && json["threads"] == 3, "{json}");
        assert_eq!(
            (&json["parts"][2]["clients"], &json["parts"][4]["threads"]),
            (&3.into(), &3.into())
        );
        nothing_stays(server);
    }
}

#[test]
fn people_get_a_table() {
    let server = Server::start();
    let (status, out, said) = run(leasehold(&server, &SHORT));
    assert_eq!((status, said.lines().count()), (Some(0), 1), "{said}");
    let lines: Vec<&str> = out.lines().collect();
    assert!(lines[0].trim_start().starts_with("a second"), "{out}");
    for row in [
        "lock and unlock, one thread",
        "  by two bare scripts",
        "one name, ",
        "hand-off",
        "own names, ",
    ] {
        assert!(
            lines.iter().any(|line| line.starts_with(row) && line.split_whitespace().count() > 5),
            "{row}: {out}"
        );
    }
    let width = lines[0].chars().count();
    assert!(lines[1..7].iter().all(|line| line.chars().count() == width), "{out}");
    assert!(out.contains("leasehold makes "), "{out}");
    nothing_stays(&server);
}

#[test]
fn a_signal_ends_it_and_nothing_stays() {
    let server = Server::start();
    // In the first part, and later: the third one has begun when its name was locked.
    for (signal, number, part) in
        [("INT", 2, ":cycle"), ("TERM", 15, ":one_name_many_clients"), ("INT", 2, ":hand_off")]
    {
        let mut command = leasehold(&server, &["bench", "--seconds", "1", "--threads", "4"]);
        command.stdin(Stdio::null());
        let program = Program::start(command);
        program.expect_said("Ctrl-C ends it");
        wait_until("the part has begun", || {
            server.cmd::<Vec<String>>(&["KEYS", &format!("*{part}")]).len() == 1
        });
        let before = std::time::Instant::now();
        program.signal(signal);
        let end = program.end();
        assert!(before.elapsed() < PROMPT);
        assert_eq!((end.status, &end.out[..]), (Some(128 + number), &[][..]), "{:?}", end.err);
        assert_eq!(
            end.err,
            [format!("leasehold: ended by signal {number}, and every lock was released")]
        );
        nothing_stays(&server);
    }
}

#[test]
fn a_store_that_fails_ends_it_with_its_status() {
    let mut server = Server::start();
    let program = Program::start(leasehold(&server, &["bench", "--seconds", "600"]));
    program.expect_said("Ctrl-C ends it");
    wait_until("it has begun", || !server.cmd::<Vec<String>>(&["KEYS", "*"]).is_empty());
    server.kill();
    let end = program.end();
    assert_eq!((end.status, &end.out[..]), (Some(69), &[][..]), "{:?}", end.err);
    // A store that was never reachable.
    let (status, out, said) = run(leasehold(&server, &SHORT));
    assert_eq!((status, &*out, said.lines().count()), (Some(69), "", 1), "{said}");
    server.start_again();
}

#[test]
fn a_password_is_used_by_the_bare_scripts_too() {
    const SECRET: &str = "s3cr3t-of-the-bench";
    let server = Server::start_with(&["--requirepass", SECRET]);
    let file = server.dir().join("password");
    std::fs::write(&file, format!("{SECRET}\n")).unwrap();
    for (url, options) in [
        (format!("{}?pass={SECRET}", server.url()), &[][..]),
        (server.url(), &["--password-file", file.to_str().unwrap()]),
    ] {
        let json = measured(&url, options);
        assert!(
            json["ratio"].is_object() && !json.to_string().contains(SECRET),
            "{}",
            json["no_ratio"]
        );
    }
    nothing_stays(&server);
}

#[test]
fn bad_arguments_are_64() {
    let server = Server::start();
    for options in
        [["--seconds", "0"], ["--seconds", "2s"], ["--threads", "1"], ["--threads", "1000"]]
    {
        assert_eq!(
            run(leasehold(&server, &[&["bench"], &options[..]].concat())).0,
            Some(64),
            "{options:?}"
        );
    }
}

/// Redlock, TLS, a database and an ensemble: figures, and the reason why there is no ratio.
#[test]
fn other_stores_have_figures_and_no_ratio() {
    let masters = Masters::fresh(3);
    let json = measured(&masters.urls().join(" "), &["--redlock"]);
    assert!(json["no_ratio"].as_str().unwrap().contains("several"), "{json}");
    masters.assert_clean();
}

#[test]
fn a_cluster_has_figures() {
    let cluster = Cluster::start_primaries();
    let nodes: Vec<String> =
        (0..3).map(|index| format!("127.0.0.1:{}", cluster.node(index).announced_port())).collect();
    let json = measured(&format!("redis+cluster://{}", nodes.join(",")), &[]);
    assert!(json["no_ratio"].as_str().unwrap().contains("redis://"), "{json}");
    for index in 0..3 {
        let node = cluster.node(index);
        wait_until("no key is left", || node.cmd::<Vec<String>>(&["KEYS", "*"]).is_empty());
    }
}

#[cfg(feature = "postgres")]
#[test]
fn a_postgres_has_figures() {
    let server = crate::rig::Postgres::start();
    let json = measured(&server.url(), &[]);
    assert!(json["ratio"].is_null(), "{json}");
    server.assert_clean();
}

#[cfg(feature = "zookeeper")]
#[test]
fn a_zookeeper_has_figures() {
    let server = crate::rig::zookeeper::ZooKeeper::start_with("tickTime=2000");
    let json = measured(&server.url(), &[]);
    assert!(json["ratio"].is_null(), "{json}");
    // The nodes of names are deleted by the server when they are empty.
    wait_until("no hold is left", || server.ephemerals().is_empty());
    wait_until("no connection is left", || server.connections().is_empty());
}

#[cfg(feature = "tls")]
#[test]
fn over_tls_there_is_no_ratio() {
    let certificates = crate::rig::Certificates::new();
    let server = Server::start_tls(&certificates, &[]);
    let json = measured(&server.url(), &["--ca-file", certificates.ca_file().to_str().unwrap()]);
    assert!(json["no_ratio"].as_str().unwrap().contains("redis://"), "{json}");
    nothing_stays(&server);
}
