//! Unsupported servers: too old, cluster nodes, sentinels, a database that does not exist.

use std::os::unix::net::UnixStream;
use std::path::Path;

use leasehold::ErrorKind;

use super::fake_server::{Fake, bulk};
use super::{SECRET, all_methods_fail, fails, settings, works};
use crate::rig::{Server, ms, wait_until};

/// Answers the handshake like Redis, with this reply to INFO.
fn fake_redis(info: &'static str) -> Fake {
    Fake::answering(move |words| match &*words[0] {
        "INFO" => bulk(info),
        "CLIENT" => b"-ERR Unknown subcommand\r\n".to_vec(),
        "SCRIPT" => bulk("0123456789012345678901234567890123456789"),
        "TIME" => b"*2\r\n$10\r\n1700000000\r\n$1\r\n0\r\n".to_vec(),
        _ => b"-ERR unknown command\r\n".to_vec(),
    })
}

#[test]
fn servers_that_are_too_old_or_of_another_kind_say_so() {
    for (info, says) in [
        ("# Server\r\nredis_version:5.0.14\r\nredis_mode:standalone\r\nrun_id:aa\r\n", "5.0.14"),
        (
            "# Server\r\nredis_version:6.0.16\r\nredis_mode:standalone\r\nrun_id:aa\r\n",
            "6.2 or later",
        ),
        ("# Server\r\nredis_version:7.2.4\r\nredis_mode:sentinel\r\nrun_id:aa\r\n", "sentinel"),
        ("# Server\r\nredis_version:7.2.4\r\nserver_mode:sentinel\r\nrun_id:aa\r\n", "sentinel"),
    ] {
        let fake = fake_redis(info);
        fails(ErrorKind::Unsupported, None, says, || settings(&fake.url()).build());
        let lazy = settings(&fake.url()).connect_lazily().build().unwrap();
        fails(ErrorKind::Unsupported, Some("job"), says, || lazy.try_lock("job"));
        drop(lazy);
        fake.assert_left();
    }
}

/// Otherwise the first unlock would fail although it freed the lock, and wake nobody.
#[test]
fn a_server_without_a_command_that_the_scripts_need_is_refused() {
    for command in ["PUBLISH", "HDEL", "ZMSCORE", "TIME"] {
        let server = Server::start_with(&["--rename-command", command, ""]);
        fails(ErrorKind::Unsupported, None, "does not have a command", || {
            settings(&server.url()).build()
        });
        assert!(server.cmd::<Vec<String>>(&["KEYS", "*"]).is_empty());
    }
}

/// As behind Envoy, which does not know SCRIPT: every script can be sent with its source.
#[test]
fn a_server_that_knows_no_script_load_or_no_evalsha_is_enough() {
    std::thread::scope(|s| {
        for missing in [&["SCRIPT"][..], &["EVALSHA"], &["SCRIPT", "EVALSHA"]] {
            s.spawn(move || is_enough_without(missing));
        }
    });
    // The probe runs all the same.
    let renamed =
        ["SCRIPT", "EVALSHA", "PUBLISH"].map(|command| ["--rename-command", command, ""]).concat();
    let server = Server::start_with(&renamed);
    fails(ErrorKind::Unsupported, None, "publish", || settings(&server.url()).build());
}

fn is_enough_without(missing: &[&str]) {
    let renamed: Vec<&str> =
        missing.iter().flat_map(|command| ["--rename-command", command, ""]).collect();
    let server = Server::start_with(&renamed);
    let settings = || settings(&server.url()).io_timeout(ms(2000));
    let (one, other) = (settings().build().unwrap(), settings().build().unwrap());
    let short = settings().lease(ms(4500)).build().unwrap();
    let renewed = short.rw_lock("rw").read().unwrap();
    let guard = one.lock("job").unwrap();
    std::thread::scope(|s| {
        let waiter = s.spawn(|| other.lock("job").unwrap().unlock());
        wait_until("it waits", || !server.channels().is_empty());
        guard.unlock().unwrap();
        waiter.join().unwrap().unwrap();
    });
    one.multi(["a", "b"]).lock().unwrap().unlock().unwrap();
    one.fair("f").lock().unwrap().unlock().unwrap();
    assert!(renewed.wait_lost(ms(5000)).is_still_held(), "without {missing:?}");
    renewed.unlock().unwrap();
    drop((one, other, short));
    server.assert_clean();
}

/// The server quotes the arguments of a command that it does not know, and that may be a script.
#[test]
fn no_error_contains_a_script() {
    let server =
        Server::start_with(&["--rename-command", "EVAL", "", "--rename-command", "EVALSHA", ""]);
    let error = fails(ErrorKind::Unsupported, None, "EVAL", || settings(&server.url()).build());
    assert!(!error.to_string().contains("KEYS"), "{error}");
}

#[test]
fn a_cluster_node_is_refused() {
    // The cluster bus listens 10 000 above the port, which must be a valid port too.
    let port = (0..200)
        .map(|_| std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port())
        .chain(20_000..21_000)
        .find(|port| {
            *port < 55_000 && std::net::TcpListener::bind(("127.0.0.1", port + 10_000)).is_ok()
        })
        .unwrap();
    let server = Server::start_with(&["--cluster-enabled", "yes", "--port", &port.to_string()]);
    fails(ErrorKind::Unsupported, None, "Builder::cluster", || settings(&server.url()).build());
    let lazy = settings(&server.url()).connect_lazily().build().unwrap();
    all_methods_fail(&lazy, "job", ErrorKind::Unsupported, "Builder::cluster");
}

#[test]
fn a_sentinel_is_refused() {
    let dir = std::env::temp_dir().join(format!("lh-sentinel-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let socket = dir.join("s");
    let mut sentinel = Sentinel::start(&dir, &socket);
    let url = format!("redis+unix://{}", socket.display());
    wait_until("the sentinel answers", || UnixStream::connect(&socket).is_ok());
    fails(ErrorKind::Unsupported, None, "sentinel", || settings(&url).build());
    sentinel.end();
    let _ = std::fs::remove_dir_all(&dir);
}

struct Sentinel(std::process::Child);

impl Sentinel {
    fn start(dir: &Path, socket: &Path) -> Self {
        // A sentinel writes its state into its configuration file, so it needs one.
        let file = dir.join("sentinel.conf");
        std::fs::write(
            &file,
            format!("port 0\nunixsocket {}\ndir {}\n", socket.display(), dir.display()),
        )
        .unwrap();
        let named = std::env::var("LEASEHOLD_SERVER").ok();
        let names = named.iter().map(String::as_str).chain(["redis-server", "valkey-server"]);
        let mut tries = names.map(|name| {
            let mut command = std::process::Command::new(name);
            command
                .arg(&file)
                .arg("--sentinel")
                .stdout(std::process::Stdio::null())
                .stderr(std::process::Stdio::null());
            command.spawn()
        });
        Self(tries.find_map(Result::ok).unwrap())
    }

    fn end(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        self.end();
    }
}

#[test]
fn a_database_that_does_not_exist_is_reported() {
    let server = Server::start();
    let url = format!("{}?db=99&user=default&pass={SECRET}", server.url());
    fails(ErrorKind::InvalidInput, None, "has no database 99", || settings(&url).build());
    let second = settings(&format!("{}?db=2", server.url())).build().unwrap();
    works(&second, "job");
    drop(second);
    server.assert_clean();
}
