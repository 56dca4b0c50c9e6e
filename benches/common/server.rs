//! A private server.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use redis::IntoConnectionInfo;
use redis::io::tcp::TcpSettings;

use super::Bench;

/// A private server that ends with this process, however that ends.
pub(crate) struct Server {
    guard: Child,
    pub(crate) dir: PathBuf,
    pub(crate) url: String,
    /// 0 for a Unix socket.
    pub(crate) port: u16,
    pub(crate) version: String,
}

impl Server {
    pub(crate) fn start(tcp: bool) -> Self {
        Self::start_with(tcp, |_| Vec::new())
    }

    /// `more` returns further arguments; it may put files into the server's directory.
    pub(crate) fn start_with(tcp: bool, more: impl FnOnce(&Path) -> Vec<String>) -> Self {
        let binary = find_server();
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "leasehold-bench-{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        let mut dir = std::env::temp_dir().join(&name);
        // The path of a socket is limited to about 100 bytes, and macOS has long temporary
        // directories.
        if dir.as_os_str().len() > 80 {
            dir = PathBuf::from("/tmp").join(name);
        }
        std::fs::create_dir_all(&dir).expect("a directory for the server");
        let socket = dir.join("s");
        let port = if tcp { free_port() } else { 0 };
        // The shell ends the server when its input ends, which happens when this process ends.
        let guard = Command::new("sh")
            .args(["-c", "trap '' INT TERM HUP; \"$@\" & read -r _; kill $!; wait", "sh"])
            .arg(&binary)
            .args([
                "--port",
                &port.to_string(),
                "--bind",
                "127.0.0.1",
                "--save",
                "",
                "--appendonly",
                "no",
            ])
            .args(["--loglevel", "warning", "--unixsocket"])
            .arg(&socket)
            .arg("--dir")
            .arg(&dir)
            .args(more(&dir))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("a shell");
        let url = if tcp {
            format!("redis://127.0.0.1:{port}/")
        } else {
            format!("redis+unix://{}", socket.display())
        };
        let mut server = Self { guard, dir, url, port, version: String::new() };
        let give_up = Instant::now() + Duration::from_secs(10);
        let info = loop {
            let asked = redis::Client::open(&*server.url).and_then(|c| c.get_connection());
            match asked.and_then(|mut c| redis::cmd("INFO").arg("server").query::<String>(&mut c)) {
                Ok(info) => break info,
                Err(e) if Instant::now() > give_up => {
                    panic!("{} does not answer: {e}", binary.display())
                }
                Err(_) => std::thread::sleep(Duration::from_millis(5)),
            }
        };
        let field =
            |name: &str| info.lines().find_map(|l| l.strip_prefix(name)).unwrap_or("?").to_owned();
        server.version = match field("valkey_version:").as_str() {
            "?" => format!("Redis {}", field("redis_version:")),
            version => format!("Valkey {version}"),
        };
        server
    }

    pub(crate) fn connect(&self) -> redis::Connection {
        connect(&self.url)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.guard.stdin.take());
        let _ = self.guard.wait();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// It was just free, and another process is unlikely to take it now.
pub(crate) fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0")
        .and_then(|l| l.local_addr())
        .expect("a free port")
        .port()
}

pub(crate) fn find_server() -> PathBuf {
    if let Some(path) = std::env::var_os("LEASEHOLD_SERVER") {
        return path.into();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut dirs: Vec<PathBuf> = std::env::split_paths(&path).collect();
    dirs.extend(["/usr/local/bin", "/opt/homebrew/bin", "/usr/sbin"].map(PathBuf::from));
    ["redis-server", "valkey-server"]
        .iter()
        .flat_map(|name| dirs.iter().map(move |dir| dir.join(name)))
        .find(|candidate| candidate.is_file())
        .expect("redis-server or valkey-server on PATH, or LEASEHOLD_SERVER; `sh tests/server.sh` gets one")
}

pub(crate) fn connect(url: &str) -> redis::Connection {
    let info = url.into_connection_info().expect("an address");
    let info = info.set_tcp_settings(TcpSettings::default().set_nodelay(true));
    let connection = redis::Client::open(info)
        .and_then(|c| c.get_connection())
        .expect("the private server answers");
    connection.set_read_timeout(Some(Duration::from_secs(20))).expect("a socket takes a timeout");
    connection
}

/// Counts the commands that clients send.
pub(crate) struct Counter {
    connection: redis::Connection,
}

/// The commands that clients have sent. Those inside scripts are not counted.
#[derive(Clone, Copy)]
pub(crate) struct Sent {
    pub(crate) scripts: u64,
    pub(crate) subscriptions: u64,
    /// Only useful where the number sent by scripts is known.
    pub(crate) gets: u64,
}

impl Sent {
    pub(crate) fn total(&self) -> u64 {
        self.scripts + self.subscriptions
    }
}

impl Counter {
    pub(crate) fn start(bench: &Bench) -> Self {
        let mut connection = bench.server.connect();
        redis::cmd("CONFIG").arg("RESETSTAT").exec(&mut connection).expect("the private server");
        Self { connection }
    }

    pub(crate) fn now(&mut self) -> Sent {
        let text: String = redis::cmd("INFO")
            .arg("commandstats")
            .query(&mut self.connection)
            .expect("the private server");
        let calls = |name: &str| -> u64 {
            let line = text.lines().find_map(|l| l.strip_prefix(&format!("cmdstat_{name}:calls=")));
            line.and_then(|l| l.split(',').next()).and_then(|n| n.parse().ok()).unwrap_or(0)
        };
        let subscriptions = ["subscribe", "unsubscribe", "psubscribe", "punsubscribe"];
        Sent {
            scripts: calls("evalsha") + calls("eval"),
            subscriptions: subscriptions.map(calls).iter().sum(),
            gets: calls("get"),
        }
    }
}
