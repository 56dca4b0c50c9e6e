//! Java programs of the tests. Their sources are in `tests/java`.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use crate::kept_dir;

/// Options for every one of them: a small heap and a quick start.
const SMALL: [&str; 4] =
    ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"];

/// A property of a `pom.xml`.
pub struct Version {
    pub property: &'static str,
    /// The variable that chooses another one than the default.
    pub variable: &'static str,
    pub default: &'static str,
}

impl Version {
    fn chosen(&self) -> String {
        std::env::var(self.variable).unwrap_or_else(|_| self.default.to_owned())
    }
}

pub struct JavaProgram {
    /// Its folder in `tests`, and the package of its classes.
    name: &'static str,
    versions: &'static [Version],
    /// What a user can leave out who has no Java.
    tests: &'static str,
    built: OnceLock<Result<PathBuf, String>>,
}

impl JavaProgram {
    pub const fn new(
        name: &'static str,
        versions: &'static [Version],
        tests: &'static str,
    ) -> Self {
        Self { name, versions, tests, built: OnceLock::new() }
    }

    /// A command that runs this class, with these options of Java.
    pub fn command(&self, class: &str, options: &[String]) -> Command {
        let mut command = Command::new("java");
        command.args(SMALL).args(options).arg("-cp").arg(self.jar());
        command.arg(format!("{}.{class}", self.name));
        command
    }

    /// The jar, with its libraries beside it. Fails the test if there is no JDK or Maven, or if the
    /// jar cannot be built.
    pub fn jar(&self) -> &Path {
        self.built.get_or_init(|| self.build()).as_ref().unwrap_or_else(|why| {
            let Self { name, tests, .. } = self;
            panic!("no {name}: {why} (install a JDK 17 and Maven, or leave this out: {tests})")
        })
    }

    /// Maven runs only if something has changed: later runs need neither the network nor time.
    fn build(&self) -> Result<PathBuf, String> {
        let versions: Vec<String> = self.versions.iter().map(Version::chosen).collect();
        let name = format!("{}-{:016x}", versions.join("-"), self.hash_of_sources());
        let home = kept_dir().join(self.name);
        let out = home.join(&name);
        let jar = out.join(format!("{}.jar", self.name));
        run("java", Command::new("java").arg("-version"))?;
        if jar.exists() {
            return Ok(jar);
        }
        run("mvn", Command::new("mvn").arg("-version"))?;
        // Moved to its place when it is complete: another test binary may build it concurrently.
        let unfinished = home.join(format!("{name}.{}", std::process::id()));
        let mut maven = Command::new("mvn");
        maven.args(["-q", "-B", "-f"]).arg(self.pom());
        for (version, chosen) in self.versions.iter().zip(&versions) {
            maven.arg(format!("-D{}={chosen}", version.property));
        }
        maven.arg(format!("-Dout={}", unfinished.display())).arg("package");
        run("Maven's build", &mut maven)?;
        if std::fs::rename(&unfinished, &out).is_err() {
            let _ = std::fs::remove_dir_all(&unfinished);
        }
        if jar.exists() { Ok(jar) } else { Err(format!("no {}", jar.display())) }
    }

    fn pom(&self) -> PathBuf {
        tests().join(self.name).join("pom.xml")
    }

    fn hash_of_sources(&self) -> u64 {
        let mut files = vec![self.pom()];
        for package in ["driver", self.name] {
            let sources = std::fs::read_dir(tests().join("java").join(package)).unwrap();
            files.extend(sources.map(|file| file.unwrap().path()));
        }
        files.sort();
        let mut hasher = DefaultHasher::new();
        for file in &files {
            std::fs::read(file).unwrap().hash(&mut hasher);
        }
        hasher.finish()
    }
}

fn tests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn run(what: &str, command: &mut Command) -> Result<(), String> {
    match command.stdin(Stdio::null()).output() {
        Err(e) => Err(format!("no {what}: {e}")),
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!("{what} failed: {}", String::from_utf8_lossy(&output.stdout))),
    }
}
