//! MySQL or MariaDB on a Unix socket and a port: one server shared by all tests of this process,
//! each with its own database, or a private one. A server ends with its test or with this process,
//! even if that is killed.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::{free_port, fresh_dir, signal, wait_for};

pub struct Mysql {
    dir: PathBuf,
    port: u16,
    settings: Vec<String>,
    /// The database that its tests connect to.
    database: String,
    /// `None` if only the database belongs to this value and the server is shared.
    end: Option<Child>,
}

/// Kills the server of a directory and removes the directory when its standard input ends.
fn end_of(dir: &Path) -> Child {
    use std::os::unix::process::CommandExt;
    let script = r#"read -r _; kill -9 "$(cat "$1/pid")"; rm -rf "$1""#;
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", script, "sh"]).arg(dir).process_group(0);
    shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// The directory of `mysqld`: that of the variable `LEASEHOLD_MYSQL`, or the one that
/// `tests/server.sh` makes. Fails the test if there is none.
#[track_caller]
fn binaries() -> PathBuf {
    let named = std::env::var_os("LEASEHOLD_MYSQL").map(PathBuf::from);
    let home = std::env::var_os("HOME").map_or_else(|| PathBuf::from("/tmp"), PathBuf::from);
    let made = home.join(".cache/leasehold/mariadb");
    let found = named.unwrap_or(made);
    assert!(
        found.join("mysqld").exists(),
        "no MySQL: `sh tests/server.sh --mysql` fetches a MariaDB; or name a directory with a mysqld in LEASEHOLD_MYSQL; or \
         leave this out: --skip mysql"
    );
    found
}

/// The program that runs statements.
pub fn program() -> PathBuf {
    binaries().join("mysql")
}

fn mysqld() -> Command {
    let mut command = Command::new(binaries().join("mysqld"));
    // It refuses to run as root unless it is told to.
    command.args(["--no-defaults", "--user=root"]);
    command
}

/// The first tables, for all servers of this process: a copy takes a tenth of the time.
fn template() -> &'static Path {
    static MADE: LazyLock<PathBuf> = LazyLock::new(|| {
        let dir = fresh_dir();
        let data = format!("--datadir={}", dir.join("data").display());
        let install = binaries().join("install.sql");
        let mut first = mysqld();
        if install.exists() {
            fs::create_dir(dir.join("data")).unwrap();
            first.args([&data, "--bootstrap"]).stdin(fs::File::open(install).unwrap());
        } else {
            first.args([&data, "--initialize-insecure"]).stdin(Stdio::null());
        }
        let output = first.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        // Two servers must not have one identity.
        let _ = fs::remove_file(dir.join("data/auto.cnf"));
        dir
    });
    &MADE
}

impl Mysql {
    /// A database of its own on the server that all tests share. For tests that change neither the
    /// server nor its settings and users.
    pub fn shared() -> Self {
        static SHARED: LazyLock<Mysql> =
            LazyLock::new(|| Mysql::start_with(&["--max-connections=400"]));
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let database = format!("test_{}", NEXT.fetch_add(1, Ordering::Relaxed));
        SHARED.query(&format!("CREATE DATABASE {database}"));
        let (dir, settings) = (SHARED.dir.clone(), SHARED.settings.clone());
        Self { dir, port: SHARED.port, settings, database, end: None }
    }

    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// `settings`: options of the server.
    pub fn start_with(settings: &[&str]) -> Self {
        let dir = fresh_dir();
        let copied =
            Command::new("cp").arg("-a").arg(template().join("data")).arg(&dir).status().unwrap();
        assert!(copied.success());
        let settings = settings.iter().map(|&setting| setting.to_owned()).collect();
        let end = Some(end_of(&dir));
        let database = "test".to_owned();
        let server = Self { dir, port: free_port(), settings, database, end };
        server.run();
        server.query_in("", "CREATE DATABASE IF NOT EXISTS test");
        // Over TCP, with a password that needs no TLS where the server still knows such.
        server.query_in(
            "",
            "CREATE USER app@'%' IDENTIFIED BY 'secret'; GRANT ALL ON *.* TO app@'%'",
        );
        server
    }

    /// Starts the server again, after it was killed or shut down.
    pub fn run(&self) {
        let log = self.dir.join("log");
        let _ = fs::remove_file(self.socket());
        let _ = fs::create_dir(self.dir.join("tmp"));
        let path = |name: &str| self.dir.join(name).display().to_string();
        let mut command = mysqld();
        command
            .arg(format!("--datadir={}", path("data")))
            .arg(format!("--socket={}", path("s")))
            // Of servers that share it, one that starts removes the temporary tables of the others.
            .arg(format!("--tmpdir={}", path("tmp")))
            .arg(format!("--pid-file={}", path("pid")))
            .arg(format!("--log-error={}", log.display()))
            .arg(format!("--port={}", self.port))
            .args(["--bind-address=127.0.0.1", "--innodb-buffer-pool-size=32M"])
            .args(["--innodb-flush-log-at-trx-commit=2", "--skip-log-bin", "--skip-name-resolve"])
            // For the last statement of each connection.
            .args([
                "--performance-schema=ON",
                "--performance-schema-consumer-events-statements-current=ON",
            ])
            .args(&self.settings);
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        wait_for(Duration::from_secs(60), "the server has started", || {
            assert!(
                child.try_wait().unwrap().is_none(),
                "{}",
                fs::read_to_string(&log).unwrap_or_default()
            );
            Client::connect(&self.socket(), "").is_ok()
        });
        // Waited for, so that its end is seen.
        std::thread::spawn(move || drop(child.wait()));
    }

    fn pid(&self) -> u32 {
        fs::read_to_string(self.dir.join("pid")).unwrap().trim().parse().unwrap()
    }

    /// Ends it at once, like a crash.
    pub fn kill(&self) {
        let pid = self.pid();
        signal(pid, "KILL");
        wait_for(Duration::from_secs(20), "the server has ended", || {
            !Path::new(&format!("/proc/{pid}")).exists()
        });
    }

    pub fn suspend(&self) {
        signal(self.pid(), "STOP");
    }

    pub fn resume(&self) {
        signal(self.pid(), "CONT");
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn socket(&self) -> PathBuf {
        self.dir.join("s")
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// The URL for the Unix socket, as root.
    pub fn url(&self) -> String {
        self.url_of(&self.socket())
    }

    pub fn url_of(&self, socket: &Path) -> String {
        let host = socket.display().to_string().replace('/', "%2F");
        format!("mysql://root@{host}/{}", self.database)
    }

    /// The URL for TCP, as another user.
    pub fn tcp_url(&self, parameters: &str) -> String {
        format!("mysql://app:secret@127.0.0.1:{}/{}?{parameters}", self.port, self.database)
    }

    pub fn database(&self) -> &str {
        &self.database
    }

    /// A connection that the library has nothing to do with.
    pub fn connect(&self) -> Client {
        Client::connect(&self.socket(), &self.database).unwrap()
    }

    /// The rows of the last of these statements.
    pub fn query(&self, sql: &str) -> Vec<Vec<String>> {
        self.query_in(&self.database, sql)
    }

    fn query_in(&self, database: &str, sql: &str) -> Vec<Vec<String>> {
        Client::connect(&self.socket(), database).unwrap().query(sql).unwrap()
    }

    /// The number in the first column of the first row.
    pub fn number_of(&self, sql: &str) -> i64 {
        self.query(sql)[0][0].parse().unwrap()
    }

    /// The locks that are taken, and who shares some or waits to write; none if there are no tables
    /// yet. A semaphore is there whether it is used or not.
    pub fn held(&self) -> Vec<String> {
        let held = format!(
            "SELECT name FROM leasehold_lock WHERE holder IS NOT NULL AND holder<>'~s' AND ends>{NOW} \
             UNION ALL SELECT CONCAT(name,' shared') FROM leasehold_share WHERE level>=0 AND ends>{NOW}"
        );
        let rows = match self.connect().query(&held) {
            Err(refused) if refused.code == NO_TABLE => Vec::new(),
            rows => rows.unwrap(),
        };
        rows.into_iter().map(|mut row| row.remove(0)).collect()
    }

    /// The connections of clients that use this database, without that of the question.
    pub fn connections(&self) -> i64 {
        self.number_of(
            "SELECT COUNT(*) FROM information_schema.processlist WHERE db=DATABASE() AND id<>CONNECTION_ID()",
        )
    }

    /// Ends all that there are, and waits for that. Clients may make others meanwhile.
    pub fn end_connections(&self) {
        let all = "SELECT id FROM information_schema.processlist WHERE db=DATABASE() AND id<>CONNECTION_ID()";
        let mut db = self.connect();
        let ids: Vec<String> = db.query(all).unwrap().into_iter().flatten().collect();
        for id in &ids {
            // It may have ended meanwhile.
            let _ = db.query(&format!("KILL CONNECTION {id}"));
        }
        super::wait_until("they have ended", || {
            !db.query(all).unwrap().iter().flatten().any(|id| ids.contains(id))
        });
    }

    #[track_caller]
    pub fn assert_clean(&self) {
        let mut left = Vec::new();
        let started = std::time::Instant::now();
        while started.elapsed() < super::CAP {
            left = self.held();
            let connections = self.connections();
            if left.is_empty() && connections == 0 {
                return;
            }
            left.push(format!("{connections} connections"));
            std::thread::sleep(super::ms(20));
        }
        panic!("left behind: {left:?}");
    }
}

const NO_TABLE: u16 = 1146;

/// Microseconds since 1970.
const NOW: &str = "TIMESTAMPDIFF(MICROSECOND,'1970-01-01',UTC_TIMESTAMP(6))";

impl Drop for Mysql {
    fn drop(&mut self) {
        if let Some(end) = &mut self.end {
            // A suspended server is killed as well. `wait` closes its standard input first.
            let _ = end.wait();
        }
    }
}

/// An error of the server: its number and its text.
#[derive(Debug)]
pub struct Refused {
    pub code: u16,
    pub text: String,
}

/// A connection as root, who has no password: just enough of the protocol for tests.
pub struct Client {
    stream: UnixStream,
}

impl Client {
    pub fn connect(socket: &Path, database: &str) -> std::io::Result<Self> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        let mut client = Self { stream };
        client.packet()?;
        // The protocol of 4.1, a database, several statements, plugins.
        let capabilities: u32 = 0x8 | 0x200 | 0x8000 | 0x3_0000 | 0x8_0000;
        let mut answer = capabilities.to_le_bytes().to_vec();
        answer.extend(0xff_ffff_u32.to_le_bytes());
        answer.push(45);
        answer.extend([0; 23]);
        answer.extend(b"root\0\0");
        answer.extend(database.as_bytes());
        answer.extend(b"\0mysql_native_password\0");
        client.send(1, &answer)?;
        let mut number = 3;
        loop {
            let packet = client.packet()?;
            match packet.first() {
                Some(0) => return Ok(client),
                // Another way to prove an empty password is empty as well.
                Some(0xfe | 1) => client.send(number, &[])?,
                _ => {
                    return Err(std::io::Error::other(
                        String::from_utf8_lossy(&packet).into_owned(),
                    ));
                }
            }
            number += 2;
        }
    }

    fn send(&mut self, number: u8, payload: &[u8]) -> std::io::Result<()> {
        let mut packet = (payload.len() as u32).to_le_bytes()[..3].to_vec();
        packet.push(number);
        packet.extend(payload);
        self.stream.write_all(&packet)
    }

    fn packet(&mut self) -> std::io::Result<Vec<u8>> {
        let mut head = [0; 4];
        self.stream.read_exact(&mut head)?;
        let length = u32::from_le_bytes([head[0], head[1], head[2], 0]);
        let mut packet = vec![0; length as usize];
        self.stream.read_exact(&mut packet)?;
        Ok(packet)
    }

    /// The rows of the last of these statements.
    pub fn query(&mut self, sql: &str) -> Result<Vec<Vec<String>>, Refused> {
        let mut payload = vec![3];
        payload.extend(sql.as_bytes());
        self.send(0, &payload).unwrap();
        let mut rows = Vec::new();
        loop {
            let packet = self.packet().unwrap();
            let status = match packet[0] {
                0xff => {
                    let code = u16::from_le_bytes([packet[1], packet[2]]);
                    let text = String::from_utf8_lossy(&packet[3..]).into_owned();
                    return Err(Refused { code, text });
                }
                0 => {
                    let (_, at) = packed(&packet, 1);
                    let (_, at) = packed(&packet, at);
                    packet[at]
                }
                columns => {
                    rows = self.rows(columns);
                    let end = rows.pop().unwrap();
                    end[0].parse().unwrap()
                }
            };
            if status & 8 == 0 {
                return Ok(rows);
            }
        }
    }

    /// The rows of one result, and last its status.
    fn rows(&mut self, columns: u8) -> Vec<Vec<String>> {
        for _ in 0..=columns {
            self.packet().unwrap();
        }
        let mut rows = Vec::new();
        loop {
            let packet = self.packet().unwrap();
            if packet[0] == 0xfe && packet.len() < 9 {
                rows.push(vec![packet[3].to_string()]);
                return rows;
            }
            let mut at = 0;
            let row = (0..columns).map(|_| {
                if packet[at] == 0xfb {
                    at += 1;
                    return "NULL".to_owned();
                }
                let (length, begin) = packed(&packet, at);
                at = begin + length;
                String::from_utf8_lossy(&packet[begin..at]).into_owned()
            });
            rows.push(row.collect());
        }
    }
}

/// An integer whose first byte says how long it is, and where it ends.
fn packed(packet: &[u8], at: usize) -> (usize, usize) {
    let of = |bytes: usize| {
        let value = packet[at + 1..][..bytes].iter().rev();
        value.fold(0, |value, byte| value << 8 | usize::from(*byte))
    };
    match packet[at] {
        0xfc => (of(2), at + 3),
        0xfd => (of(3), at + 4),
        0xfe => (of(8), at + 9),
        small => (small.into(), at + 1),
    }
}
