//! PostgreSQL on a Unix socket: one server shared by all tests of this process, each with its own
//! database, or a private one. A server ends with its test or with this process, even if that is
//! killed.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};
use std::sync::{LazyLock, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::{free_port, fresh_dir, signal, wait_for, wait_until};

/// The uid (nobody) under which the server runs if this process is root, because PostgreSQL refuses
/// to.
const NOBODY: u32 = 65534;

pub struct Postgres {
    dir: PathBuf,
    /// The port on 127.0.0.1; 0 if there is only the Unix socket.
    port: u16,
    settings: String,
    /// The database that its tests connect to.
    database: String,
    /// `None` if only the database belongs to this value and the server is shared.
    end: Option<End>,
    /// A connection for inspecting the database of a shared server, kept for the next time. A
    /// private server, which a test may fill or stop, has none.
    kept: Mutex<Option<postgres::Client>>,
}

/// Stops the server of a directory and removes the directory, when this value is dropped and when
/// this process ends in any way: only this process keeps the shell's standard input open. Its own
/// process group protects the shell from terminal signals.
struct End(Child);

impl End {
    fn of(dir: &Path) -> Self {
        use std::os::unix::process::CommandExt;
        // A suspended server would not stop.
        let script = r#"read -r _
            if [ -f "$1/data/postmaster.pid" ]; then
                pid=$(head -n 1 "$1/data/postmaster.pid")
                kill -CONT "$pid" $(cat "/proc/$pid/task/$pid/children")
                "$2" -D "$1/data" -m immediate -w stop
            fi
            rm -rf "$1""#;
        let mut shell = command(Path::new("/bin/sh"));
        shell.args(["-c", script, "sh"]).arg(dir).arg(binaries().join("pg_ctl"));
        shell.process_group(0).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        Self(shell.spawn().unwrap())
    }
}

impl Drop for End {
    fn drop(&mut self) {
        // `wait` closes its standard input first.
        let _ = self.0.wait();
    }
}

/// The schema that the library installs.
const SCHEMA: &str = include_str!("../../../src/store/postgres/schema.sql");

/// The output of `initdb`, for all servers: a copy takes a tenth of the time. It is made once for
/// each version.
fn template() -> &'static Path {
    static MADE: LazyLock<PathBuf> = LazyLock::new(|| {
        let initdb_program = binaries().join("initdb");
        let version = Command::new(initdb_program).arg("--version").output().unwrap().stdout;
        let name: String = version
            .iter()
            .map(|byte| if byte.is_ascii_alphanumeric() { *byte as char } else { '-' })
            .collect();
        let home = crate::kept_dir().join("postgres");
        // Servers of root run as another user, who must own their data.
        let made = home.join(if is_root() { name + "root" } else { name });
        if !made.exists() {
            let dir = fresh_dir();
            give_away(&dir);
            initdb(&dir.join("data"));
            // Moved to its place when it is complete: another process may make one concurrently.
            let unfinished = made.with_extension(std::process::id().to_string());
            fs::create_dir_all(&home).unwrap();
            run(Command::new("cp").arg("-a").arg(dir.join("data")).arg(&unfinished));
            if fs::rename(&unfinished, &made).is_err() {
                let _ = fs::remove_dir_all(&unfinished);
            }
            let _ = fs::remove_dir_all(dir);
        }
        made
    });
    &MADE
}

/// Not later than the schema of the shared server was made.
static SHARED_SINCE: LazyLock<Instant> = LazyLock::new(Instant::now);

/// The server of [`Postgres::shared`], with the database of which the others are copies.
fn shared_server() -> &'static Postgres {
    static SHARED: LazyLock<Postgres> = LazyLock::new(|| {
        LazyLock::force(&SHARED_SINCE);
        let settings =
            "max_connections = 400\nshared_buffers = 64MB\nlog_line_prefix = '%m [%p] %d '";
        let server = Postgres::start_with(settings);
        server.run_sql("CREATE DATABASE with_schema");
        server.database("with_schema".to_owned()).run_sql(SCHEMA);
        server
    });
    &SHARED
}

/// The directory of `initdb` and `pg_ctl`: that of the variable `LEASEHOLD_POSTGRES`, of the path,
/// or of Debian's package. Fails the test if there is none.
#[track_caller]
fn binaries() -> &'static Path {
    static FOUND: OnceLock<Option<PathBuf>> = OnceLock::new();
    let find = || {
        let named = std::env::var_os("LEASEHOLD_POSTGRES").map(PathBuf::from);
        let path = std::env::var_os("PATH").unwrap_or_default();
        let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
        let debian = versions.filter_map(|version| Some(version.ok()?.path().join("bin")));
        let mut all: Box<dyn Iterator<Item = PathBuf>> = match named {
            Some(named) => Box::new(std::iter::once(named)),
            None => Box::new(std::env::split_paths(&path).chain(debian)),
        };
        let found = all.find(|dir| dir.join("initdb").exists() && dir.join("pg_ctl").exists());
        // It may be a link, and the programs look for each other in their own directory.
        found.and_then(|dir| Some(fs::canonicalize(dir.join("pg_ctl")).ok()?.parent()?.to_owned()))
    };
    FOUND.get_or_init(find).as_deref().expect(
        "no PostgreSQL: install it (Debian: apt-get install postgresql), name the directory of initdb and pg_ctl in \
         LEASEHOLD_POSTGRES (`sh tests/server.sh --postgres` finds or fetches one), or leave this out: --skip postgres",
    )
}

/// If the build options are unknown, TLS is assumed.
fn has_tls(binaries: &Path) -> bool {
    let built = Command::new(binaries.join("pg_config")).arg("--configure").output();
    built.map_or(true, |built| String::from_utf8_lossy(&built.stdout).contains("ssl"))
}

fn initdb(data: &Path) {
    let mut initdb = command(&binaries().join("initdb"));
    initdb.arg("-D").arg(data);
    initdb.args([
        "-U",
        "leasehold",
        "-A",
        "trust",
        "-E",
        "UTF8",
        "--no-locale",
        "--no-sync",
        "--wal-segsize=1",
    ]);
    run(&mut initdb);
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

/// A command that runs as the server's user.
fn command(program: &Path) -> Command {
    if !is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    let ids =
        [format!("--reuid={NOBODY}"), format!("--regid={NOBODY}"), "--clear-groups".to_owned()];
    command.args(ids).arg(program);
    command
}

/// Makes the server's user the owner of a directory.
fn give_away(dir: &Path) {
    if is_root() {
        std::os::unix::fs::chown(dir, Some(NOBODY), Some(NOBODY)).unwrap();
    }
}

#[track_caller]
fn run(command: &mut Command) {
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(
        output.status.success(),
        "{command:?}: {}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

impl Postgres {
    pub fn start() -> Self {
        Self::start_with("")
    }

    /// A database of its own, with the schema, on the server that all tests share. For tests that
    /// change neither the server nor its settings and roles, and that stop none of its processes.
    pub fn shared() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let own =
            shared_server().database(format!("test_{}", NEXT.fetch_add(1, Ordering::Relaxed)));
        shared_server().run_sql(&format!("CREATE DATABASE {} TEMPLATE with_schema", own.database));
        // Ten minutes after the schema was made, the first client of each copy would sweep it, and
        // some tests count requests.
        if SHARED_SINCE.elapsed() > Duration::from_secs(300) {
            own.connect()
                .batch_execute("UPDATE leasehold.meta SET swept = clock_timestamp()")
                .unwrap();
        }
        own
    }

    /// Another database of this server. Dropping the returned value does not stop the server.
    fn database(&self, database: String) -> Self {
        Self {
            dir: self.dir.clone(),
            port: self.port,
            settings: self.settings.clone(),
            database,
            end: None,
            kept: Mutex::default(),
        }
    }

    /// `settings`: lines of its configuration.
    pub fn start_with(settings: &str) -> Self {
        let server = Self::prepare(settings);
        server.run();
        server
    }

    /// A server that does not run yet. Fails the test if it needs TLS and was built without.
    #[track_caller]
    pub fn prepare(settings: &str) -> Self {
        assert!(
            !settings.contains("ssl = on") || has_tls(binaries()),
            "this PostgreSQL was built without TLS: name another in LEASEHOLD_POSTGRES, or leave this out: \
             --skip postgres::secure"
        );
        let server = Self::empty(settings);
        run(Command::new("cp").arg("-a").arg(template()).arg(server.data()));
        server
    }

    /// Also listens on a free TCP port of 127.0.0.1, with this certificate.
    pub fn listening_with(mut self, identity: &super::Identity) -> Self {
        use std::os::unix::fs::PermissionsExt;
        for (from, name) in [(&identity.certificate, "server.crt"), (&identity.key, "server.key")] {
            let to = self.data().join(name);
            fs::copy(from, &to).unwrap();
            fs::set_permissions(&to, fs::Permissions::from_mode(0o600)).unwrap();
            if is_root() {
                std::os::unix::fs::chown(&to, Some(NOBODY), Some(NOBODY)).unwrap();
            }
        }
        self.port = free_port();
        self.run();
        self
    }

    /// Listens on a free TCP port of 127.0.0.1, without TLS.
    pub fn start_on_a_port(settings: &str) -> Self {
        let mut server = Self::prepare(settings);
        server.port = free_port();
        server.run();
        server
    }

    /// A server with a system identifier of its own: its data come from its own `initdb`.
    pub fn start_anew() -> Self {
        let server = Self::empty("");
        initdb(&server.data());
        server.run();
        server
    }

    fn empty(settings: &str) -> Self {
        let dir = fresh_dir();
        give_away(&dir);
        let end = Some(End::of(&dir));
        Self {
            dir,
            port: 0,
            settings: settings.to_owned(),
            database: "postgres".to_owned(),
            end,
            kept: Mutex::default(),
        }
    }

    /// Makes the server's user the owner of a directory.
    pub fn own(&self, dir: &Path) {
        give_away(dir);
    }

    /// Makes this server, which was stopped, a standby of `primary`, which was its standby.
    pub fn follow(&self, primary: &Self) {
        fs::write(self.data().join("standby.signal"), "").unwrap();
        self.own(&self.data().join("standby.signal"));
        let source =
            format!("host={} port={} user=leasehold", primary.dir.display(), primary.number());
        let auto = self.data().join("postgresql.auto.conf");
        let mut text = fs::read_to_string(&auto).unwrap();
        text += &format!("primary_conninfo = '{source}'\n");
        fs::write(&auto, text).unwrap();
        self.run();
    }

    /// Whether its main process runs, which restarts the others after a crash if it can.
    pub fn runs(&self) -> bool {
        let text = fs::read_to_string(self.data().join("postmaster.pid")).unwrap_or_default();
        text.lines().next().is_some_and(|pid| Path::new("/proc").join(pid).exists())
    }

    /// A standby that streams from this server. It does not run yet.
    pub fn standby(&self, settings: &str) -> Self {
        let standby = Self::empty(settings);
        let mut backup = command(&binaries().join("pg_basebackup"));
        let source = format!("host={} port=5432 user=leasehold", self.dir.display());
        backup.arg("-D").arg(standby.data()).args([
            "-R",
            "-X",
            "stream",
            "-c",
            "fast",
            "--no-sync",
            "-d",
            &source,
        ]);
        run(&mut backup);
        standby
    }

    pub fn run(&self) {
        // A standby that has just lost its primary pauses before it retries, and can only be
        // promoted after that: 5 s by default, which is longer than the leases of the tests.
        let mut text = format!(
            "listen_addresses = '{}'\nunix_socket_directories = '{}'\nfsync = off\nshared_buffers = 16MB\n\
             max_connections = 60\nmax_wal_senders = 4\nlog_min_messages = warning\nwal_retrieve_retry_interval = 100ms\n{}\n",
            if self.port > 0 { "127.0.0.1" } else { "" },
            self.dir.display(),
            self.settings
        );
        text += &format!("port = {}\n", if self.port > 0 { self.port } else { 5432 });
        fs::write(self.data().join("postgresql.auto.conf.test"), &text).unwrap();
        let main = self.data().join("postgresql.conf");
        let own = "include_if_exists = 'postgresql.auto.conf.test'\n";
        let before = fs::read_to_string(&main).unwrap();
        if !before.contains(own) {
            fs::write(&main, before + own).unwrap();
        }
        let mut start = command(&binaries().join("pg_ctl"));
        start
            .arg("-D")
            .arg(self.data())
            .arg("-l")
            .arg(self.dir.join("log"))
            .args(["-w", "-t", "60", "start"]);
        // The output is discarded rather than read to its end, because the server keeps it open.
        let status = start
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .unwrap();
        assert!(
            status.success(),
            "{}",
            fs::read_to_string(self.dir.join("log")).unwrap_or_default()
        );
    }

    /// `mode`: smart, fast, or immediate, which is like a crash.
    pub fn stop(&self, mode: &str) {
        run(command(&binaries().join("pg_ctl"))
            .arg("-D")
            .arg(self.data())
            .args(["-m", mode, "-w", "stop"]));
    }

    pub fn promote(&self) {
        run(command(&binaries().join("pg_ctl")).arg("-D").arg(self.data()).args(["-w", "promote"]));
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn data(&self) -> PathBuf {
        self.dir.join("data")
    }

    /// The port in the name of its Unix socket.
    pub fn number(&self) -> u16 {
        if self.port > 0 { self.port } else { 5432 }
    }

    pub fn socket(&self) -> PathBuf {
        self.dir.join(format!(".s.PGSQL.{}", self.number()))
    }

    /// A port number for another socket in its directory.
    pub fn fresh_number() -> u16 {
        static NEXT: AtomicU16 = AtomicU16::new(6000);
        NEXT.fetch_add(1, Ordering::Relaxed)
    }

    pub fn url(&self) -> String {
        self.url_at(self.number())
    }

    /// In the form that the crate `postgres` accepts too, which takes no directory as a parameter.
    pub fn url_of_libpq(&self) -> String {
        let directory = self.dir.display().to_string().replace('/', "%2F");
        format!("postgres://leasehold@{directory}:{}/{}", self.number(), self.database)
    }

    /// The URL for the socket with this number in its directory.
    pub fn url_at(&self, number: u16) -> String {
        format!("postgres://leasehold@/{}?host={}&port={number}", self.database, self.dir.display())
    }

    /// The URL for TCP.
    pub fn tcp_url(&self, user: &str, parameters: &str) -> String {
        assert!(self.port > 0);
        format!("postgres://{user}@127.0.0.1:{}/{}?{parameters}", self.port, self.database)
    }

    /// A connection of the crate `postgres`.
    pub fn connect(&self) -> postgres::Client {
        self.try_connect().unwrap()
    }

    pub fn try_connect(&self) -> Result<postgres::Client, postgres::Error> {
        self.config().connect(postgres::NoTls)
    }

    /// The settings of a connection of the crate `postgres`.
    pub fn config(&self) -> postgres::Config {
        let mut config = postgres::Config::new();
        config.host_path(&self.dir).port(self.number()).user("leasehold").dbname(&self.database);
        config.connect_timeout(Duration::from_secs(5));
        config
    }

    /// Runs `work` on a connection that nothing else uses at that time.
    fn look<T>(
        &self,
        mut work: impl FnMut(&mut postgres::Client) -> Result<T, postgres::Error>,
    ) -> T {
        let kept = self.kept.lock().take();
        if let Some(mut kept) = kept {
            let found = work(&mut kept);
            // A closed connection means that its backend was ended before it ran anything.
            if !kept.is_closed() {
                *self.kept.lock() = Some(kept);
                return found.unwrap();
            }
        }
        let mut fresh = self.connect();
        let found = work(&mut fresh).unwrap();
        if self.end.is_none() {
            *self.kept.lock() = Some(fresh);
        }
        found
    }

    pub fn run_sql(&self, sql: &str) {
        self.look(|db| db.batch_execute(sql));
    }

    /// The number in the first column of the first row.
    pub fn number_of(&self, sql: &str) -> i64 {
        self.look(|db| db.query_one(sql, &[])).get(0)
    }

    pub fn texts(&self, sql: &str) -> Vec<String> {
        self.look(|db| db.query(sql, &[])).iter().map(|row| row.get(0)).collect()
    }

    /// How many backends serve clients in this database.
    pub fn backends(&self) -> i64 {
        self.number_of(
            "SELECT count(*) FROM pg_stat_activity \
             WHERE backend_type = 'client backend' AND datname = current_database() AND pid <> pg_backend_pid()",
        )
    }

    /// How many connections of the library listen in this database. One that has sent a ping since
    /// then shows an empty statement.
    pub fn listeners(&self) -> i64 {
        self.number_of(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
             AND backend_type = 'client backend' AND (query LIKE 'LISTEN %' OR query = '')",
        )
    }

    /// The rows of the tables: holds, permits, queue entries.
    pub fn held(&self) -> Vec<String> {
        self.texts(
            "SELECT name FROM leasehold.lock WHERE holder IS NOT NULL AND ends > clock_timestamp() \
             UNION ALL SELECT name || ' shared' FROM leasehold.share WHERE ends > clock_timestamp() \
             UNION ALL SELECT name || ' waits' FROM leasehold.waiter \
             UNION ALL SELECT name || ' barred' FROM leasehold.lock WHERE barred > clock_timestamp() ORDER BY 1",
        )
    }

    fn pid(&self) -> u32 {
        let text = fs::read_to_string(self.data().join("postmaster.pid")).unwrap();
        text.lines().next().unwrap().parse().unwrap()
    }

    /// The server process and its children.
    fn processes(&self) -> Vec<u32> {
        let main = self.pid();
        let parent = |pid: u32| -> Option<u32> {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
        };
        let all = fs::read_dir("/proc")
            .unwrap()
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        std::iter::once(main).chain(all.filter(|pid| parent(*pid) == Some(main))).collect()
    }

    /// Stops its processes without ending them.
    pub fn suspend(&self) {
        // The main process comes first, so that it starts no more children.
        signal(self.pid(), "STOP");
        for pid in self.processes().into_iter().skip(1) {
            signal(pid, "STOP");
        }
    }

    pub fn resume(&self) {
        assert!(self.try_resume());
    }

    fn try_resume(&self) -> bool {
        let kill = |pid: u32| Command::new("kill").args(["-CONT", &pid.to_string()]).status();
        // The main process resumes at once, and may end a child before that is signalled.
        let resume = |pid| {
            kill(pid)
                .is_ok_and(|done| done.success() || !Path::new(&format!("/proc/{pid}")).exists())
        };
        self.processes().into_iter().all(resume)
    }

    /// Ends all client backends but that of the caller, and waits for that.
    pub fn end_backends(&self) {
        self.run_sql(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity \
             WHERE backend_type = 'client backend' AND datname = current_database() AND pid <> pg_backend_pid()",
        );
    }

    /// Checks, after its clients have ended, that no hold, no queue entry, no backend and so no
    /// channel is left; and that a sweep removes everything else that does not expire.
    #[track_caller]
    pub fn assert_clean(&self) {
        // The backends first: that of a killed process may still run what it had received.
        wait_until("no backend is left", || self.backends() == 0);
        wait_until("nothing is held", || self.held().is_empty());
        // If the server was slow when a client was closed, the record of that client expires
        // instead of being deleted, after a default lease.
        wait_for(super::ms(45_000), "the records of the clients are gone", || {
            self.texts("SELECT id FROM leasehold.client WHERE ends > clock_timestamp()").is_empty()
        });
        let left = self.texts(
            "SELECT 'a fence of ' || name FROM leasehold.fenced \
             UNION ALL SELECT 'a hold without end: ' || name FROM leasehold.lock WHERE NOT isfinite(ends) AND holder IS NOT NULL \
             UNION ALL SELECT 'a mark for longer than an hour: ' || id FROM leasehold.once \
                 WHERE ends > clock_timestamp() + interval '1 hour' \
             UNION ALL SELECT 'more than 16 clients wait for ' || name FROM leasehold.lock WHERE cardinality(wants) > 16 \
             UNION ALL SELECT 'a prepared transaction ' || gid FROM pg_prepared_xacts WHERE database = current_database()",
        );
        assert!(left.is_empty(), "{left:?}");
        // Everything unused is deleted, and only counters may remain.
        self.run_sql(
            "UPDATE leasehold.lock SET ends = '-infinity', wanted = '-infinity' WHERE number IS NULL; \
             UPDATE leasehold.once SET ends = '-infinity'; \
             UPDATE leasehold.done SET ends = '-infinity', at = at - interval '9000 hours'; SELECT leasehold_v1.sweep(0, 1000000); \
             SELECT leasehold_v1.sweep_locks(0, 1000000)",
        );
        let stays = self.texts(
            "SELECT name || ' ' || kind::text FROM leasehold.lock WHERE number IS NULL \
             UNION ALL SELECT name || ' shared' FROM leasehold.share s \
                 WHERE NOT EXISTS (SELECT FROM leasehold.lock k WHERE k.name = s.name AND k.number IS NOT NULL) \
             UNION ALL SELECT name || ' waits' FROM leasehold.waiter UNION ALL SELECT 'mark ' || id FROM leasehold.once \
             UNION ALL SELECT 'occurrence ' || occurrence FROM leasehold.done",
        );
        assert!(stays.is_empty(), "a sweep leaves {stays:?}");
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = fs::read_to_string(self.dir.join("log")).unwrap_or_default();
            // The shared server logs the database that each line belongs to.
            let is_own =
                |line: &&str| self.end.is_some() || line.contains(&format!(" {} ", self.database));
            for line in log.lines().filter(is_own) {
                eprintln!("{line}");
            }
            if self.end.is_some() && self.data().join("postmaster.pid").exists() {
                let _ = self.try_resume();
            }
        } else if self.end.is_none() && self.database != "with_schema" {
            let drop = format!(
                "SET statement_timeout = '5s'; DROP DATABASE {} WITH (FORCE)",
                self.database
            );
            let _ = shared_server().try_connect().map(|mut db| db.batch_execute(&drop));
        }
    }
}
