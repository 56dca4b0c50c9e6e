//! The Java program: builds it if needed, and starts it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

pub(crate) use crate::java::{JavaThread, Jvm};
use crate::rig::Server;

/// The newest version, unless another one is asked for.
fn version() -> String {
    std::env::var("LEASEHOLD_REDISSON").unwrap_or_else(|_| "4.7.0".to_owned())
}

/// The program, ready to run. Fails the test if it cannot be built.
pub(crate) fn program() -> &'static Path {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    BUILT.get_or_init(build).as_ref().unwrap_or_else(|why| {
        panic!("no Redisson: {why} (install a JDK 17 and Maven, or leave the tests `interop` out)")
    })
}

/// Maven runs only if something has changed: later runs need neither the network nor time.
fn build() -> Result<PathBuf, String> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/interop");
    let version = version();
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("interop").join(&version);
    let (jar, stamp) = (out.join("interop.jar"), out.join("built-from"));
    run("java", Command::new("java").arg("-version"))?;

    let mut files = vec![source.join("pom.xml")];
    files.extend(
        std::fs::read_dir(source.join("src/main/java/interop"))
            .unwrap()
            .map(|file| file.unwrap().path()),
    );
    files.sort();
    let now: String = files.iter().map(|file| std::fs::read_to_string(file).unwrap()).collect();
    if jar.exists() && std::fs::read_to_string(&stamp).is_ok_and(|then| then == now) {
        return Ok(jar);
    }

    run("mvn", Command::new("mvn").arg("-version"))?;
    let mut maven = Command::new("mvn");
    maven.args(["-q", "-B", "-f"]).arg(source.join("pom.xml"));
    maven
        .arg(format!("-Dredisson.version={version}"))
        .arg(format!("-Dout={}", out.display()))
        .arg("package");
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

impl Jvm {
    /// `settings` are arguments of the program, such as `watchdog=3000`.
    pub(crate) fn start(server: &Server, settings: &[&str]) -> Self {
        Self::start_on(std::slice::from_ref(server), settings)
    }

    /// With a client for each of the servers.
    pub(crate) fn start_on(servers: &[Server], settings: &[&str]) -> Self {
        Self::connect(&servers.iter().map(Server::url).collect::<Vec<_>>(), settings)
    }

    /// The setting `sentinel=mymaster` means that the servers are sentinels, `cluster=AUTO` that
    /// they are nodes of a cluster (see `Servers.java`).
    pub(crate) fn connect(urls: &[String], settings: &[&str]) -> Self {
        let jar = program();
        let addresses: Vec<&str> = urls.iter().map(|url| url.trim_end_matches('/')).collect();
        let mut java = Command::new("java");
        java.args(["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"])
            .args(["-Dorg.slf4j.simpleLogger.defaultLogLevel=off", "-jar"])
            .arg(jar)
            .arg(addresses.join(","))
            .args(settings);
        Self::spawn(&mut java)
    }
}

impl JavaThread<'_> {
    /// Sends a command that must wait, and returns when the server shows that it does.
    #[track_caller]
    pub(crate) fn begin_waiting(&self, server: &Server, command: &str, name: &str, shown: Waits) {
        self.begin_waiting_until(command, || shown(server, name));
    }
}

/// Whether there is a waiter for the name.
pub(crate) type Waits = fn(&Server, &str) -> bool;

/// The number of subscribers of a channel.
pub(crate) fn listeners(server: &Server, channel: &str) -> u32 {
    let (_, count): (String, u32) = server.cmd(&["PUBSUB", "NUMSUB", channel]);
    count
}
