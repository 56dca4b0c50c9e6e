//! `leasehold exporter`: what it serves, to whom, and for how long.

use std::collections::{HashMap, HashSet};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use crate::program::{Program, leasehold, leasehold_at, run};
use crate::rig::{CAP, MASTER_NAME, Proxy, Sentinels, Server, ms, wait_until};
use crate::support::Clients;

struct Exporter {
    program: Program,
    address: String,
}

impl Exporter {
    fn start(url: &str, arguments: &[&str]) -> Self {
        Self::start_every("100ms", url, arguments)
    }

    fn start_every(time: &str, url: &str, arguments: &[&str]) -> Self {
        let own = ["exporter", "--listen", "127.0.0.1:0", "--every", time];
        let program = Program::start(leasehold_at(url, &[&own[..], arguments].concat()));
        let said = program.expect("listening on http://");
        Self { program, address: said.strip_suffix("/metrics").unwrap().to_owned() }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(CAP)).unwrap();
        stream
    }

    /// The whole answer to these bytes.
    fn answer(&self, request: &[u8]) -> String {
        let mut stream = self.connect();
        stream.write_all(request).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    fn page(&self) -> String {
        let answer = self.answer(b"GET /metrics HTTP/1.1\r\nHost: h\r\nAccept: text/plain\r\n\r\n");
        let (head, page) = answer.split_once("\r\n\r\n").unwrap();
        assert!(
            head.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4"),
            "{head}"
        );
        assert!(head.contains(&format!("Content-Length: {}\r\n", page.len())), "{head}");
        page.to_owned()
    }

    fn wait_for(&self, sample: &str) -> String {
        self.wait_for_page(sample, |page| page.lines().any(|line| line == sample))
    }

    fn wait_for_page(&self, what: &str, is_so: impl Fn(&str) -> bool) -> String {
        let mut page = String::new();
        wait_until(what, || {
            page = self.page();
            is_so(&page)
        });
        page
    }

    fn ends(self, signal: &str) {
        self.program.signal(signal);
        self.program.ends_with(0);
    }
}

/// Every line is one of the format, families are whole and described once, and no sample comes
/// twice; returns the samples.
#[track_caller]
fn samples(page: &str) -> HashMap<String, f64> {
    let (mut known, mut family, mut samples) = (HashSet::new(), "", HashMap::new());
    for line in page.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            family = help.split_once(' ').unwrap().0;
            assert!(known.insert(family), "{family} comes twice");
            continue;
        }
        if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (of, kind) = kind.split_once(' ').unwrap();
            assert!(of == family && ["gauge", "counter"].contains(&kind), "{line}");
            continue;
        }
        let (series, value) = line.rsplit_once(' ').unwrap();
        let (name, labels) = series.split_once('{').unwrap();
        assert_eq!(name, family, "{line}");
        assert!(labels.ends_with("\"}"), "{line}");
        assert!(
            samples.insert(series.to_owned(), value.parse().unwrap()).is_none(),
            "{series} comes twice"
        );
    }
    page.ends_with('\n').then_some(samples).expect("the last line has an end")
}

fn promtool_accepts(page: &str) {
    let promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut promtool) = promtool else { return };
    promtool.stdin.take().unwrap().write_all(page.as_bytes()).unwrap();
    let output = promtool.wait_with_output().unwrap();
    assert!(output.status.success(), "{}\n{page}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn it_serves_holders_waiters_and_servers() {
    let server = Server::start();
    let store = server.url();
    let client = server.builder().owner("billing-7").build().unwrap();
    let odd = client.lock("quoted \"job\"\\\n{x}").unwrap();
    let line = client.fair("line").lock_owned().unwrap();
    client.semaphore("pool").try_set_permits(3).unwrap();
    let permits = client.semaphore("pool").acquire_many(2).unwrap();
    let exporter = Exporter::start(&store, &["--label", "main"]);
    std::thread::scope(|s| {
        let waiter = server.client();
        let waits = s.spawn(move || waiter.fair("line").lock().unwrap().unlock().unwrap());
        let (ends, ended) = std::sync::mpsc::channel::<()>();
        let (job, work) = (client.once("report", "1"), move || ended.recv().is_ok());
        s.spawn(move || job.run(|_| Ok::<_, ()>(work())).unwrap());
        let named =
            |name: &str, kind: &str| format!("{{store=\"main\",name=\"{name}\",kind=\"{kind}\"}}");
        exporter.wait_for(&format!("leasehold_store_name_waiting{} 1", named("line", "fair")));
        exporter.wait_for(&format!("leasehold_store_name_holders{} 1", named("report", "once")));
        exporter.wait_for_page("it has examined the server", |page| page.contains("findings{"));
        let page = exporter
            .wait_for(&format!("leasehold_store_name_holders{} 2", named("pool", "semaphore")));
        exporter.wait_for(&format!(
            "leasehold_store_name_holders{} 1",
            named(r#"quoted \"job\"\\\n{x}"#, "mutex")
        ));
        promtool_accepts(&page);
        let samples = samples(&page);
        let of = |name: &str| samples.get(&format!("leasehold_store_{name}")).copied();
        assert_eq!(of("up{store=\"main\"}"), Some(1.0), "{page}");
        assert_eq!(of("locks{store=\"main\",kind=\"fair\"}"), Some(1.0));
        assert_eq!(of("locks{store=\"main\",kind=\"latch\"}"), Some(0.0));
        assert_eq!(of("locks{store=\"main\",kind=\"once\"}"), Some(1.0));
        drop(ends);
        assert_eq!(of("waiting{store=\"main\",kind=\"fair\"}"), Some(1.0));
        assert_eq!(of("names_omitted{store=\"main\"}"), Some(0.0));
        assert!(
            of(&format!("name_held_seconds{}", named("line", "fair"))).unwrap() < CAP.as_secs_f64()
        );
        let left = of(&format!("name_remaining_seconds{}", named("line", "fair"))).unwrap();
        assert!(left > 0.0 && left <= 30.0, "{left}");
        let token = line.fencing_token().unwrap().get() as f64;
        assert_eq!(of(&format!("name_fencing_token{}", named("line", "fair"))), Some(token));
        assert_eq!(of("findings{store=\"main\",severity=\"problem\"}"), Some(0.0));
        let is_a_server = |series: &&String| series.starts_with("leasehold_store_server_up{");
        assert_eq!(
            samples.keys().filter(is_a_server).map(|series| samples[series]).sum::<f64>(),
            1.0,
            "{page}"
        );
        assert!(page.contains(&format!(
            "leasehold_exporter_info{{version=\"{}\"}} 1\n",
            env!("CARGO_PKG_VERSION")
        )));
        line.unlock().unwrap();
        waits.join().unwrap();
    });
    drop((odd, permits));
    exporter.wait_for("leasehold_store_locks{store=\"main\",kind=\"mutex\"} 0");
    // A poll that was under way may have read one lock before its release, and another one after.
    wait_until("nobody holds anything", || !exporter.page().contains("name_holders"));
    exporter.ends("TERM");
    drop(client);
    server.cmd::<()>(&["DEL", "pool"]);
    server.assert_clean();
}

/// The pause after a poll is ten times as long as the poll took.
#[test]
fn a_sentinel_that_hangs_delays_the_examination_and_no_poll() {
    let rig = Sentinels::start();
    // The others say at once where the master is.
    rig.suspend_sentinel(2);
    let hosts: Vec<String> =
        rig.urls().iter().map(|url| url.replace("redis://", "").replace('/', "")).collect();
    let url = format!("redis+sentinel://{}/{MASTER_NAME}", hosts.join(","));
    let exporter = Exporter::start(&url, &["--label", "main"]);
    let polls = "leasehold_store_looks_total{store=\"main\",outcome=\"ok\"} ";
    let page = exporter.wait_for_page("it polls", |page| {
        page.lines()
            .any(|line| line.strip_prefix(polls).is_some_and(|n| n.parse::<u32>().unwrap() > 2))
    });
    assert!(!page.contains("leasehold_store_findings{"), "{page}");
    rig.resume_sentinel(2);
    exporter
        .wait_for_page("it has examined them", |page| page.contains("leasehold_store_findings{"));
    exporter.ends("TERM");
    rig.assert_clean();
}

#[test]
fn only_the_names_that_matter_most_have_samples() {
    let server = Server::start();
    let client = server.client();
    let held: Vec<_> =
        (0..9).map(|n| client.mutex(format!("job-{n}")).lock_owned().unwrap()).collect();
    let other = client.lock("other").unwrap();
    let exporter = Exporter::start(
        &server.url(),
        &["job-*", "--limit", "4", "--label", "s", "--diagnose-every", "0s"],
    );
    std::thread::scope(|s| {
        let waiter = server.client();
        let waits = s.spawn(move || waiter.lock("job-8").unwrap().unlock().unwrap());
        exporter
            .wait_for("leasehold_store_name_waiting{store=\"s\",name=\"job-8\",kind=\"mutex\"} 1");
        let page = exporter.wait_for("leasehold_store_names_omitted{store=\"s\"} 5");
        let samples = samples(&page);
        assert_eq!(
            samples.keys().filter(|series| series.contains("name_holders")).count(),
            4,
            "{page}"
        );
        assert_eq!(
            samples["leasehold_store_locks{store=\"s\",kind=\"mutex\"}"], 9.0,
            "the pattern leaves one out"
        );
        assert!(page.contains("name=\"job-8\"") && !page.contains("findings"), "{page}");
        drop(held);
        waits.join().unwrap();
    });
    drop(other);
    exporter.ends("INT");
}

#[test]
fn a_store_that_is_down_is_reported_and_found_again() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    proxy.refuse(true);
    let url = format!("{}?pass=of-nobody", proxy.url());
    let guard = server.client().mutex("job").lock_owned().unwrap();
    let exporter = Exporter::start(&url, &[]);
    let page = wait_for_metric(&exporter, "leasehold_store_up", 0.0);
    assert!(!page.contains("of-nobody"), "{page}");
    assert!(!page.contains("leasehold_store_locks") && !page.contains("last_look"), "{page}");
    exporter.program.expect_said("the store cannot be queried");
    proxy.refuse(false);
    let page = wait_for_metric(&exporter, "leasehold_store_up", 1.0);
    exporter.program.expect_said("the store answers again");
    assert!(page.contains("last_look_timestamp_seconds"), "{page}");
    wait_for_metric(&exporter, "leasehold_store_name_holders", 1.0);
    proxy.refuse(true);
    proxy.cut_all();
    let page = wait_for_metric(&exporter, "leasehold_store_up", 0.0);
    assert!(
        !page.contains("name_holders") && page.contains("last_look_timestamp_seconds"),
        "{page}"
    );
    exporter.program.expect_said("the store cannot be queried");
    exporter.ends("TERM");
    drop(guard);
}

fn wait_for_metric(exporter: &Exporter, name: &str, value: f64) -> String {
    let mut page = String::new();
    wait_until(name, || {
        page = exporter.page();
        let begin = format!("{name}{{");
        samples(&page).iter().any(|(series, is)| series.starts_with(&begin) && *is == value)
    });
    page
}

/// A store that hangs holds up neither a scrape nor the end.
#[test]
fn a_store_that_hangs_holds_up_nobody() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let exporter = Exporter::start(&proxy.url(), &[]);
    wait_for_metric(&exporter, "leasehold_store_up", 1.0);
    proxy.silence(true);
    for _ in 0..20 {
        samples(&exporter.page());
    }
    exporter.ends("TERM");
    proxy.silence(false);
}

#[test]
fn requests_that_are_none_cost_nothing() {
    let server = Server::start();
    let exporter = Exporter::start(&server.url(), &[]);
    let status =
        |request: &[u8]| exporter.answer(request).lines().next().unwrap_or_default().to_owned();
    assert_eq!(status(b"GET / HTTP/1.0\r\n\r\n"), "HTTP/1.1 200 OK");
    assert_eq!(status(b"GET /metrics?x=1 HTTP/1.1\r\n\r\n"), "HTTP/1.1 200 OK");
    assert_eq!(status(b"GET /other HTTP/1.1\r\n\r\n"), "HTTP/1.1 404 Not Found");
    assert_eq!(status(b"POST /metrics HTTP/1.1\r\n\r\n"), "HTTP/1.1 405 Method Not Allowed");
    assert_eq!(status(b"\x16\x03\x01\0\xff\r\n\r\n"), "HTTP/1.1 400 Bad Request");
    assert_eq!(status(b"GET /metrics\r\n\r\n"), "HTTP/1.1 400 Bad Request");
    let head = exporter.answer(b"HEAD /metrics HTTP/1.1\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.ends_with("\r\n\r\n"), "{head}");
    // A head without an end: it is refused, also if the rest of it comes too late to be read.
    let mut stream = exporter.connect();
    let _ = stream.write_all(&[b'a'; 9000]);
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 400"), "{answer}");
    // Connections that say nothing leave room for others, and are closed after some seconds.
    let idle: Vec<_> = (0..20).map(|_| exporter.connect()).collect();
    samples(&exporter.page());
    for mut stream in idle {
        assert!(matches!(stream.read(&mut [0]), Ok(0)));
    }
    exporter.ends("TERM");
}

/// Who reads slowly has as little time as who asks slowly: such connections would use up the room.
#[test]
fn an_answer_that_is_read_slowly_ends_in_time() {
    let server = Server::start();
    let client = server.client();
    let _held: Vec<_> = (0..20).map(|n| client.lock(format!("job-{n}")).unwrap()).collect();
    // Much more than the system takes for a reader that does not read.
    let label = "x".repeat(100_000);
    let exporter = Exporter::start_every("2s", &server.url(), &["--label", &label]);
    let page = exporter.wait_for_page("a long page", |page| page.len() > 8 << 20);
    let mut stream = exporter.connect();
    stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
    let (mut chunk, mut received) = (vec![0; 256 << 10], 0);
    while let Ok(length @ 1..) = stream.read(&mut chunk) {
        received += length;
        std::thread::sleep(ms(250));
    }
    assert!(received < page.len(), "the whole page has come");
    exporter.ends("TERM");
}

/// What is above the limit is closed at once, and later there is room again.
#[test]
fn connections_are_limited() {
    let server = Server::start();
    let exporter = Exporter::start(&server.url(), &[]);
    let idle: Vec<_> = (0..100).map(|_| exporter.connect()).collect();
    // Accepted in order, so the last of them finds no room.
    let closed = idle.last().map(|mut stream| stream.read(&mut [0]));
    assert!(matches!(closed, Some(Ok(0) | Err(_))), "{closed:?}");
    drop(idle);
    wait_until("there is room", || {
        let mut stream = exporter.connect();
        let mut answer = String::new();
        let request = stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n");
        request.and_then(|()| stream.read_to_string(&mut answer)).is_ok()
            && answer.starts_with("HTTP/1.1 200")
    });
    exporter.ends("HUP");
}

#[test]
fn wrong_arguments_are_refused() {
    let server = Server::start();
    let first = Exporter::start(&server.url(), &[]);
    let cases: [(&[&str], &str); 4] = [
        (&["--listen", &first.address], "in use"),
        (&["--listen", "nowhere"], "--listen"),
        (&["--every", "10ms"], "shortest"),
        (&["--listen", "127.0.0.1:0", "[a"], "pattern"),
    ];
    for (arguments, says) in cases {
        let (status, _, err) = run(leasehold(&server, &[&["exporter"][..], arguments].concat()));
        assert_eq!(status, Some(64), "{arguments:?}: {err}");
        assert!(err.contains(says) && err.lines().count() == 1, "{arguments:?}: {err}");
    }
    first.ends("TERM");
}

#[cfg(feature = "postgres")]
#[test]
fn a_postgres_is_served() {
    let server = crate::rig::Postgres::start();
    serves(&server.url(), &server.client());
}

#[cfg(feature = "zookeeper")]
#[test]
fn a_zookeeper_is_served() {
    let server = crate::rig::zookeeper::ZooKeeper::start();
    serves(&server.url(), &leasehold::LockClient::open(&server.url()).unwrap());
}

#[cfg(any(feature = "postgres", feature = "zookeeper"))]
fn serves(url: &str, client: &leasehold::LockClient) {
    let guard = client.lock("job").unwrap();
    let exporter = Exporter::start(url, &["--label", "s"]);
    let page = exporter
        .wait_for("leasehold_store_name_holders{store=\"s\",name=\"job\",kind=\"mutex\"} 1");
    promtool_accepts(&page);
    assert_eq!(samples(&page)["leasehold_store_up{store=\"s\"}"], 1.0, "{page}");
    drop(guard);
    exporter.wait_for("leasehold_store_locks{store=\"s\",kind=\"mutex\"} 0");
    exporter.ends("TERM");
}

#[test]
fn without_a_host_it_listens_on_all_addresses() {
    let server = Server::start();
    let start =
        |listen: &str| Program::start(leasehold(&server, &["exporter", "--listen", listen]));
    let all = start(":0");
    let said = all.expect("listening on http://");
    let port: u16 = said.trim_end_matches("/metrics").rsplit_once(':').unwrap().1.parse().unwrap();
    assert!(TcpStream::connect(("127.0.0.1", port)).is_ok());
    all.signal("TERM");
    all.ends_with(0);
    for no_address in ["9843", "127.0.0.1", "localhost", ":", ":port", ":99999"] {
        let said = start(no_address).ends_with(64);
        assert!(said.contains("an address is HOST:PORT, or :PORT"), "{no_address}: {said}");
    }
}
