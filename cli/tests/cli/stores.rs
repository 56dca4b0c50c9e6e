//! `leasehold run` over every store, and the options that select it.

use std::path::PathBuf;
use std::process::Command;

use leasehold::{Builder, LockClient, Sentinel};

use crate::loss::STUBBORN;
use crate::program::{Gate, Program, leasehold, leasehold_at, lives, run};
use crate::rig::{CAP, Cluster, MASTER_NAME, SentinelOptions, Sentinels, Server, fresh_dir, ms};
use crate::support::{Clients, Masters};

/// A store as used by the command and by the library.
struct Store {
    url: String,
    options: Vec<String>,
    client: Builder,
    dir: PathBuf,
}

impl Store {
    fn new(url: String, options: &[&str], client: Builder) -> Self {
        let options = options.iter().map(|option| (*option).to_owned()).collect();
        Self { url, options, client, dir: fresh_dir() }
    }

    fn run(&self, options: &[&str], command: &[&str]) -> Command {
        let of_store: Vec<&str> = self.options.iter().map(String::as_str).collect();
        leasehold_at(
            &self.url,
            &[&["run", "job", "--lease", "5s"], &of_store[..], options, &["--"], command].concat(),
        )
    }

    /// Starts a command that prints its fencing token, and ends with the gate.
    fn start(&self, gate: &Gate) -> (Program, u64) {
        let script = format!("echo $LEASEHOLD_TOKEN; {}", gate.script());
        let program = Program::start(self.run(&[], &["sh", "-c", &script]));
        let token = program.expect("").parse().unwrap();
        program.expect("ready");
        (program, token)
    }

    /// The promises of a run, whatever the store.
    fn keeps_the_promises(&self) {
        self.one_runs_at_a_time_with_a_larger_token();
        self.a_lost_lock_ends_the_command();
        self.a_killed_run_ends_its_command();
    }

    fn one_runs_at_a_time_with_a_larger_token(&self) {
        let gate = Gate::in_dir(&self.dir);
        let (first, token) = self.start(&gate);
        let (status, out, said) = run(self.run(&["--no-wait"], &["echo", "never"]));
        assert_eq!((status, &*out), (Some(75), ""), "{said}");
        assert!(said.starts_with("leasehold: job: ") && said.lines().count() == 1, "{said}");
        let mut next = Program::start(self.run(&[], &["sh", "-c", "echo $LEASEHOLD_TOKEN"]));
        // Longer than the lease, so that it is renewed.
        let client = self.client.clone().build().unwrap();
        assert!(client.mutex("job").try_lock_for(ms(7500)).unwrap().is_none());
        assert!(!next.has_ended());
        gate.open();
        assert_eq!(first.ends_with(0), "");
        let later: u64 = next.expect("").parse().unwrap();
        assert!(later > token, "{later} after {token}");
        assert_eq!(next.ends_with(0), "");
    }

    fn a_lost_lock_ends_the_command(&self) {
        let program = Program::start(self.run(&["--kill-after", "300ms"], &["sh", "-c", STUBBORN]));
        let pid = program.expect("").parse().unwrap();
        let client = self.client.clone().build().unwrap();
        assert!(client.mutex("job").force_unlock().unwrap());
        let said = program.ends_with(70);
        assert!(
            said.starts_with("leasehold: job: the lock is lost, so the command is ended"),
            "{said}"
        );
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(!lives(pid));
    }
}

impl Store {
    fn a_killed_run_ends_its_command(&self) {
        // It is killed a sixth of a lease before the lock can be free, which is for a busy machine.
        let of_store: Vec<&str> = self.options.iter().map(String::as_str).collect();
        let run = [
            &["run", "job", "--lease", "6s", "--kill-after", "1m"],
            &of_store[..],
            &["--", "sh", "-c", STUBBORN],
        ];
        let program = Program::start(leasehold_at(&self.url, &run.concat()));
        let pid = program.expect("").parse().unwrap();
        program.signal("KILL");
        let client = self.client.clone().build().unwrap();
        assert!(client.mutex("job").try_lock_for(CAP).unwrap().is_some());
        assert!(!lives(pid), "it ran beside the next holder");
        assert_eq!(program.end().by_signal, Some(9));
    }

    fn the_number_of_permits_can_be_set(&self) {
        let set = |number| run(leasehold_at(&self.url, &["permits", "job", number]));
        let status = |permits| run(self.run(&["--permits", permits], &["true"])).0;
        assert_eq!((set("2").0, status("2"), status("3")), (Some(0), Some(0), Some(76)));
        assert_eq!(set("3").2, "leasehold: job: it has 3 permits now, and had 2 before");
        assert_eq!((status("2"), status("3")), (Some(76), Some(0)));
        assert!(self.client.clone().build().unwrap().semaphore("job").delete().unwrap());
    }

    fn a_lock_of_another_kind_is_taken_by_other_options(&self) {
        let client = self.client.clone().build().unwrap();
        let guard = client.rw_lock("job").read_owned().unwrap();
        let (status, _, said) = run(self.run(&["--no-wait"], &["true"]));
        assert!(status == Some(76) && said.contains("give --read or --write"), "{said}");
        drop(guard);
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// The `host:port` of URLs, as in a list.
fn hosts(urls: &[String]) -> String {
    let hosts: Vec<&str> =
        urls.iter().map(|url| url.trim_start_matches("redis://").trim_end_matches('/')).collect();
    hosts.join(",")
}

#[cfg(feature = "postgres")]
#[test]
fn over_postgres() {
    let server = crate::rig::Postgres::start();
    let store = Store::new(server.url(), &[], server.builder());
    store.keeps_the_promises();
    store.the_number_of_permits_can_be_set();
    store.a_lock_of_another_kind_is_taken_by_other_options();
    server.assert_clean();
}

/// No run lives for the ten minutes between two sweeps of a client.
#[cfg(feature = "postgres")]
#[test]
fn a_run_removes_what_earlier_ones_left_in_postgres() {
    let server = crate::rig::Postgres::start();
    let store = Store::new(server.url(), &[], server.builder());
    assert_eq!(run(store.run(&[], &["true"])).0, Some(0));
    server.run_sql(
        "INSERT INTO leasehold.lock (name, kind, ends) \
           SELECT 'build ' || i, 'x', now() - interval '1 day' FROM generate_series(1, 50) i; \
         UPDATE leasehold.meta SET swept = now() - interval '1 day'",
    );
    let gate = Gate::in_dir(&store.dir);
    let (next, _) = store.start(&gate);
    crate::rig::wait_until("the old rows are removed", || {
        server.number_of("SELECT count(*) FROM leasehold.lock WHERE name LIKE 'build %'") == 0
    });
    gate.open();
    assert_eq!(next.ends_with(0), "");
    server.assert_clean();
}

#[cfg(feature = "mysql")]
#[test]
fn over_mysql() {
    let server = crate::rig::Mysql::start();
    let store = Store::new(server.url(), &[], LockClient::builder().url(server.url()));
    store.keeps_the_promises();
    server.assert_clean();
}

#[cfg(feature = "zookeeper")]
#[test]
fn over_zookeeper() {
    let server = crate::rig::zookeeper::ZooKeeper::start();
    Store::new(server.url(), &[], LockClient::builder().url(server.url())).keeps_the_promises();
    // A hold in ZooKeeper ends with its session.
    let store = Store::new(server.url(), &[], LockClient::builder().url(server.url()));
    let (status, _, said) = run(store.run(&["--min-hold", "1m"], &["true"]));
    assert_eq!(status, Some(76), "{said}");
    store.the_number_of_permits_can_be_set();
}

/// Before a heartbeat five twelfths of the session are left, and the session may be shorter than the
/// lease that was asked for.
#[cfg(feature = "zookeeper")]
#[test]
fn a_healthy_leader_over_zookeeper_leads_on() {
    let server = crate::rig::zookeeper::ZooKeeper::start_with("maxSessionTimeout=9000");
    let script = "echo $LEASEHOLD_TOKEN; echo $$; while :; do sleep 0.02; done";
    let words = ["lead", "job", "--lease", "27s", "--", "sh", "-c", script];
    let program = Program::start(leasehold_at(&server.url(), &words));
    let term: u64 = program.expect("").parse().unwrap();
    let pid = program.expect("").parse().unwrap();
    let client = LockClient::builder().url(server.url()).lease(ms(9000)).build().unwrap();
    assert!(client.mutex("job").try_lock_for(ms(20_000)).unwrap().is_none());
    let leader = client.election("job").leader().unwrap();
    assert_eq!(leader.and_then(|leader| leader.term()).map(|term| term.get()), Some(term));
    assert!(lives(pid));
    server.suspend();
    crate::rig::wait_until("it is ended", || !lives(pid));
    server.resume();
    program.signal("TERM");
    let said = program.end().err;
    assert!(
        said.iter().any(|line| line.contains("the lease was not renewed and ends")),
        "{said:?}"
    );
}

#[test]
fn over_a_cluster() {
    let cluster = Cluster::start_primaries();
    let url = format!("redis+cluster://{}", hosts(&cluster.urls()));
    Store::new(url.clone(), &[], LockClient::builder().url(url)).keeps_the_promises();
    cluster.assert_clean();
}

#[test]
fn over_sentinels_that_have_a_password_of_their_own() {
    let rig = Sentinels::start_with(SentinelOptions {
        server_args: &["--requirepass", "of-servers", "--masterauth", "of-servers"],
        sentinel_lines: &["requirepass of-sentinels", "sentinel auth-pass mymaster of-servers"],
        ..SentinelOptions::default()
    });
    let url = format!("redis+sentinel://{}/{MASTER_NAME}", hosts(&rig.urls()));
    let dir = rig.server(0).dir();
    let file = |name: &str| {
        let path = dir.join(format!("password-{name}"));
        std::fs::write(&path, name).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (of_servers, of_sentinels) = (file("of-servers"), file("of-sentinels"));
    let servers =
        Sentinel::from(&url).password_file(&of_servers).sentinel_password_file(&of_sentinels);
    let client = LockClient::builder().sentinel(servers);
    let options = ["--password-file", &of_servers, "--sentinel-password-file", &of_sentinels];
    Store::new(url.clone(), &options, client.clone()).keeps_the_promises();
    for missing in [&options[..2], &options[2..]] {
        let (status, _, said) =
            run(Store::new(url.clone(), missing, client.clone()).run(&[], &["true"]));
        assert_eq!(status, Some(77), "{said}");
    }
    rig.assert_clean();
}

#[cfg(feature = "tls")]
#[test]
fn over_tls_with_an_authority_of_ones_own() {
    use crate::rig::Certificates;
    let certificates = Certificates::new();
    let server = Server::start_tls(&certificates, &["--tls-auth-clients", "yes"]);
    let (ca, own) = (certificates.ca_file(), certificates.client());
    let tls = leasehold::Tls::new().ca_file(&ca).identity_files(&own.certificate, &own.key);
    let (ca, certificate, key) =
        (ca.to_str().unwrap(), own.certificate.to_str().unwrap(), own.key.to_str().unwrap());
    let options = ["--ca-file", ca, "--cert-file", certificate, "--key-file", key];
    Store::new(server.url(), &options, server.builder().tls(tls)).keeps_the_promises();
    for missing in [&options[..2], &options[2..], &[]] {
        let (status, _, said) =
            run(Store::new(server.url(), missing, server.builder()).run(&[], &["true"]));
        assert_eq!(status, Some(77), "{missing:?}: {said}");
    }
    let half = run(Store::new(server.url(), &options[..4], server.builder()).run(&[], &["true"]));
    assert_eq!(half.0, Some(64), "{}", half.2);
    server.assert_clean();
}

#[test]
fn over_masters_of_which_some_go_away() {
    let mut masters = Masters::start(3);
    let fresh = ["--redlock", "--admit-fresh-nodes"];
    Store::new(masters.urls().join(" "), &fresh, masters.builder()).keeps_the_promises();
    let store = Store::new(masters.urls().join(" "), &fresh[..1], masters.builder());
    let gate = Gate::in_dir(&store.dir);
    let (program, _) = store.start(&gate);
    masters.0[0].kill();
    let client = masters.client();
    assert!(client.mutex("job").try_lock_for(ms(7500)).unwrap().is_none(), "two of three renew it");
    gate.open();
    // It may report that the master that is down has not confirmed the release.
    program.ends_with(0);
    // The remaining two can still grant; with one they cannot.
    let gate = Gate::in_dir(&store.dir);
    let (program, _) = store.start(&gate);
    masters.0[1].kill();
    assert!(program.ends_with(70).contains("the lock is lost, so the command is ended"));
    let (status, _, said) = run(store.run(&["--no-wait"], &["true"]));
    assert_eq!(status, Some(69), "{said}");
    drop(client);
}

#[test]
fn masters_that_remember_nothing_vote_when_they_are_admitted_or_after_the_longest_lease() {
    let store = |masters: &Masters, options: &[&str]| {
        Store::new(
            masters.urls().join(" "),
            &[&["--redlock", "--no-wait"], options].concat(),
            masters.builder(),
        )
    };
    let masters = Masters::start(3);
    let (status, _, said) = run(store(&masters, &[]).run(&[], &["true"]));
    assert_eq!(status, Some(69), "{said}");
    let (status, _, said) = run(store(&masters, &["--longest-lease", "1s"]).run(&[], &["true"]));
    assert_eq!(status, Some(64), "shorter than the lease: {said}");
    assert_eq!(run(store(&masters, &["--admit-fresh-nodes"]).run(&[], &["true"])).0, Some(0));
    let mut others = Masters::fresh(3);
    others.0[0].restart();
    let store = store(&others, &["--longest-lease", "5s"]);
    let gate = Gate::in_dir(&store.dir);
    let (program, _) = store.start(&gate);
    // Far less than the default of 30 seconds.
    others.wait_until_all_vote();
    gate.open();
    program.ends_with(0);
}

#[test]
fn settings_of_masters_are_refused_without_them() {
    let server = Server::start();
    for option in [&["--longest-lease", "1m"][..], &["--admit-fresh-nodes"]] {
        let (status, _, said) =
            run(leasehold(&server, &[&["run", "job"], option, &["--", "true"]].concat()));
        assert_eq!(status, Some(64), "{said}");
    }
}

#[test]
fn a_prefix_keeps_names_apart() {
    let server = Server::start();
    let gate = Gate::in_dir(server.dir());
    let words = ["run", "job", "--key-prefix", "billing:", "--", "sh", "-c", &gate.script()];
    let program = Program::start(leasehold(&server, &words));
    program.expect("ready");
    assert_eq!(server.lock_keys(), ["billing:job"]);
    assert_eq!(run(leasehold(&server, &["run", "job", "--no-wait", "--", "true"])).0, Some(0));
    let same = ["--key-prefix", "billing:", "run", "job", "--no-wait", "--", "true"];
    assert_eq!(run(leasehold(&server, &same)).0, Some(75));
    gate.open();
    assert_eq!(program.ends_with(0), "");
    server.assert_clean();
}
