//! `leasehold doctor`: its statuses, its text and its JSON, for servers of each kind.

use std::process::{Command, Stdio};

use serde_json::Value;

use crate::json::checked;
use crate::program::{leasehold, leasehold_at, path, run};
use crate::rig::{
    Cluster, ClusterOptions, MASTER_NAME, SentinelOptions, Sentinels, Server, acl_rule,
};
use crate::support::{Clients, Masters};

/// Persistent, as recommended.
const GOOD: [&str; 2] = ["--appendonly", "yes"];
const SECRET: &str = "s3cr3t-of-the-d0ctor";

/// The report about the same servers as text and as JSON.
struct Said {
    status: i32,
    text: String,
    json: Value,
}

impl Said {
    /// Runs it in both forms, and checks what holds for every report.
    #[track_caller]
    fn by(url: &str, options: &[&str]) -> Self {
        let asked = |more: &[&str]| run(leasehold_at(url, &[&["doctor"], options, more].concat()));
        let (status, text, said) = asked(&[]);
        assert_eq!(said, "", "{text}");
        let (with_json, json, said) = asked(&["--json"]);
        assert_eq!((with_json, &*said, json.lines().count()), (status, "", 1), "{text}\n{json}");
        let json = checked("doctor", &json);
        let said = Self { status: status.unwrap(), text, json };
        said.check();
        said
    }

    fn check(&self) {
        let Self { status, text, json } = self;
        assert!(
            !text.contains(SECRET) && !json.to_string().contains(SECRET),
            "the password is printed"
        );
        assert!(!text.contains('\x1b'), "colours without a terminal: {text}");
        let count = |name: &str| json[name].as_u64().unwrap();
        let severities = ["ok", "note", "warning", "problem"];
        let of = |severity: &str| {
            self.findings().iter().filter(|one| one["severity"] == severity).count() as u64
        };
        for (severity, name) in
            [("problem", "problems"), ("warning", "warnings"), ("note", "notes")]
        {
            assert_eq!(of(severity), count(name), "{json}");
        }
        let worst = severities.into_iter().rfind(|severity| of(severity) > 0).unwrap();
        assert_eq!(json["severity"], worst);
        let expected = match worst {
            "problem" => 2,
            "warning" => 1,
            _ => 0,
        };
        assert_eq!(*status, expected, "{text}");
        let last = text.lines().last().unwrap();
        assert!(last.starts_with(&format!("{} problem", count("problems"))), "{text}");
        for finding in self.findings() {
            assert!(
                !finding["found"].as_str().unwrap().is_empty() && finding["check"].is_string(),
                "{finding}"
            );
        }
    }

    fn findings(&self) -> &[Value] {
        self.json["findings"].as_array().unwrap()
    }

    /// Checks that both forms have a finding with this severity whose text or advice contains these
    /// words.
    #[track_caller]
    fn says(&self, check: &str, severity: &str, words: &str) {
        let found = self.findings().iter().find(|one| {
            let has = |part: &str| one[part].as_str().is_some_and(|text| text.contains(words));
            one["check"] == check && one["severity"] == severity && (has("found") || has("advice"))
        });
        let found =
            found.unwrap_or_else(|| panic!("no {severity} {check} {words:?}:\n{}", self.text));
        let line = format!("  {severity:<8}{check:<12}");
        assert!(
            self.text.lines().any(|one| one.starts_with(&line)) && self.text.contains(words),
            "{}",
            self.text
        );
        if let Some(advice) = found["advice"].as_str().filter(|advice| advice.contains(words)) {
            assert!(self.text.contains(&format!("\n{:22}-> {advice}\n", "")), "{}", self.text);
        }
        if let Some(node) = found["node"].as_str() {
            assert!(
                self.text.lines().any(|line| line == node),
                "{node} has no heading:\n{}",
                self.text
            );
        }
    }

    fn nodes(&self) -> usize {
        let nodes: std::collections::BTreeSet<_> =
            self.findings().iter().filter_map(|one| one["node"].as_str()).collect();
        nodes.len()
    }
}

#[test]
fn the_status_is_that_of_the_worst_finding() {
    let server = Server::start_with(&GOOD);
    let good = Said::by(&server.url(), &[]);
    assert_eq!(good.status, 0, "{}", good.text);
    good.says("persistence", "note", "about the last second");
    server.cmd::<()>(&["CONFIG", "SET", "appendonly", "no"]);
    let warned = Said::by(&server.url(), &[]);
    assert_eq!(warned.status, 1, "{}", warned.text);
    warned.says("persistence", "warning", "set appendonly yes");
    server.cmd::<()>(&["CONFIG", "SET", "maxmemory", "500mb"]);
    server.cmd::<()>(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    let bad = Said::by(&server.url(), &[]);
    assert_eq!(bad.status, 2, "{}", bad.text);
    bad.says("eviction", "problem", "maxmemory-policy noeviction");
    assert!(server.cmd::<Vec<String>>(&["KEYS", "*"]).is_empty(), "nothing is left");
    server.assert_clean();
}

#[test]
fn a_server_that_is_down_is_a_problem() {
    let mut server = Server::start();
    let url = server.url();
    server.kill();
    let said = Said::by(&url, &[]);
    assert_eq!(said.status, 2);
    said.says("reachable", "problem", "no server listens");
    server.start_again();
}

#[test]
fn a_wrong_password_is_a_problem_and_is_not_repeated() {
    let server = Server::start_with(&["--requirepass", "right", "--appendonly", "yes"]);
    let wrong = Said::by(&format!("{}?pass={SECRET}", server.url()), &[]);
    assert_eq!(wrong.status, 2);
    wrong.says("log_in", "problem", "password");
    let file = server.dir().join("password");
    std::fs::write(&file, "right\n").unwrap();
    assert_eq!(Said::by(&server.url(), &["--password-file", file.to_str().unwrap()]).status, 0);
}

#[test]
fn rights_that_are_missing_are_named() {
    let server = Server::start_with(&GOOD);
    let url = format!("{}?user=u&pass={SECRET}", server.url());
    let user = |without: &str| {
        let rule = acl_rule(&["app:*"]);
        let words: Vec<&str> =
            rule.iter().map(String::as_str).filter(|word| *word != without).collect();
        let begin = ["ACL", "SETUSER", "u", "reset", "on", &format!(">{SECRET}"), "resetchannels"];
        server.cmd::<()>(&[&begin, &words[..]].concat());
        Said::by(&url, &["--key-prefix", "app:"])
    };
    assert_eq!(user("").status, 0);
    for missing in ["+hget", "+publish"] {
        let said = user(missing);
        assert_eq!(said.status, 2);
        said.says("right", "problem", missing);
    }
    if server.major() >= 7 {
        user("~redisson_lock_token:*").says("right", "problem", "add ~redisson_lock_token:* to");
        user("+client|kill").says("kill", "note", "+client|kill");
    }
}

#[test]
fn the_url_is_an_argument_or_in_the_environment() {
    let (server, other) = (Server::start_with(&GOOD), Server::start());
    let url = server.url();
    for arguments in
        [vec!["doctor", &*url], vec!["--url", &*url, "doctor"], vec!["doctor", "--url", &*url]]
    {
        // The environment is ignored then.
        let (status, out, _) = run(leasehold(&other, &arguments));
        assert_eq!(status, Some(0), "{out}");
        assert!(out.starts_with(&url["redis+unix://".len()..]), "{out}");
    }
    let (status, _, said) = run({
        let mut without = leasehold(&server, &["doctor"]);
        without.env_remove("LEASEHOLD_URL");
        without
    });
    assert_eq!(status, Some(64));
    assert!(said.contains("LEASEHOLD_URL"), "{said}");
    for arguments in [vec!["doctor", "http://somewhere/"], vec!["doctor", &*url, "--lease", "1ms"]]
    {
        assert_eq!(run(leasehold(&server, &arguments)).0, Some(64), "{arguments:?}");
    }
}

#[test]
fn a_password_in_an_argument_is_refused_and_not_repeated() {
    for url in
        [format!("redis://:{SECRET}@127.0.0.1/"), format!("redis+unix:///nowhere?pass={SECRET}")]
    {
        let arguments = ["doctor", &*url, "--json"];
        let (status, out, said) = run(leasehold_at("redis://127.0.0.1:1/", &arguments));
        assert_eq!((status, &*out), (Some(64), ""));
        assert!(said.contains("LEASEHOLD_URL") && said.contains("--password-file"), "{said}");
        assert!(!said.contains(SECRET));
    }
}

/// While it waits for a server that hangs.
#[cfg(target_os = "linux")]
#[test]
fn no_command_line_has_the_password() {
    let server = Server::start_with(&["--requirepass", "d0ctor-w0rd"]);
    let url = format!("{}?pass=d0ctor-w0rd", server.url());
    server.suspend();
    let mut doctor = leasehold_at(&url, &["doctor"]).stdout(Stdio::null()).spawn().unwrap();
    let of = |pid: u32| std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    crate::rig::wait_until("it is running", || of(doctor.id()).contains("doctor"));
    assert!(!of(doctor.id()).contains("w0rd"));
    server.resume();
    doctor.wait().unwrap();
}

#[test]
fn one_master_of_redlock_that_is_down_is_a_warning_of_the_whole() {
    let mut masters = Masters::fresh(3);
    let urls = masters.urls();
    let arguments: Vec<&str> =
        [&["--redlock"][..], &urls.iter().map(String::as_str).collect::<Vec<_>>()].concat();
    let all = Said::by("", &arguments);
    assert_eq!((all.status, all.nodes()), (0, 3), "{}", all.text);
    all.says("quorum", "ok", "3 of 3 masters vote");
    masters.0[0].kill();
    let one_down = Said::by("", &arguments);
    one_down.says("quorum", "warning", "2 of 3 masters can be used");
    one_down.says("reachable", "warning", "no server listens");
    assert_eq!(one_down.status, 1, "locks work: {}", one_down.text);
    // All URLs are in the environment.
    assert_eq!(Said::by(&urls.join(" "), &["--redlock"]).status, 1);
    masters.0[1].kill();
    let two_down = Said::by(&urls.join(" "), &["--redlock"]);
    assert_eq!(two_down.status, 2);
    two_down.says("quorum", "problem", "nothing can be locked");
    two_down.says("reachable", "problem", "no server listens");
}

#[test]
fn every_primary_of_a_cluster_is_asked() {
    let args = [&GOOD[..], &["--cluster-require-full-coverage", "no"]].concat();
    let options = ClusterOptions { args: &args, ..ClusterOptions::default() };
    let cluster = Cluster::start_with(ClusterOptions { node_timeout: 15_000, ..options });
    let nodes: Vec<String> =
        (0..6).map(|index| format!("127.0.0.1:{}", cluster.node(index).announced_port())).collect();
    let said = Said::by(&format!("redis+cluster://{}", nodes.join(",")), &[]);
    assert_eq!((said.status, said.nodes()), (0, 3), "{}", said.text);
    said.says("slots", "ok", "3 primaries have all slots");
}

#[test]
fn sentinels_are_asked_and_their_master() {
    let options = SentinelOptions { server_args: &GOOD, ..SentinelOptions::default() };
    let mut sentinels = Sentinels::start_with(options);
    let addresses: Vec<String> = (0..3)
        .map(|index| format!("127.0.0.1:{}", sentinels.sentinel(index).announced_port()))
        .collect();
    let url = format!("redis+sentinel://{}/{MASTER_NAME}", addresses.join(","));
    let said = Said::by(&url, &[]);
    assert_eq!((said.status, said.nodes()), (0, 4), "{}", said.text);
    said.says("sentinels", "ok", "3 of 3 sentinels agree");
    sentinels.kill_sentinel(0);
    let said = Said::by(&url, &[]);
    assert_eq!(said.status, 1, "{}", said.text);
    said.says("sentinels", "warning", "bring this sentinel back");
}

#[cfg(feature = "tls")]
#[test]
fn a_server_with_tls_is_asked() {
    let certificates = crate::rig::Certificates::new();
    let server = Server::start_tls(&certificates, &GOOD);
    let file = certificates.ca_file();
    let said = Said::by(&server.url(), &["--ca-file", file.to_str().unwrap()]);
    assert_eq!(said.status, 0, "{}", said.text);
    said.says("tls", "ok", "the connection has TLS, with a certificate that ends in");
    let stranger = Said::by(&server.url(), &[]);
    assert_eq!(stranger.status, 2);
    stranger.says("tls", "problem", "");
}

#[cfg(feature = "postgres")]
#[test]
fn a_postgres_is_asked() {
    let server = crate::rig::Postgres::start_with("fsync = on");
    drop(server.client());
    let said = Said::by(&server.url(), &[]);
    assert_eq!(said.status, 0, "{}", said.text);
    said.says("schema", "ok", "leasehold_v1");
    said.says("right", "ok", "every right");
    server.stop("immediate");
    assert_eq!(Said::by(&server.url(), &[]).status, 2);
}

#[cfg(feature = "zookeeper")]
#[test]
fn a_zookeeper_is_asked() {
    let server = crate::rig::zookeeper::ZooKeeper::start_with("tickTime=2000");
    let said = Said::by(&server.url(), &[]);
    assert_eq!(said.status, 0, "{}", said.text);
    said.says("role", "ok", "standalone");
    said.says("ensemble", "note", "three servers");
    server.kill();
    assert_eq!(Said::by(&server.url(), &["--lease", "10s"]).status, 2);
}

/// In a terminal of 80 columns lines are wrapped, and severities are coloured unless NO_COLOR is
/// set.
#[test]
fn at_a_terminal_lines_are_wrapped_and_coloured() {
    let server = Server::start();
    let shown = |no_color: &str| {
        let line = format!("stty cols 80; exec {} doctor", path());
        let mut script = Command::new("script");
        script
            .args(["-qec", &line, "/dev/null"])
            .env("LEASEHOLD_URL", server.url())
            .env("NO_COLOR", no_color);
        let output = script.env("SHELL", "/bin/sh").stdin(Stdio::null()).output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap().replace('\r', ""))
    };
    let (status, coloured) = shown("");
    assert_eq!(status, Some(1), "{coloured}");
    assert!(coloured.contains("\x1b[33mwarning \x1b[0m"), "{coloured}");
    let (_, plain) = shown("1");
    assert!(!plain.contains('\x1b'), "{plain}");
    assert!(plain.lines().all(|line| line.chars().count() <= 80), "{plain}");
    let advice = format!("\n{:25}token decide", "");
    assert!(plain.contains(&advice) || plain.contains("\n                         "), "{plain}");
}

#[test]
fn the_acl_rule_for_a_cluster_has_its_commands_whatever_its_url_is_called() {
    for (scheme, is_cluster) in [
        ("redis+cluster", true),
        ("rediss+cluster", true),
        ("valkey+cluster", true),
        ("valkeys+cluster", true),
        ("Redis+Cluster", true),
        ("redis", false),
        ("redis+sentinel", false),
    ] {
        let (_, rule, _) = run(leasehold_at(&format!("{scheme}://cache"), &["doctor", "--acl"]));
        assert_eq!(rule.contains(" +cluster|slots "), is_cluster, "{scheme}: {rule}");
    }
}

/// The text for administrators is identical to the documentation.
#[test]
fn the_acl_rule_is_printed_and_is_enough() {
    let server = Server::start_with(&GOOD);
    let (status, rule, said) =
        run(leasehold(&server, &["doctor", "--acl", "--key-prefix", "app:"]));
    assert_eq!((status, &*said), (Some(0), ""));
    let lines: Vec<&str> =
        rule.lines().filter_map(|line| line.strip_prefix("ACL SETUSER app ")).collect();
    let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let for_programs = words(lines[0]);
    assert_eq!(for_programs[2..], acl_rule(&["app:*"]), "as guide::operations");
    if server.major() < 7 {
        return;
    }
    for line in &lines {
        let line = line.replace("password", SECRET);
        server.cmd::<()>(
            &[&["ACL", "SETUSER", "app"][..], &line.split(' ').collect::<Vec<_>>()].concat(),
        );
    }
    let file = server.dir().join("password");
    std::fs::write(&file, SECRET).unwrap();
    let url = format!("{}?user=app", server.url());
    let as_user = |words: &[&str]| {
        let with = ["--password-file", file.to_str().unwrap(), "--key-prefix", "app:"];
        let (front, command) =
            words.split_at(words.iter().position(|word| *word == "--").unwrap_or(words.len()));
        run(leasehold_at(&url, &[front, &with, command].concat()))
    };
    for words in [
        &["run", "job", "--", "true"][..],
        &["run", "line", "--fair", "--", "true"],
        &["run", "rw", "--write", "--", "true"],
        &["ls"],
        &["ls", "--all"],
    ] {
        let (status, _, said) = as_user(words);
        assert_eq!(status, Some(0), "{words:?}: {said}");
    }
    let (status, text, _) = as_user(&["doctor"]);
    assert!(status == Some(0) && !text.contains("may not"), "{text}");
    let log: Vec<redis::Value> = server.cmd(&["ACL", "LOG"]);
    assert!(log.is_empty(), "{log:?}");
}

#[cfg(feature = "postgres")]
#[test]
fn the_schema_of_a_database_is_printed_with_the_rights() {
    let mut command = Command::new(path());
    command.args(["schema", "--postgres"]).env_remove("LEASEHOLD_URL");
    let (status, sql, said) = run(command);
    assert_eq!((status, &*said), (Some(0), ""));
    assert!(sql.starts_with(leasehold::POSTGRES_SCHEMA.lines().next().unwrap()));
    let chapter = include_str!("../../../src/guide/postgres.rs");
    let grants: Vec<&str> =
        chapter.lines().filter_map(|line| line.strip_prefix("//! GRANT ")).collect();
    assert!(grants.len() > 5);
    for grant in grants {
        assert!(sql.contains(&format!("-- GRANT {grant}")), "{grant}");
    }
}

#[cfg(feature = "mysql")]
#[test]
fn the_tables_of_mysql_are_printed_with_the_rights() {
    let mut command = Command::new(path());
    command.args(["schema", "--mysql"]).env_remove("LEASEHOLD_URL");
    let (status, sql, said) = run(command);
    assert_eq!((status, &*said), (Some(0), ""));
    assert!(sql.starts_with(leasehold::MYSQL_SCHEMA.lines().next().unwrap()));
    let chapter = include_str!("../../../src/guide/mysql.rs");
    let grants: Vec<&str> =
        chapter.lines().filter_map(|line| line.strip_prefix("//! GRANT ")).collect();
    assert_eq!(grants.len(), 5);
    for grant in grants {
        assert!(sql.contains(&format!("-- GRANT {grant}")), "{grant}");
    }
}

/// Errors use the words of the command, not those of the library.
#[test]
fn errors_speak_of_options() {
    let server = Server::start();
    let two = format!("{} {}", server.url(), server.url());
    let (status, _, said) = run(leasehold_at(&two, &["run", "job", "--", "true"]));
    assert!(
        status == Some(64) && said.contains("--redlock") && !said.contains("Builder"),
        "{said}"
    );
    server.cmd::<()>(&[
        "ACL",
        "SETUSER",
        "poor",
        "on",
        ">word",
        "+@all",
        "-@scripting",
        "~*",
        "&*",
    ]);
    let denied = format!("{}?user=poor&pass=word", server.url());
    let (status, _, said) = run(leasehold_at(&denied, &["run", "job", "--", "true"]));
    assert!(
        status == Some(77) && said.contains("doctor --acl") && !said.contains("guide::"),
        "{said}"
    );
    let (status, _, said) = run(leasehold(&server, &["run", "job", "true"]));
    assert!(status == Some(64) && said.contains("leasehold run NAME -- COMMAND"), "{said}");
}
