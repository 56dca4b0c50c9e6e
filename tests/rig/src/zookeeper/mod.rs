//! A ZooKeeper on a free port, used by one test at a time. When the test ends it ends too, or is
//! lent to the next one; it also ends when the test binary dies.

mod ensemble;
mod lent;
mod pipe;
mod raw;

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

pub use ensemble::{Ensemble, EnsembleOptions};
pub use lent::Lent;
pub use pipe::Pipe;
pub use raw::{
    CONTAINER, EPHEMERAL, EPHEMERAL_SEQUENTIAL, NO_NODE, NODE_EXISTS, Node, PERSISTENT, Raw,
};

use super::{
    CAP, Certificates, Identity, JavaProgram, Version, free_port, fresh_dir, ms, signal, wait_for,
    wait_until,
};

/// ZooKeeper, and Curator.
pub static CURATOR: JavaProgram = JavaProgram::new(
    "curator",
    &[
        Version {
            property: "zookeeper.version",
            variable: "LEASEHOLD_ZOOKEEPER_VERSION",
            default: "3.9.5",
        },
        Version {
            property: "curator.version",
            variable: "LEASEHOLD_CURATOR_VERSION",
            default: "5.9.0",
        },
    ],
    "--skip zookeeper",
);

/// `tickTime` of the servers: they grant sessions of 2 to 20 ticks, and expire sessions at the end
/// of each tick.
pub const TICK: Duration = ms(500);

/// A start takes one or two seconds, or several when the machine is busy.
const START: Duration = Duration::from_secs(60);

/// What a server is at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Standalone,
    Leader,
    Follower,
}

pub struct ZooKeeper {
    dir: PathBuf,
    /// The port for clients.
    port: u16,
    /// The port for clients with TLS; 0 for none.
    secure_port: u16,
    process: Mutex<Option<Child>>,
}

impl ZooKeeper {
    pub fn start() -> Self {
        Self::start_with("")
    }

    /// `settings`: lines of its configuration.
    pub fn start_with(settings: &str) -> Self {
        let alone = || {
            let port = free_port();
            let lines = format!("clientPort={port}\nclientPortAddress=127.0.0.1\n{settings}");
            vec![(Self::prepare(port, &lines), ())]
        };
        start_together(alone).pop().unwrap().0
    }

    /// Also serves clients with TLS on a port of its own, and trusts this authority's clients.
    pub fn start_tls(certificates: &Certificates, identity: &Identity, settings: &str) -> Self {
        let alone = || {
            let (port, secure_port) = (free_port(), free_port());
            let mut server = Self::prepare(port, "");
            server.secure_port = secure_port;
            server.present(identity);
            let lines = format!(
                "clientPort={port}\nclientPortAddress=127.0.0.1\nsecureClientPort={secure_port}\n\
                 secureClientPortAddress=127.0.0.1\n\
                 serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n\
                 ssl.keyStore.location={}\nssl.keyStore.type=PEM\n\
                 ssl.trustStore.location={}\nssl.trustStore.type=PEM\n{settings}\n",
                server.key_store().display(),
                certificates.ca_file().display()
            );
            let mut config =
                fs::OpenOptions::new().append(true).open(server.dir.join("zoo.cfg")).unwrap();
            config.write_all(lines.as_bytes()).unwrap();
            vec![(server, ())]
        };
        start_together(alone).pop().unwrap().0
    }

    fn key_store(&self) -> PathBuf {
        self.dir.join("identity.pem")
    }

    /// Makes it present this certificate from its next start on.
    pub fn present(&self, identity: &Identity) {
        let text = |path: &Path| fs::read_to_string(path).unwrap();
        fs::write(self.key_store(), text(&identity.key) + &text(&identity.certificate)).unwrap();
    }

    /// Its TLS port opens after the other one, and ends connections at first.
    fn is_secure_if_it_has_to(&self) -> bool {
        if self.secure_port == 0 {
            return true;
        }
        let Ok(mut stream) = TcpStream::connect(("127.0.0.1", self.secure_port)) else {
            return false;
        };
        stream.set_read_timeout(Some(ms(100))).unwrap();
        stream.read(&mut [0]).is_err_and(|e| e.kind() == std::io::ErrorKind::WouldBlock)
    }

    pub fn secure_port(&self) -> u16 {
        self.secure_port
    }

    pub fn secure_url(&self) -> String {
        format!("zookeeper+tls://127.0.0.1:{}", self.secure_port)
    }

    /// A server that does not run yet. Its configuration contains its ports.
    fn prepare(port: u16, settings: &str) -> Self {
        let dir = fresh_dir();
        let data = dir.join("data");
        fs::create_dir_all(&data).unwrap();
        let text = format!(
            "dataDir={}\ntickTime={}\ninitLimit=12\nadmin.enableServer=false\n4lw.commands.whitelist=*\n\
             maxClientCnxns=0\n{settings}\n",
            data.display(),
            TICK.as_millis()
        );
        fs::write(dir.join("zoo.cfg"), text).unwrap();
        Self { dir, port, secure_port: 0, process: Mutex::default() }
    }

    /// Comments of its settings are options of its JVM.
    fn spawn(&self) {
        let options = [
            "-Dznode.container.checkIntervalMs=200",
            // No test cuts the machine's power.
            "-Dzookeeper.forceSync=no",
            "-Dzookeeper.preAllocSize=1024",
            // The longest time for which a server that looks for a leader waits before it asks
            // again.
            "-Dzookeeper.fastleader.maxNotificationInterval=1000",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            "-Dorg.slf4j.simpleLogger.showDateTime=true",
            "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
        ];
        let mut options: Vec<String> = options.map(str::to_owned).to_vec();
        let settings = fs::read_to_string(self.dir.join("zoo.cfg")).unwrap();
        options
            .extend(settings.lines().filter_map(|line| line.strip_prefix("# ")).map(str::to_owned));
        options.push(format!("-Dorg.slf4j.simpleLogger.logFile={}", self.log().display()));
        options.push(format!("-Dcurator.remove={}", self.dir.display()));
        let mut command = CURATOR.command("Serve", &options);
        command.arg(self.dir.join("zoo.cfg")).current_dir(&self.dir);
        // The server ends when its standard input closes, which only this process keeps open. A
        // stopped server does not notice that, but when its parent dies the kernel sends SIGHUP and
        // SIGCONT to its process group, which contains nothing else.
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::null());
        let errors =
            fs::OpenOptions::new().create(true).append(true).open(self.dir.join("err")).unwrap();
        let process = command.stderr(errors).spawn().unwrap();
        assert!(self.process.lock().replace(process).is_none(), "it runs already");
    }

    fn log(&self) -> PathBuf {
        self.dir.join("log")
    }

    /// Waits until it serves clients. False if it ended instead.
    fn becomes_ready(&self) -> bool {
        let mut ended = false;
        wait_for(START, "the ZooKeeper serves", || {
            ended = self
                .process
                .lock()
                .as_mut()
                .is_none_or(|process| process.try_wait().unwrap().is_some());
            ended || self.mode().is_some() && self.is_secure_if_it_has_to()
        });
        !ended
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// `host:port`, as in the list of a URL.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub fn url(&self) -> String {
        format!("zookeeper://{}", self.address())
    }

    /// Its URL with a chroot, such as `/a/b`.
    pub fn url_in(&self, chroot: &str) -> String {
        format!("{}{chroot}", self.url())
    }

    pub fn pid(&self) -> u32 {
        self.process.lock().as_ref().expect("it runs").id()
    }

    /// False if it was killed. A suspended server counts as running.
    pub fn runs(&self) -> bool {
        self.process.lock().is_some()
    }

    pub fn suspend(&self) {
        signal(self.pid(), "STOP");
    }

    pub fn resume(&self) {
        signal(self.pid(), "CONT");
    }

    /// SIGKILL. Nothing happens if it does not run.
    pub fn kill(&self) {
        if let Some(mut process) = self.process.lock().take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    /// Adds this line to its configuration, from its next start on.
    pub fn configure(&self, line: &str) {
        let mut config =
            fs::OpenOptions::new().append(true).open(self.dir.join("zoo.cfg")).unwrap();
        writeln!(config, "{line}").unwrap();
    }

    /// Sends a line to the program around the server, see `Serve.java`.
    pub fn say(&self, line: &str) {
        let mut process = self.process.lock();
        let stdin = process.as_mut().expect("it runs").stdin.as_mut().expect("it is piped");
        writeln!(stdin, "{line}").unwrap();
        stdin.flush().unwrap();
    }

    /// Starts it on the same ports with the data it has, and waits until it serves.
    pub fn start_again(&self) {
        for _ in 0..5 {
            self.spawn();
            if self.becomes_ready() {
                return;
            }
            // Another process may have bound its port briefly, to check whether it is free.
            self.kill();
        }
        panic!("the ZooKeeper ends when it starts: {}", self.last_words());
    }

    pub fn restart(&self) {
        self.kill();
        self.start_again();
    }

    /// The reply to a four-letter word: `srvr`, `cons`, `wchc`, `dump`, `mntr`, ...
    pub fn try_ask(&self, word: &str) -> Option<String> {
        let mut stream =
            TcpStream::connect_timeout(&([127, 0, 0, 1], self.port).into(), ms(1000)).ok()?;
        stream.set_read_timeout(Some(ms(2000))).unwrap();
        stream.write_all(word.as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        Some(answer)
    }

    /// The same; a busy server may take some time.
    #[track_caller]
    pub fn ask(&self, word: &str) -> String {
        let mut answer = None;
        wait_until(word, || {
            answer = self.try_ask(word).filter(|answer| !answer.is_empty());
            answer.is_some()
        });
        answer.unwrap()
    }

    /// `None` if it does not serve clients at the moment.
    pub fn mode(&self) -> Option<Mode> {
        let answer = self.try_ask("srvr")?;
        match answer.lines().find_map(|line| line.strip_prefix("Mode: "))? {
            "standalone" => Some(Mode::Standalone),
            "leader" => Some(Mode::Leader),
            "follower" => Some(Mode::Follower),
            other => panic!("mode {other}"),
        }
    }

    /// A number of `mntr`, such as `zk_packets_received`. A server that looks for a leader has none.
    #[track_caller]
    pub fn figure(&self, name: &str) -> u64 {
        let mut found = None;
        wait_until(name, || {
            let answer = self.try_ask("mntr").unwrap_or_default();
            let value = answer.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('\t'));
            found = value.and_then(|value| value.parse().ok());
            found.is_some()
        });
        found.unwrap()
    }

    /// The connections that have sessions: lines of `cons`.
    pub fn connections(&self) -> Vec<String> {
        self.ask("cons")
            .lines()
            .filter(|line| line.contains("sid=0x"))
            .map(|line| line.trim().to_owned())
            .collect()
    }

    /// Each watch on this server's connections: the session and the path.
    pub fn watches(&self) -> Vec<(i64, String)> {
        of_sessions(self.try_ask("wchc").unwrap_or_default().lines())
    }

    /// All sessions, also those without a connection. Only a leader or a single server knows them.
    pub fn sessions(&self) -> Vec<i64> {
        self.sessions_and_ephemerals().0
    }

    /// Each ephemeral node and its session, without the gates of clients.
    pub fn ephemerals(&self) -> Vec<(i64, String)> {
        self.sessions_and_ephemerals().1
    }

    /// Both from one reply. Only the sessions are asked for once more: the server lists them by the
    /// time at which they end, and misses one whose time it moves meanwhile.
    pub fn sessions_and_ephemerals(&self) -> (Vec<i64>, Vec<(i64, String)>) {
        let (answer, again) = (self.ask("dump"), self.ask("dump"));
        let listed = |answer: &str| {
            let lines = answer.lines();
            let lines = lines.take_while(|line| !line.starts_with("ephemeral nodes dump"));
            lines.filter_map(session_of).collect::<Vec<i64>>()
        };
        let mut sessions = [listed(&answer), listed(&again)].concat();
        // The server lists them unordered.
        sessions.sort_unstable();
        sessions.dedup();
        let lines =
            answer.lines().skip_while(|line| !line.starts_with("Sessions with Ephemerals")).skip(1);
        let lines = lines.take_while(|line| !line.starts_with("Connections dump"));
        let mut ephemerals = of_sessions(lines);
        ephemerals.retain(|(_, path)| !path.contains("/leasehold-sessions/session-"));
        (sessions, ephemerals)
    }

    /// A session of the plain protocol, with the longest timeout that the server grants.
    #[track_caller]
    pub fn raw(&self) -> Raw {
        let mut session = None;
        wait_until("a session", || {
            session = Raw::connect(self.port, ms(60_000));
            session.is_some()
        });
        session.unwrap()
    }

    /// Runs `work` in a session of its own.
    #[track_caller]
    pub fn look<T>(&self, work: impl FnOnce(&mut Raw) -> T) -> T {
        let mut session = self.raw();
        let found = work(&mut session);
        session.close();
        found
    }

    /// The current children of a node, sorted as text; none if there is no such node.
    #[track_caller]
    pub fn children(&self, path: &str) -> Vec<String> {
        self.look(|session| {
            // Otherwise a follower may show an earlier state.
            let _ = session.sync("/");
            session.children(path).unwrap_or_default()
        })
    }

    #[track_caller]
    pub fn node(&self, path: &str) -> Option<Node> {
        self.look(|session| {
            let _ = session.sync("/");
            session.get(path).ok()
        })
    }

    /// The paths of all current nodes, parents first, without those of the server itself.
    #[track_caller]
    pub fn nodes(&self) -> Vec<String> {
        self.look(|session| {
            let _ = session.sync("/");
            session.tree("/").into_iter().map(|(path, _)| path).collect()
        })
    }

    /// Checks, after its clients have ended, that no session, connection, watch or node is left.
    #[track_caller]
    pub fn assert_clean(&self) {
        self.assert_clean_but(&[]);
    }

    /// The same, but these nodes and their parents may stay. (A container looks like a persistent
    /// node.)
    #[track_caller]
    pub fn assert_clean_but(&self, stay: &[&str]) {
        let may_stay = |path: &str| {
            stay.iter().any(|stays| *stays == path || stays.starts_with(&format!("{path}/")))
        };
        // The nodes come first, because looking at them takes a session.
        self.look(|session| {
            let start = Instant::now();
            loop {
                let _ = session.sync("/");
                // What is kept of scheduled jobs does not go by itself.
                let is_kept = |path: &str| {
                    path.contains("/leasehold_done:") || path.contains("/leasehold_last:")
                };
                for (path, _) in session.tree("/").iter().filter(|(path, _)| is_kept(path)) {
                    let _ = session.delete(path);
                }
                let mut left = session.tree("/");
                left.retain(|(path, _)| !may_stay(path));
                if left.is_empty() {
                    break;
                }
                assert!(start.elapsed() < CAP, "these nodes stay: {left:#?}");
                // The server removes empty containers a few times per second.
                std::thread::sleep(ms(20));
            }
        });
        wait_until("no watch is left", || self.watches().is_empty());
        wait_until("no connection is left", || self.connections().is_empty());
        if self.mode() != Some(Mode::Follower) {
            wait_until("no session is left", || self.sessions().is_empty());
        }
    }

    /// The end of its log.
    fn last_words(&self) -> String {
        let text = |file: &str| fs::read_to_string(self.dir.join(file)).unwrap_or_default();
        let all = text("log") + &text("err");
        let lines: Vec<&str> = all.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }
}

impl Drop for ZooKeeper {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            eprintln!("the ZooKeeper on {}:\n{}", self.port, self.last_words());
        }
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// Starts servers in parallel, each with its companion, and creates all of them again if one cannot
/// start: another process may have taken its port.
fn start_together<T>(make: impl Fn() -> Vec<(ZooKeeper, T)>) -> Vec<(ZooKeeper, T)> {
    for _ in 0..5 {
        let servers = make();
        for (server, _) in &servers {
            server.spawn();
        }
        if servers.iter().all(|(server, _)| server.becomes_ready()) {
            return servers;
        }
        servers
            .iter()
            .for_each(|(server, _)| eprintln!("a ZooKeeper ended: {}", server.last_words()));
    }
    panic!("the ZooKeepers end when they start");
}

/// `0x1000...`, as four-letter words print sessions.
fn session_of(line: &str) -> Option<i64> {
    let digits = line.trim().trim_end_matches(':').strip_prefix("0x")?;
    // A follower appends the timeout.
    let digits = digits.split_whitespace().next()?;
    u64::from_str_radix(digits, 16).ok().map(u64::cast_signed)
}

/// Parses lines of paths, each group below the line of its session.
fn of_sessions<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<(i64, String)> {
    let (mut session, mut found) = (0, Vec::new());
    for line in lines {
        match session_of(line) {
            Some(next) => session = next,
            None if line.trim().starts_with('/') => found.push((session, line.trim().to_owned())),
            None => {}
        }
    }
    found
}
