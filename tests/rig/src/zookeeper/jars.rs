//! The jars that ZooKeeper and Curator run from. Maven fetches and builds them again only if
//! something has changed, so that later runs need neither the network nor time.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use crate::kept_dir;

/// Options for every Java program of the tests: a small heap and a quick start.
const SMALL: [&str; 4] =
    ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"];

fn chosen(variable: &str, default: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| default.to_owned())
}

/// A command that runs this class, with these options.
pub fn java(class: &str, options: &[String]) -> Command {
    let mut command = Command::new("java");
    command.args(SMALL).args(options).arg("-cp").arg(jar()).arg(class);
    command
}

/// The jar, with its libraries beside it. Fails the test if there is no JDK or Maven, or if the jar
/// cannot be built.
pub fn jar() -> &'static Path {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    BUILT.get_or_init(build).as_ref().unwrap_or_else(|why| {
        panic!(
            "no ZooKeeper: {why} (install a JDK 17 and Maven, or leave this out: --skip zookeeper)"
        )
    })
}

fn build() -> Result<PathBuf, String> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../curator");
    let zookeeper = chosen("LEASEHOLD_ZOOKEEPER_VERSION", "3.9.5");
    let curator = chosen("LEASEHOLD_CURATOR_VERSION", "5.9.0");
    let mut files = vec![source.join("pom.xml")];
    files.extend(
        std::fs::read_dir(source.join("src/main/java/curator"))
            .unwrap()
            .map(|file| file.unwrap().path()),
    );
    files.sort();
    let mut hasher = DefaultHasher::new();
    for file in &files {
        std::fs::read(file).unwrap().hash(&mut hasher);
    }

    let name = format!("{zookeeper}-{curator}-{:016x}", hasher.finish());
    let home = kept_dir().join("zookeeper");
    let out = home.join(&name);
    let jar = out.join("curator.jar");
    run("java", Command::new("java").arg("-version"))?;
    if jar.exists() {
        return Ok(jar);
    }
    run("mvn", Command::new("mvn").arg("-version"))?;
    // Moved to its place when it is complete: another test binary may build it concurrently.
    let unfinished = home.join(format!("{name}.{}", std::process::id()));
    let mut maven = Command::new("mvn");
    maven.args(["-q", "-B", "-f"]).arg(source.join("pom.xml"));
    maven
        .arg(format!("-Dzookeeper.version={zookeeper}"))
        .arg(format!("-Dcurator.version={curator}"));
    maven.arg(format!("-Dout={}", unfinished.display())).arg("package");
    run("Maven's build", &mut maven)?;
    if std::fs::rename(&unfinished, &out).is_err() {
        let _ = std::fs::remove_dir_all(&unfinished);
    }
    if jar.exists() { Ok(jar) } else { Err(format!("no {}", jar.display())) }
}

fn run(what: &str, command: &mut Command) -> Result<(), String> {
    match command.stdin(Stdio::null()).output() {
        Err(e) => Err(format!("no {what}: {e}")),
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!("{what} failed: {}", String::from_utf8_lossy(&output.stdout))),
    }
}
