//! The Java program: builds it when needed, starts it, and talks to it line by line.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, unbounded};
use parking_lot::Mutex;

use crate::rig::{CAP, Server, ms, wait_until};

/// The newest version, unless another one is asked for.
fn version() -> String {
    std::env::var("LEASEHOLD_REDISSON").unwrap_or_else(|_| "4.7.0".to_owned())
}

/// The program, ready to run, if `LEASEHOLD_INTEROP=1` asks for it. If it cannot be built, prints
/// the reason and returns `None`, which lets the test pass, unless `LEASEHOLD_REQUIRE_INTEROP=1`
/// says that it must run.
pub(crate) fn program() -> Option<&'static Path> {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let set = |name: &str| std::env::var(name).is_ok_and(|value| value == "1");
    let required = set("LEASEHOLD_REQUIRE_INTEROP");
    if !required && !set("LEASEHOLD_INTEROP") {
        println!("DID NOT RUN against a live Redisson: LEASEHOLD_INTEROP=1 asks for it");
        return None;
    }
    match BUILT.get_or_init(build) {
        Ok(jar) => Some(jar),
        Err(why) => {
            assert!(!required, "LEASEHOLD_REQUIRE_INTEROP=1, and there is no Redisson: {why}");
            println!("DID NOT RUN against a live Redisson: {why}");
            None
        }
    }
}

/// Maven runs only when something has changed: later runs need no network and no time.
fn build() -> Result<PathBuf, String> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/interop");
    let version = version();
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("interop").join(&version);
    let (jar, stamp) = (out.join("interop.jar"), out.join("built-from"));
    run("java", Command::new("java").arg("-version"))?;

    let mut files = vec![source.join("pom.xml")];
    files.extend(std::fs::read_dir(source.join("src/main/java/interop")).unwrap().map(|file| file.unwrap().path()));
    files.sort();
    let now: String = files.iter().map(|file| std::fs::read_to_string(file).unwrap()).collect();
    if jar.exists() && std::fs::read_to_string(&stamp).is_ok_and(|then| then == now) {
        return Ok(jar);
    }

    run("mvn", Command::new("mvn").arg("-version"))?;
    let mut maven = Command::new("mvn");
    maven.args(["-q", "-B", "-f"]).arg(source.join("pom.xml"));
    maven.arg(format!("-Dredisson.version={version}")).arg(format!("-Dout={}", out.display())).arg("package");
    run("Maven's build", &mut maven)?;
    std::fs::write(&stamp, now).unwrap();
    Ok(jar)
}

fn run(what: &str, command: &mut Command) -> Result<(), String> {
    match command.stdin(Stdio::null()).output() {
        Err(e) => Err(format!("no {what}: {e}")),
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!("{what} failed: {}", String::from_utf8_lossy(&output.stdout))),
    }
}

/// One process of Redisson.
pub(crate) struct Jvm {
    process: Mutex<Child>,
    stdin: Mutex<Option<ChildStdin>>,
    /// The pending answers by the names of their threads.
    answers: Arc<Mutex<HashMap<String, Sender<String>>>>,
    next: AtomicU32,
}

impl Jvm {
    /// `settings` as arguments of the program, for example `watchdog=3000`.
    pub(crate) fn start(server: &Server, settings: &[&str]) -> Option<Self> {
        Self::start_on(std::slice::from_ref(server), settings)
    }

    /// With a client for each of the servers.
    pub(crate) fn start_on(servers: &[Server], settings: &[&str]) -> Option<Self> {
        Self::connect(&servers.iter().map(Server::url).collect::<Vec<_>>(), settings)
    }

    /// `sentinel=mymaster` among the settings says that the servers are sentinels, `cluster=AUTO`
    /// that they are nodes of a cluster (see `Servers.java`).
    pub(crate) fn connect(urls: &[String], settings: &[&str]) -> Option<Self> {
        let jar = program()?;
        let addresses: Vec<&str> = urls.iter().map(|url| url.trim_end_matches('/')).collect();
        let mut process = Command::new("java")
            .args(["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"])
            .args(["-Dorg.slf4j.simpleLogger.defaultLogLevel=off", "-jar"])
            .arg(jar)
            .arg(addresses.join(","))
            .args(settings)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdin = Mutex::new(process.stdin.take());
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines().map_while(Result::ok);
        assert_eq!(lines.next().as_deref(), Some("ready"), "the Java program comes up");
        let answers = Arc::new(Mutex::new(HashMap::<String, Sender<String>>::new()));
        let receivers = answers.clone();
        std::thread::spawn(move || {
            for line in lines {
                let (thread, answer) = line.split_once(' ').expect("THREAD ANSWER");
                // The thread that asked may have gone away.
                let _ = receivers.lock()[thread].send(answer.to_owned());
            }
            // Threads that wait for an answer learn that there will be none.
            receivers.lock().clear();
        });
        Some(Self { process: Mutex::new(process), stdin, answers, next: AtomicU32::new(0) })
    }

    /// A new thread of this process, which can hold locks.
    pub(crate) fn thread(&self) -> JavaThread<'_> {
        let name = format!("t{}", self.next.fetch_add(1, Ordering::Relaxed));
        let (sender, answers) = unbounded();
        self.answers.lock().insert(name.clone(), sender);
        JavaThread { jvm: self, name, asked: Mutex::default(), answers }
    }

    /// SIGKILL.
    pub(crate) fn kill(&self) {
        let mut process = self.process.lock();
        process.kill().unwrap();
        process.wait().unwrap();
    }
}

impl Drop for Jvm {
    fn drop(&mut self) {
        // Ends its input. After a failed test most of its threads still wait for something.
        self.stdin.lock().take();
        for _ in 0..250 {
            if matches!(self.process.get_mut().try_wait(), Ok(Some(_))) {
                return;
            }
            std::thread::sleep(ms(20));
        }
        let _ = self.process.get_mut().kill();
        let _ = self.process.get_mut().wait();
    }
}

/// One thread of the Java process: a holder, to Redisson.
pub(crate) struct JavaThread<'a> {
    jvm: &'a Jvm,
    name: String,
    /// The last command.
    asked: Mutex<String>,
    answers: Receiver<String>,
}

impl JavaThread<'_> {
    /// Sends the command `PRIMITIVE NAME METHOD [ARGUMENTS]`; the answer comes later.
    pub(crate) fn begin(&self, command: &str) {
        command.clone_into(&mut self.asked.lock());
        let mut stdin = self.jvm.stdin.lock();
        writeln!(stdin.as_mut().unwrap(), "{} {command}", self.name).unwrap();
    }

    /// The answer to the last command.
    #[track_caller]
    pub(crate) fn answer(&self) -> String {
        self.answer_within(CAP)
    }

    #[track_caller]
    pub(crate) fn answer_within(&self, longest: Duration) -> String {
        let asked = self.asked.lock();
        let answer = self.answers.recv_timeout(longest).unwrap_or_else(|e| panic!("{asked}: no answer from Java: {e}"));
        assert!(!answer.starts_with('!'), "{asked}: {answer}");
        answer
    }

    #[track_caller]
    pub(crate) fn call(&self, command: &str) -> String {
        self.begin(command);
        self.answer()
    }

    /// The answer, or the exception.
    pub(crate) fn attempt(&self, command: &str) -> Result<String, String> {
        self.begin(command);
        let answer = self.answers.recv_timeout(CAP).unwrap_or_else(|e| panic!("no answer from Java: {e}"));
        answer.strip_prefix('!').map_or_else(|| Ok(answer.clone()), |exception| Err(exception.to_owned()))
    }

    /// The exception of a command that must fail.
    #[track_caller]
    pub(crate) fn fail(&self, command: &str) -> String {
        self.begin(command);
        let answer = self.answers.recv_timeout(CAP).unwrap_or_else(|e| panic!("no answer from Java: {e}"));
        answer.strip_prefix('!').unwrap_or_else(|| panic!("{command}: {answer}, and no exception")).to_owned()
    }

    /// Whether the last command has no answer yet.
    pub(crate) fn waits(&self) -> bool {
        self.answers.is_empty()
    }

    /// Sends a command that has to wait, and returns when the server shows that it waits.
    #[track_caller]
    pub(crate) fn begin_waiting(&self, server: &Server, command: &str, name: &str, shown: Waits) {
        self.begin_waiting_until(command, || shown(server, name));
    }

    /// The same where the waiter may show elsewhere than on one server.
    #[track_caller]
    pub(crate) fn begin_waiting_until(&self, command: &str, shown: impl Fn() -> bool) {
        self.begin(command);
        wait_until(&format!("{command} waits"), || !self.waits() || shown());
        // Redisson tries once more and only then waits: a message `1` of a Redisson writer between
        // the two wakes nobody, and nothing on the server shows when that is over.
        std::thread::sleep(ms(300));
        assert!(self.waits(), "{command} did not wait: {:?}", self.answers.try_recv());
    }
}

/// Whether there is a waiter for the name.
pub(crate) type Waits = fn(&Server, &str) -> bool;

/// The number of subscribers of a channel.
pub(crate) fn listeners(server: &Server, channel: &str) -> u32 {
    let (_, count): (String, u32) = server.cmd(&["PUBSUB", "NUMSUB", channel]);
    count
}
