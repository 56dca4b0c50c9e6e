//! Every example runs against a real server and reports success.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::rig::{Server, signal, wait_until};

const BUILD: &str = "cargo build --all-features --examples";

/// A built example. `cargo test --test it` alone does not build the examples, and one that is older
/// than the code would prove nothing.
#[track_caller]
fn example(name: &str) -> PathBuf {
    // target/debug/deps/it-...
    let tests = std::env::current_exe().unwrap();
    let program = tests.ancestors().nth(2).unwrap().join("examples").join(name);
    let changed = |file: &Path| std::fs::metadata(file).and_then(|about| about.modified()).ok();
    let built = changed(&program).unwrap_or_else(|| panic!("the examples are not built: {BUILD}"));
    // `program: source source ...`
    let sources = std::fs::read_to_string(program.with_extension("d")).unwrap();
    for source in sources.split_whitespace().skip(1) {
        let newer = changed(Path::new(source)).is_none_or(|changed| changed > built);
        assert!(!newer, "{source} has changed since the examples were built: {BUILD}");
    }
    program
}

/// Runs an example and returns its last line.
fn run(name: &str, url: Option<&str>) -> String {
    run_with(name, url.as_slice())
}

fn run_with(name: &str, args: &[&str]) -> String {
    last_line_of(name, Command::new(example(name)).args(args))
}

fn last_line_of(name: &str, command: &mut Command) -> String {
    let output = command.output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{name}: {stdout}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    stdout.lines().last().unwrap_or_default().to_owned()
}

#[test]
fn the_small_examples_succeed() {
    let server = Server::start();
    for (name, last_line) in [
        ("quickstart", "released: now it does"),
        ("leader", "no change of an earlier term came late"),
        ("cron", "the job ran 1 time(s)"),
        ("nightly_report", "three hosts, one death, one report"),
        ("lost_lease", "the lost guard is gone: the lock can be taken again"),
        ("fixed_lease", "and the lock is free for the next"),
        ("owned_pool", "6 jobs done"),
        ("axum_handlers", "stopped: nothing is locked"),
        ("rayon_pool", "non_reentrant and owned guards let one job in at a time"),
        ("ticket_queue", "served in order: 1 2 3 4 5"),
        ("config_readers", "12 reads saw a whole config"),
        ("select_jobs", "both jobs are done, one by each worker"),
        ("start_signal", "all 4 workers finished, none began before the signal"),
        ("calls_per_second", "3 processes made at most 10 calls within 300ms"),
        ("rate_limit", "never more than 3 calls at once, and the dead worker's permit came back"),
        ("test_your_job", "and leaves nothing behind"),
        ("transfer", "150 transfers, and still 400 in all"),
        ("fencing_sqlite", "the balance is 10, as the holder of the lock left it"),
    ] {
        assert_eq!(run(name, Some(&server.url())), last_line, "{name}");
        server.cmd::<()>(&["FLUSHALL"]);
    }
    server.assert_clean();
}

#[test]
fn spans_show_a_wait_within_its_request_and_a_lost_hold() {
    let server = Server::start();
    let output = Command::new(example("spans")).arg(server.url()).output().unwrap();
    let spans = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{spans}");
    let shown = |span: &str, field: &str| {
        spans.lines().any(|line| line.contains(span) && line.contains(field))
    };
    assert!(shown("request{id=4711}:leasehold.wait{", "lock.outcome=\"granted\""), "{spans}");
    assert!(shown("request{id=4711}:leasehold.hold{", "lock.outcome=\"released\""), "{spans}");
    assert!(shown("leasehold.hold{", "lock.outcome=\"lost\""), "{spans}");
    server.assert_clean();
}

/// It exits within its time limit, whatever its workers are doing when the signal arrives.
#[test]
fn a_pool_that_is_told_to_stop_leaves_nothing() {
    let server = Server::start();
    let mut pool = Command::new(example("graceful_stop"));
    let mut pool = pool.arg(server.url()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(pool.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut working = lines.by_ref().filter(|line| line.contains(" works on the "));
    assert!(working.next().is_some() && working.next().is_some());
    wait_until("two workers hold locks, and two wait", || server.lock_keys().len() == 2);
    signal(pool.id(), "TERM");
    wait_until("it has ended", || pool.try_wait().unwrap().is_some());
    assert_eq!(pool.wait().unwrap().code(), Some(0));
    let rest: Vec<String> = lines.collect();
    assert_eq!(rest.last().unwrap(), "stopped: nothing is locked", "{rest:?}");
    assert_eq!(rest.iter().filter(|line| line.ends_with("has ended")).count(), 4, "{rest:?}");
    server.assert_clean();
}

#[test]
fn the_worker_pool_is_exact_under_faults() {
    assert!(run("worker_pool", None).ends_with(": exact"));
}

#[cfg(feature = "postgres")]
#[test]
fn the_worker_pool_is_exact_in_postgres_too() {
    assert!(run_with("worker_pool", &["--store", "postgres"]).ends_with(": exact"));
}

/// What `examples/try.sh --store zookeeper` runs.
#[cfg(feature = "zookeeper")]
#[test]
fn the_worker_pool_is_exact_in_zookeeper_too() {
    let mut pool = Command::new(example("worker_pool"));
    pool.args(["--store", "zookeeper"])
        .env("LEASEHOLD_ZOOKEEPER_JAR", crate::rig::zookeeper::CURATOR.jar());
    assert!(last_line_of("worker_pool", &mut pool).ends_with(": exact"));
}

#[cfg(feature = "zookeeper")]
#[test]
fn a_holder_that_is_cut_off_from_zookeeper_writes_nothing() {
    let server = crate::rig::zookeeper::ZooKeeper::lend(crate::on_zookeeper::SETTINGS);
    let last_line = run("zookeeper", Some(&server.url_in("/example")));
    assert_eq!(last_line, "each night has one report, and no late one");
    server.assert_clean_but(&["/example"]);
}

#[test]
fn the_pool_goes_on_when_a_master_is_killed() {
    assert_eq!(run("three_masters", None), "exact on two of three masters");
}

#[cfg(feature = "tls")]
#[test]
fn only_the_right_certificates_are_served_with_tls() {
    assert_eq!(run("tls", None), "only who has the right certificates is served");
}

#[cfg(feature = "postgres")]
#[test]
fn a_late_holder_cannot_commit_in_postgres() {
    let server = crate::rig::Postgres::shared();
    let last_line = run("postgres", Some(&server.url_of_libpq()));
    assert_eq!(last_line, "no late commit, and no money lost");
}

#[cfg(feature = "mysql")]
#[test]
fn a_late_holder_cannot_commit_in_mysql() {
    let server = crate::rig::Mysql::shared();
    let mut program = Command::new(example("mysql"));
    program.arg(server.url()).arg(crate::rig::mysql::program());
    program.args(["-uroot", &format!("--socket={}", server.socket().display())]);
    program.arg(server.database());
    let last_line = last_line_of("mysql", &mut program);
    assert_eq!(last_line, "no late commit, and no money lost");
}

#[test]
fn the_pool_goes_on_when_sentinels_replace_the_master() {
    assert_eq!(run("sentinel", None), "exact on two masters, one after the other");
}

#[test]
fn the_pool_goes_on_when_its_slot_moves() {
    assert_eq!(run("cluster", None), "exact while the slot moved");
}

/// Sends one request; returns the response with its head.
fn get(address: &str, path: &str) -> String {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(crate::rig::CAP)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nAccept: */*\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn metrics_are_scraped_over_a_socket() {
    use std::io::{BufRead, BufReader};
    let server = Server::start();
    let mut example = Command::new(example("metrics"))
        .args([&server.url(), "127.0.0.1:0", "2"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(example.stdout.take().unwrap()).lines();
    let first = lines.next().unwrap().unwrap();
    let address = first.strip_prefix("serving http://").unwrap().strip_suffix("/metrics").unwrap();
    assert!(get(address, "/").starts_with("HTTP/1.1 404 "));
    let granted = || {
        let answer = get(address, "/metrics");
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(
            head.starts_with("HTTP/1.1 200 OK\r\n") && head.contains("text/plain; version=0.0.4"),
            "{head}"
        );
        assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())), "{head}");
        let of_calls = |line: &&str| {
            line.starts_with("leasehold_calls_total{client=\"billing\",")
                && line.contains("granted")
        };
        body.lines()
            .filter(of_calls)
            .map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap())
            .sum::<u64>()
    };
    let before = granted();
    crate::rig::wait_until("the workers continue", || {
        server.call_count("evalsha") > 2 * before + 40
    });
    assert!(granted() > before);
    assert_eq!(lines.last().unwrap().unwrap(), "served 2 scrapes");
    assert!(example.wait().unwrap().success());
    server.assert_clean();
}

/// Checks that a new example is added to the list above.
#[test]
fn no_example_is_left_out() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let mut names: Vec<_> = std::fs::read_dir(dir)
        .unwrap()
        .filter_map(|entry| {
            entry.unwrap().file_name().to_str()?.strip_suffix(".rs").map(str::to_owned)
        })
        .collect();
    names.sort();
    let listed = [
        "axum_handlers",
        "calls_per_second",
        "cluster",
        "config_readers",
        "cron",
        "fencing_sqlite",
        "fixed_lease",
        "graceful_stop",
        "leader",
        "lost_lease",
        "metrics",
        "mysql",
        "nightly_report",
        "owned_pool",
        "postgres",
        "quickstart",
        "rate_limit",
        "rayon_pool",
        "select_jobs",
        "sentinel",
        "spans",
        "start_signal",
        "test_your_job",
        "three_masters",
        "ticket_queue",
        "tls",
        "transfer",
        "worker_pool",
        "zookeeper",
    ];
    assert_eq!(names, listed);
}
