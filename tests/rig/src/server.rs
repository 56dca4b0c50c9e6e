//! A private server on a Unix socket or a free port. It ends with the test.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use super::stepped_clock::SteppedClock;
use super::{CAP, Certificates, Identity, Proxy, free_port, fresh_dir, ms, signal, wait_until};

/// Where a server listens besides its Unix socket.
#[derive(Clone, Copy)]
pub enum Listen<'a> {
    Nowhere,
    Tcp,
    Tls(&'a Certificates),
}

impl<'a> Listen<'a> {
    pub fn with(tls: Option<&'a Certificates>) -> Self {
        tls.map_or(Self::Tcp, Self::Tls)
    }
}

/// Sends and loads the snapshot for a replica at once; by default both wait until the next second.
pub const PROMPT_SYNC: [&str; 4] =
    ["--repl-diskless-sync", "no", "--repl-diskless-load", "on-empty-db"];

pub struct Server {
    dir: PathBuf,
    args: Vec<String>,
    process: Option<Child>,
    /// The port on 127.0.0.1; 0 if there is only the Unix socket.
    port: u16,
    tls: bool,
    /// The password of the default user, if the server was started with one.
    password: Option<String>,
    proxy: Option<Arc<Proxy>>,
    /// The machine's, if none.
    clock: Option<SteppedClock>,
}

fn binary() -> String {
    if let Ok(named) = std::env::var("LEASEHOLD_SERVER") {
        return named;
    }
    let found = ["redis-server", "valkey-server"].into_iter().find(|name| {
        Command::new(name)
            .arg("--version")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok()
    });
    found
        .expect(
            "no redis-server or valkey-server: install one, or run `sh tests/run.sh`, which does",
        )
        .to_owned()
}

/// Starts servers in parallel, and creates all of them again if one cannot start: another process
/// may have taken its port.
pub fn start_together(make: impl Fn() -> Vec<Server>) -> Vec<Server> {
    for _ in 0..5 {
        let mut servers = make();
        for server in &mut servers {
            server.spawn_unready();
        }
        if servers.iter_mut().all(Server::becomes_ready) {
            return servers;
        }
    }
    panic!(
        "the servers ended during startup: {:?}",
        make().iter().map(|server| server.args.clone()).collect::<Vec<_>>()
    );
}

pub const CLIENT_INDEX: &str = "leasehold_client:{index}";

impl Server {
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    pub fn start_with(args: &[&str]) -> Self {
        Self::start_on(Listen::Nowhere, args)
    }

    /// With a clock of its own, which [`Self::step_clock`] sets.
    pub fn start_with_a_clock() -> Self {
        let start = || {
            let mut server = Self::prepare(Listen::Nowhere, &[]);
            server.clock = Some(SteppedClock::new(&server.dir));
            vec![server]
        };
        start_together(start).pop().unwrap()
    }

    /// Sets its wall clock to this many seconds ahead of the machine's.
    #[track_caller]
    pub fn step_clock(&self, seconds: i64) {
        self.clock.as_ref().expect("it was started with a clock of its own").step(seconds);
    }

    /// On a free TCP port of 127.0.0.1.
    pub fn start_tcp(args: &[&str]) -> Self {
        Self::start_on(Listen::Tcp, args)
    }

    /// Listens with TLS only, on a free port of 127.0.0.1. Clients need no certificate, unless the
    /// arguments include `--tls-auth-clients yes`.
    pub fn start_tls(certificates: &Certificates, args: &[&str]) -> Self {
        Self::start_on(Listen::Tls(certificates), args)
    }

    fn start_on(listen: Listen<'_>, args: &[&str]) -> Self {
        start_together(|| vec![Self::prepare(listen, args)]).pop().unwrap()
    }

    /// A server that does not run yet.
    pub fn prepare(listen: Listen<'_>, args: &[&str]) -> Self {
        let dir = fresh_dir();
        let port = if matches!(listen, Listen::Nowhere) { 0 } else { free_port() };
        let tls = matches!(listen, Listen::Tls(_));
        let path = |name: &str| dir.join(name).to_str().unwrap().to_owned();
        let number = port.to_string();
        let mut all: Vec<String> =
            if tls { vec!["--port", "0", "--tls-port", &number] } else { vec!["--port", &number] }
                .into_iter()
                .map(str::to_owned)
                .collect();
        if let Listen::Tls(certificates) = listen {
            Self::assert_has_tls();
            std::fs::copy(certificates.ca_file(), dir.join("ca.pem")).unwrap();
            copy(certificates.server(), &dir);
            for (option, value) in
                [("cert", "server.pem"), ("key", "server.key"), ("ca-cert", "ca.pem")]
            {
                all.extend([format!("--tls-{option}-file"), path(value)]);
            }
            all.extend(["--tls-auth-clients", "no"].map(str::to_owned));
        }
        all.extend(
            ["--bind", "127.0.0.1", "--dir", &path(""), "--unixsocket", &path("s")]
                .map(str::to_owned),
        );
        all.extend(
            ["--save", "", "--appendonly", "no", "--loglevel", "warning"].map(str::to_owned),
        );
        all.extend(args.iter().map(|arg| (*arg).to_owned()));
        let password = all.iter().skip_while(|arg| *arg != "--requirepass").nth(1).cloned();
        Self { dir, args: all, process: None, port, tls, password, proxy: None, clock: None }
    }

    /// Moves the arguments to a file that the server can rewrite; these stay on its command line.
    pub fn configured_by_file(mut self, args: &[&str]) -> Self {
        let mut text = String::new();
        for arg in &self.args {
            match arg.strip_prefix("--") {
                Some(name) => text += &format!("\n{name}"),
                None => text += &format!(" {arg:?}"),
            }
        }
        let file = self.dir.join("conf");
        std::fs::write(&file, text + "\n").unwrap();
        let rest = args.iter().map(|arg| (*arg).to_owned());
        self.args = std::iter::once(file.to_str().unwrap().to_owned()).chain(rest).collect();
        self
    }

    /// Appends to the file of [`Self::configured_by_file`].
    pub fn configure(&mut self, lines: &[String]) {
        let file = self.dir.join("conf");
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, text + &lines.join("\n") + "\n").unwrap();
        let password = lines.iter().find_map(|line| line.strip_prefix("requirepass "));
        self.password = password.map(str::to_owned).or(self.password.take());
    }

    /// Puts a proxy before a server that does not run yet. `lines` of its configuration make it
    /// announce the proxy's port as its own.
    pub fn hide_behind_a_proxy(&mut self, lines: impl FnOnce(u16) -> Vec<String>) {
        assert!(!self.tls, "the proxy cannot read a TLS connection");
        let proxy = Proxy::before(self);
        self.configure(&lines(proxy.port()));
        self.proxy = Some(Arc::new(proxy));
    }

    pub fn is_valkey() -> bool {
        static IS: OnceLock<bool> = OnceLock::new();
        *IS.get_or_init(|| {
            let output = Command::new(binary()).arg("--version").output().unwrap();
            String::from_utf8_lossy(&output.stdout).contains("Valkey")
        })
    }

    /// Fails the test if the server binary was built without TLS.
    #[track_caller]
    fn assert_has_tls() {
        static HAS: OnceLock<bool> = OnceLock::new();
        let has = *HAS.get_or_init(|| {
            // It ends because it has no certificate, or because it does not know the option.
            let output =
                Command::new(binary()).args(["--port", "0", "--tls-port", "1"]).output().unwrap();
            String::from_utf8_lossy(&output.stdout).contains("No tls-cert-file configured")
        });
        let binary = binary();
        assert!(
            has,
            "{binary} is built without TLS: name another in LEASEHOLD_SERVER, or leave this out: --skip tls"
        );
    }

    /// Presents this certificate on new connections.
    pub fn present(&self, identity: &Identity) {
        copy(identity, &self.dir);
        // Both files are read again, although their names are unchanged.
        self.cmd::<()>(&[
            "CONFIG",
            "SET",
            "tls-cert-file",
            self.dir.join("server.pem").to_str().unwrap(),
        ]);
    }

    fn spawn(&mut self) {
        self.spawn_unready();
        assert!(self.becomes_ready(), "the server ended during startup: {:?}", self.args);
    }

    /// Waits until it answers. False if it ended instead.
    fn becomes_ready(&mut self) -> bool {
        let mut ended = false;
        wait_until("the server's first PONG", || {
            ended = self.process.as_mut().unwrap().try_wait().unwrap().is_some();
            ended
                || self
                    .try_connect()
                    .is_some_and(|mut c| redis::cmd("PING").query::<String>(&mut c).is_ok())
        });
        !ended
    }

    fn spawn_unready(&mut self) {
        let mut command = Command::new(binary());
        if let Some(clock) = &self.clock {
            clock.apply(&mut command);
        }
        self.process = Some(
            command.args(&self.args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap(),
        );
    }

    pub fn socket(&self) -> PathBuf {
        self.dir.join("s")
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn url(&self) -> String {
        match (self.port, self.tls) {
            (0, _) => format!("redis+unix://{}", self.socket().display()),
            (port, false) => format!("redis://127.0.0.1:{port}/"),
            (port, true) => format!("rediss://127.0.0.1:{port}/"),
        }
    }

    pub fn password(&self) -> Option<&str> {
        self.password.as_deref()
    }

    #[track_caller]
    pub fn proxy(&self) -> &Proxy {
        self.proxy.as_ref().expect("it was started with a proxy")
    }

    #[track_caller]
    pub fn shared_proxy(&self) -> Arc<Proxy> {
        self.proxy.clone().expect("it was started with a proxy")
    }

    /// The port under which others in its group find it: the proxy's if it has one.
    pub fn announced_port(&self) -> u16 {
        self.proxy.as_ref().map_or(self.port, |proxy| proxy.port())
    }

    pub fn announced_url(&self) -> String {
        self.proxy.as_ref().map_or_else(|| self.url(), |proxy| proxy.url())
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn try_connect(&self) -> Option<redis::Connection> {
        let url = format!("redis+unix://{}", self.socket().display());
        let mut connection =
            redis::Client::open(url).unwrap().get_connection_with_timeout(ms(2000)).ok()?;
        connection.set_read_timeout(Some(ms(10_000))).unwrap();
        if let Some(password) = &self.password {
            redis::cmd("AUTH").arg(password).exec(&mut connection).ok()?;
        }
        Some(connection)
    }

    pub fn connect(&self) -> redis::Connection {
        // A sentinel that changes the role of a server closes the connections to it.
        std::iter::repeat_with(|| self.try_connect())
            .take(3)
            .flatten()
            .next()
            .expect("the server can be reached")
    }

    pub fn cmd<T: redis::FromRedisValue>(&self, words: &[&str]) -> T {
        let mut cmd = redis::cmd(words[0]);
        for word in &words[1..] {
            cmd.arg(*word);
        }
        // The system does not resume a read with a timeout after a signal to this process (man 7
        // signal). The command may then run twice.
        let is_interrupted =
            |e: &redis::RedisError| e.is_io_error() && e.to_string().contains("Interrupted");
        let answered = match cmd.query(&mut self.connect()) {
            Err(e) if is_interrupted(&e) => cmd.query(&mut self.connect()),
            answered => answered,
        };
        answered.unwrap_or_else(|e| panic!("{words:?}: {e}"))
    }

    /// The major version of Redis that the server is compatible with: 6, or 7 and later.
    pub fn major(&self) -> u32 {
        self.info("server", "redis_version").split('.').next().unwrap().parse().unwrap()
    }

    /// A field of `INFO`; empty if there is none.
    pub fn info(&self, section: &str, field: &str) -> String {
        let ask = || redis::cmd("INFO").arg(section).query::<String>(&mut self.try_connect()?).ok();
        // For the same reason as in `connect`.
        let info = std::iter::repeat_with(ask)
            .take(3)
            .find_map(|info| info)
            .expect("the server answers INFO");
        let value = info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        value.unwrap_or_default().to_owned()
    }

    pub fn pid(&self) -> u32 {
        self.process.as_ref().unwrap().id()
    }

    /// Whether the master has this many replicas and streams its writes to them.
    pub fn feeds(&self, replicas: usize) -> bool {
        let online =
            |index| self.info("replication", &format!("slave{index}")).contains("state=online");
        (0..replicas).all(online)
    }

    pub fn follows_a_master(&self) -> bool {
        self.info("replication", "master_link_status") == "up"
    }

    /// False if it is suspended or killed.
    pub fn runs(&self) -> bool {
        let stat =
            |process: &Child| std::fs::read_to_string(format!("/proc/{}/stat", process.id()));
        self.process
            .as_ref()
            .is_some_and(|process| stat(process).is_ok_and(|stat| !stat.contains(") T ")))
    }

    pub fn suspend(&self) {
        signal(self.pid(), "STOP");
    }

    pub fn resume(&self) {
        signal(self.pid(), "CONT");
    }

    /// SIGKILL.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
        let _ = std::fs::remove_file(self.socket());
    }

    /// Starts the server again on the same socket and port, with the data it persisted.
    pub fn start_again(&mut self) {
        assert!(self.process.is_none());
        self.spawn();
    }

    pub fn restart(&mut self) {
        self.kill();
        self.spawn();
    }

    pub fn hash(&self, key: &str) -> BTreeMap<String, String> {
        self.cmd(&["HGETALL", key])
    }

    pub fn pttl(&self, key: &str) -> i64 {
        self.cmd(&["PTTL", key])
    }

    /// All keys except those that are meant to stay for a while: token counters, a Redlock master's
    /// quarantine record, idempotency keys and data that expire, and the records of clients.
    pub fn lock_keys(&self) -> Vec<String> {
        let mut connection = self.connect();
        // A replica in a cluster reports the keys of others only then, and others refuse it.
        let _ = redis::cmd("READONLY").exec(&mut connection);
        let keys: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut connection).unwrap();
        let mut expires =
            |key: &str| redis::cmd("PTTL").arg(key).query::<i64>(&mut connection).unwrap() != -1;
        let mut stays = |key: &str| {
            key == "leasehold:node"
                || key.starts_with("leasehold_client:")
                || key.starts_with("redisson_lock_token:")
                || (["leasehold_once:", "leasehold_data:", "leasehold_done:", "leasehold_last:"]
                    .iter()
                    .any(|kept| key.starts_with(kept))
                    && expires(key))
        };
        keys.into_iter().filter(|key| !stays(key)).collect()
    }

    /// The records that clients have written about themselves, without their index.
    pub fn client_keys(&self) -> Vec<String> {
        let mut keys: Vec<String> = self.cmd(&["KEYS", "leasehold_client:*"]);
        keys.retain(|key| key != CLIENT_INDEX);
        keys
    }

    /// The channels with a subscriber that is not a sentinel.
    pub fn channels(&self) -> Vec<String> {
        let mut channels: Vec<String> = self.cmd(&["PUBSUB", "CHANNELS"]);
        channels.retain(|channel| channel != "__sentinel__:hello");
        channels
    }

    /// The answer to `CLIENT LIST`. `None` if it gives none.
    pub fn try_list(&self) -> Option<String> {
        redis::cmd("CLIENT").arg("LIST").query(&mut self.try_connect()?).ok()
    }

    pub fn client_lines(&self) -> Vec<String> {
        let list: String = self.cmd(&["CLIENT", "LIST"]);
        list.lines().map(str::to_owned).collect()
    }

    /// How often each command ran, including those in scripts.
    pub fn calls(&self) -> HashMap<String, u64> {
        let info: String = self.cmd(&["INFO", "commandstats"]);
        let calls = |line: &str| {
            let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
            Some((name.to_owned(), rest.split(',').next()?.parse().ok()?))
        };
        info.lines().filter_map(calls).collect()
    }

    pub fn call_count(&self, name: &str) -> u64 {
        self.calls().get(name).copied().unwrap_or(0)
    }

    /// Waits until nothing is left: no lock, no subscription, and no connection except the one that
    /// asks and those of other servers.
    #[track_caller]
    pub fn assert_clean(&self) {
        let start = Instant::now();
        loop {
            let left = self.left();
            if left.is_empty() {
                return;
            }
            assert!(start.elapsed() < CAP, "left behind on {}: {left:#?}", self.url());
            std::thread::sleep(ms(2));
        }
    }

    /// Keys of locks and clients, connections of clients that are not servers (without the one that
    /// asks), and channels.
    fn left(&self) -> Vec<String> {
        let mut clients: Vec<_> =
            self.client_lines().into_iter().filter(|line| !is_of_a_server(line)).collect();
        if let Some(asker) = clients.iter().position(|line| line.contains("cmd=client")) {
            clients.remove(asker);
        }
        // Unknown before version 7.
        let sharded =
            redis::cmd("PUBSUB").arg("SHARDCHANNELS").query::<Vec<String>>(&mut self.connect());
        let about_clients: Vec<String> = self.cmd(&["KEYS", "leasehold_client:*"]);
        [self.lock_keys(), about_clients, clients, self.channels(), sharded.unwrap_or_default()]
            .concat()
    }
}

/// Whether a line of `CLIENT LIST` describes a replica, a master, a sentinel, or a connection that
/// `MIGRATE` keeps open for a while.
fn is_of_a_server(line: &str) -> bool {
    line.split(' ').any(|field| match field.split_once('=') {
        Some(("flags", flags)) => flags.contains(['S', 'M']),
        Some(("name", name)) => name.starts_with("sentinel-"),
        Some(("cmd", command)) => command.starts_with("restore"),
        _ => false,
    })
}

fn copy(identity: &Identity, dir: &Path) {
    std::fs::copy(&identity.certificate, dir.join("server.pem")).unwrap();
    std::fs::copy(&identity.key, dir.join("server.key")).unwrap();
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}
