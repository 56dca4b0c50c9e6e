//! Private servers that a test may stop, kill and bring back.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use parking_lot::Mutex;

use super::net::{Address, TempDir, free_port};
use super::{CAP, Monitor, became_true, ms, signal};

/// How a [`Server`] is started.
#[derive(Debug, Clone, Default)]
pub(crate) struct Options {
    args: Vec<String>,
    binary: Option<PathBuf>,
    password: Option<String>,
    tcp: bool,
    persistent: bool,
    accept_loading: bool,
}

impl Options {
    /// Listens on 127.0.0.1 instead of a unix socket.
    pub(crate) fn tcp(mut self) -> Self {
        self.tcp = true;
        self
    }

    /// Keeps the data over [`Server::kill`] and [`Server::restart`], up to the last write that was answered.
    pub(crate) fn persistent(mut self) -> Self {
        self.persistent = true;
        self
    }

    /// Further command-line arguments; they win over the usual ones.
    pub(crate) fn args(mut self, args: &[&str]) -> Self {
        self.args.extend(args.iter().map(|&arg| arg.to_owned()));
        self
    }

    /// A particular program.
    pub(crate) fn binary(mut self, path: impl Into<PathBuf>) -> Self {
        self.binary = Some(path.into());
        self
    }

    /// Asks clients for this password, which [`Server::url`] then contains; letters and digits only.
    pub(crate) fn password(mut self, word: &str) -> Self {
        self.password = Some(word.to_owned());
        self
    }

    /// A server that still loads its data counts as started.
    pub(crate) fn accept_loading(mut self) -> Self {
        self.accept_loading = true;
        self
    }

    /// Starts the server and waits until it answers.
    #[track_caller]
    pub(crate) fn start(self) -> Server {
        let binary = self.binary.clone().unwrap_or_else(default_binary);
        // Another process may take the port between our look at it and the server's.
        for _ in 0..5 {
            let dir = TempDir::new();
            let address = if self.tcp { Address::Tcp(free_port()) } else { Address::Unix(dir.path().join("s")) };
            match launch(&binary, &self, &address, dir.path()) {
                Ok(process) => {
                    let process = Mutex::new(process);
                    return Server { process, binary, options: self, address, dir, owner: std::process::id() };
                }
                Err(log) if self.tcp && log.contains("Address already in use") => {}
                Err(log) => panic!("{} did not start; its log:\n{log}", binary.display()),
            }
        }
        panic!("five ports in a row were taken");
    }
}

/// A server of this test's own, killed on drop.
#[derive(Debug)]
pub(crate) struct Server {
    process: Mutex<Child>,
    binary: PathBuf,
    options: Options,
    address: Address,
    dir: TempDir,
    owner: u32,
}

impl Server {
    /// On a unix socket, without persistence.
    #[track_caller]
    pub(crate) fn start() -> Self {
        Self::options().start()
    }

    /// On a TCP port of 127.0.0.1, without persistence.
    #[track_caller]
    pub(crate) fn start_tcp() -> Self {
        Self::options().tcp().start()
    }

    /// On a unix socket, with further command-line arguments.
    #[track_caller]
    pub(crate) fn start_with(args: &[&str]) -> Self {
        Self::options().args(args).start()
    }

    /// Anything else.
    pub(crate) fn options() -> Options {
        Options::default()
    }

    /// Options for the oldest supported server, where `LEASEHOLD_REDIS62` tells its program.
    pub(crate) fn oldest() -> Option<Options> {
        std::env::var_os("LEASEHOLD_REDIS62").map(|path| Self::options().binary(path))
    }

    /// Options for Valkey, where `LEASEHOLD_VALKEY` tells its program.
    pub(crate) fn valkey() -> Option<Options> {
        std::env::var_os("LEASEHOLD_VALKEY").map(|path| Self::options().binary(path))
    }

    /// For `redis::Client::open`.
    pub(crate) fn url(&self) -> String {
        self.address.url(self.options.password.as_deref())
    }

    /// A connection that gives up on a silent server after a while, so that no test hangs.
    #[track_caller]
    pub(crate) fn connect(&self) -> redis::Connection {
        let client = redis::Client::open(self.url()).unwrap();
        let connection = client.get_connection_with_timeout(CAP).unwrap();
        connection.set_read_timeout(Some(CAP)).unwrap();
        connection
    }

    /// Freezes the process: connections stay open and nothing answers. Returns once it is frozen.
    pub(crate) fn stop_process(&self) {
        signal(self.pid(), "STOP");
    }

    /// Ends [`Self::stop_process`].
    pub(crate) fn continue_process(&self) {
        signal(self.pid(), "CONT");
    }

    /// A crash: nothing is written any more.
    pub(crate) fn kill(&self) {
        let mut process = self.process.lock();
        let _ = process.kill();
        let _ = process.wait();
    }

    /// Comes up again at the same address, with its data where the options say so or after [`Self::shutdown_save`].
    #[track_caller]
    pub(crate) fn restart(&self) {
        self.kill();
        let start = Instant::now();
        loop {
            match launch(&self.binary, &self.options, &self.address, self.dir.path()) {
                Ok(process) => {
                    *self.process.lock() = process;
                    return;
                }
                // Somebody's short-lived outgoing connection may sit on the port.
                Err(log) if start.elapsed() < CAP && log.contains("Address already in use") => {
                    std::thread::sleep(ms(20));
                }
                Err(log) => panic!("{} did not start again; its log:\n{log}", self.binary.display()),
            }
        }
    }

    /// An orderly end that writes the data to disk, whatever the options say.
    #[track_caller]
    pub(crate) fn shutdown_save(&self) {
        let _: redis::RedisResult<()> = redis::cmd("SHUTDOWN").arg("SAVE").query(&mut self.connect());
        let mut process = self.process.lock();
        let ended = became_true(CAP, || process.try_wait().unwrap().is_some());
        assert!(ended, "SHUTDOWN SAVE did not end the server; its log:\n{}", read_log(self.dir.path()));
    }

    /// The process id; another one after [`Self::restart`].
    pub(crate) fn pid(&self) -> u32 {
        self.process.lock().id()
    }

    /// The program that runs.
    pub(crate) fn binary(&self) -> &Path {
        &self.binary
    }

    /// The directory of its socket, data and log.
    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Everything that the server wrote to its log since its last start.
    pub(crate) fn log(&self) -> String {
        read_log(self.dir.path())
    }

    /// Collects every command that the server runs from now on.
    #[track_caller]
    pub(crate) fn monitor(&self) -> Monitor {
        Monitor::start(self.address.clone(), self.options.password.as_deref())
    }

    pub(super) fn address(&self) -> &Address {
        &self.address
    }

    pub(super) fn password(&self) -> Option<&str> {
        self.options.password.as_deref()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A forked child that unwinds must not take its parent's server down.
        if self.owner == std::process::id() {
            self.kill();
        }
    }
}

/// The program from the environment, or what the search path has.
fn default_binary() -> PathBuf {
    if let Some(path) = std::env::var_os("LEASEHOLD_SERVER") {
        return path.into();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let find = |name| std::env::split_paths(&path).map(|dir| dir.join(name)).find(|file| file.is_file());
    find("redis-server").or_else(|| find("valkey-server")).expect(
        "these tests need a Redis server: install redis-server or valkey-server (Debian: apt-get install \
         redis-server), or set LEASEHOLD_SERVER to the path of such a program",
    )
}

/// Starts the process and waits until it answers; otherwise what it had to say.
fn launch(binary: &Path, options: &Options, address: &Address, dir: &Path) -> Result<Child, String> {
    let log = File::create(dir.join("log")).unwrap();
    let mut command = Command::new(binary);
    match address {
        Address::Unix(path) => command.args(["--port", "0", "--unixsocket"]).arg(path),
        Address::Tcp(port) => command.args(["--bind", "127.0.0.1", "--port", &port.to_string()]),
    };
    command.args(["--save", "", "--daemonize", "no", "--dir"]).arg(dir);
    if options.persistent {
        // Not `everysec`: it may answer a write before it gives it to the kernel, when the disk is slow.
        command.args(["--appendonly", "yes", "--appendfsync", "always"]);
    } else {
        command.args(["--appendonly", "no"]);
    }
    if let Some(word) = &options.password {
        command.args(["--requirepass", word]);
    }
    command.args(&options.args);
    command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
    let mut process = command.spawn().unwrap_or_else(|error| {
        panic!(
            "cannot run {}: {error}. Set LEASEHOLD_SERVER to the path of a redis-server or valkey-server",
            binary.display()
        )
    });

    let client = redis::Client::open(address.url(options.password.as_deref())).unwrap();
    let mut ended = false;
    let ready = became_true(CAP, || {
        ended = process.try_wait().unwrap().is_some();
        ended || is_ready(&client, process.id(), options.accept_loading)
    });
    if ready && !ended {
        return Ok(process);
    }
    let _ = process.kill();
    let _ = process.wait();
    Err(read_log(dir))
}

/// Whether this very process answers: on TCP somebody else's server may have been quicker to take the port.
fn is_ready(client: &redis::Client, pid: u32, accept_loading: bool) -> bool {
    let Ok(mut connection) = client.get_connection_with_timeout(CAP) else { return false };
    if connection.set_read_timeout(Some(CAP)).is_err() {
        return false;
    }
    let answered = match redis::cmd("PING").query::<String>(&mut connection) {
        Ok(_) => true,
        Err(error) => accept_loading && error.code() == Some("LOADING"),
    };
    let is_ours = |info: String| info.lines().any(|line| line == format!("process_id:{pid}"));
    answered && redis::cmd("INFO").arg("server").query(&mut connection).is_ok_and(is_ours)
}

fn read_log(dir: &Path) -> String {
    std::fs::read_to_string(dir.join("log")).unwrap_or_default()
}
