//! A private server on a Unix socket or a free port. It ends when the test ends.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use leasehold::{Builder, LockClient};

use super::{ms, signal, wait_until};

static NEXT: AtomicU32 = AtomicU32::new(0);

pub(crate) struct Server {
    dir: PathBuf,
    args: Vec<String>,
    process: Option<Child>,
    tcp: Option<u16>,
}

fn binary() -> String {
    if let Ok(named) = std::env::var("LEASEHOLD_SERVER") {
        return named;
    }
    let found = ["redis-server", "valkey-server"]
        .into_iter()
        .find(|name| Command::new(name).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok());
    found.expect("no redis-server or valkey-server: install one, or run `sh tests/run.sh`, which does").to_owned()
}

impl Server {
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    pub(crate) fn start_with(args: &[&str]) -> Self {
        Self::launch(args, None)
    }

    /// On a TCP port of 127.0.0.1 that the kernel chose.
    pub(crate) fn start_tcp(args: &[&str]) -> Self {
        let probe = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = probe.local_addr().unwrap().port();
        drop(probe);
        Self::launch(args, Some(port))
    }

    fn launch(args: &[&str], tcp: Option<u16>) -> Self {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("lh-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let args = args.iter().map(|a| (*a).to_owned()).collect();
        let mut server = Self { dir, args, process: None, tcp };
        server.spawn();
        server
    }

    fn spawn(&mut self) {
        self.spawn_unready();
        wait_until("the server's first PONG", || {
            self.try_connect().is_some_and(|mut c| redis::cmd("PING").query::<String>(&mut c).is_ok())
        });
    }

    fn spawn_unready(&mut self) {
        let port = self.tcp.unwrap_or(0).to_string();
        let process = Command::new(binary())
            .args(["--port", &port, "--bind", "127.0.0.1", "--dir", self.dir.to_str().unwrap()])
            .arg("--unixsocket")
            .arg(self.socket())
            .args(["--save", "", "--appendonly", "no", "--loglevel", "warning"])
            .args(&self.args)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        self.process = Some(process);
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.join("s")
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn url(&self) -> String {
        match self.tcp {
            Some(port) => format!("redis://127.0.0.1:{port}/"),
            None => format!("redis+unix://{}", self.socket().display()),
        }
    }

    pub(crate) fn client(&self) -> LockClient {
        LockClient::open(&self.url()).unwrap()
    }

    pub(crate) fn builder(&self) -> Builder {
        LockClient::builder().url(self.url())
    }

    pub(crate) fn try_connect(&self) -> Option<redis::Connection> {
        let url = format!("redis+unix://{}", self.socket().display());
        let connection = redis::Client::open(url).unwrap().get_connection_with_timeout(ms(2000)).ok()?;
        connection.set_read_timeout(Some(ms(10_000))).unwrap();
        Some(connection)
    }

    pub(crate) fn connect(&self) -> redis::Connection {
        self.try_connect().expect("the server can be reached")
    }

    pub(crate) fn cmd<T: redis::FromRedisValue>(&self, words: &[&str]) -> T {
        let mut cmd = redis::cmd(words[0]);
        for word in &words[1..] {
            cmd.arg(*word);
        }
        cmd.query(&mut self.connect()).unwrap_or_else(|e| panic!("{words:?}: {e}"))
    }

    /// The major version of Redis that the server is compatible with: 6, or 7 and later.
    pub(crate) fn major(&self) -> u32 {
        let info: String = self.cmd(&["INFO", "server"]);
        let version = info.lines().find_map(|line| line.strip_prefix("redis_version:")).unwrap();
        version.split('.').next().unwrap().parse().unwrap()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.as_ref().unwrap().id()
    }

    pub(crate) fn suspend(&self) {
        signal(self.pid(), "STOP");
    }

    pub(crate) fn resume(&self) {
        signal(self.pid(), "CONT");
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
        let _ = std::fs::remove_file(self.socket());
    }

    /// Starts the server again on the same socket and port, with the data it persisted.
    pub(crate) fn start_again(&mut self) {
        assert!(self.process.is_none());
        self.spawn();
    }

    pub(crate) fn restart(&mut self) {
        self.kill();
        self.spawn();
    }

    pub(crate) fn hash(&self, key: &str) -> BTreeMap<String, String> {
        self.cmd(&["HGETALL", key])
    }

    pub(crate) fn pttl(&self, key: &str) -> i64 {
        self.cmd(&["PTTL", key])
    }

    /// All keys except those that are meant to stay for a while: token counters, a master's record
    /// of its admission, and idempotency keys that expire.
    pub(crate) fn lock_keys(&self) -> Vec<String> {
        let keys: Vec<String> = self.cmd(&["KEYS", "*"]);
        let stays = |key: &str| {
            key == "leasehold:node"
                || key.starts_with("redisson_lock_token:")
                || (key.starts_with("leasehold_once:") && self.pttl(key) != -1)
        };
        keys.into_iter().filter(|key| !stays(key)).collect()
    }

    pub(crate) fn channels(&self) -> Vec<String> {
        self.cmd(&["PUBSUB", "CHANNELS"])
    }

    pub(crate) fn client_lines(&self) -> Vec<String> {
        let list: String = self.cmd(&["CLIENT", "LIST"]);
        list.lines().map(str::to_owned).collect()
    }

    /// How often each command ran, including commands inside scripts.
    pub(crate) fn calls(&self) -> HashMap<String, u64> {
        let info: String = self.cmd(&["INFO", "commandstats"]);
        let calls = |line: &str| {
            let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
            Some((name.to_owned(), rest.split(',').next()?.parse().ok()?))
        };
        info.lines().filter_map(calls).collect()
    }

    pub(crate) fn call_count(&self, name: &str) -> u64 {
        self.calls().get(name).copied().unwrap_or(0)
    }

    /// Waits until nothing is left: no lock, no subscription, and no connection except the one that
    /// asks.
    #[track_caller]
    pub(crate) fn assert_clean(&self) {
        wait_until("no key, connection or subscription is left", || {
            self.lock_keys().is_empty() && self.client_lines().len() == 1 && self.channels().is_empty()
        });
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}
