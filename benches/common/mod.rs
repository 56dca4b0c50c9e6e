//! What the benchmarks share: the command line, a private server, *raw*, load, other processes, and
//! the parts that are the same for every primitive.

pub(crate) mod load;
pub(crate) mod parts;
pub(crate) mod player;
pub(crate) mod primitive;
pub(crate) mod scripts;
pub(crate) mod server;
pub(crate) mod surroundings;
pub(crate) mod table;

use std::time::{Duration, Instant};

use leasehold::LockClient;

use self::server::Server;
use self::table::Table;

/// A group of rows of the table, selected by name.
pub(crate) type Part = (&'static str, fn(&Bench, &mut Table));

/// The delay of `--delayed` in each direction.
const DELAY: Duration = Duration::from_micros(200);
/// If other programs use more of the machine than this, the results are worthless.
const BUSY: f64 = 0.2;

/// The load on the machine and the network during a measurement.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Surroundings {
    Quiet,
    /// Two processes keep the processor busy all the time.
    Hogs,
    /// The network to the server has a delay of [`DELAY`].
    Delayed,
}

impl Surroundings {
    /// The suffix of the rows.
    fn label(self) -> &'static str {
        match self {
            Self::Quiet => "",
            Self::Hogs => ", beside two hogs",
            Self::Delayed => ", 0.2 ms away",
        }
    }
}

pub(crate) struct Bench {
    pub(crate) server: Server,
    pub(crate) quick: bool,
    surroundings: Surroundings,
    /// Where clients find the server; through the delayed network, if there is one.
    url: String,
}

impl Bench {
    pub(crate) fn or_quick<T>(&self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }

    /// The number of rounds, and the length of each in milliseconds.
    pub(crate) fn rounds(&self, full: (usize, u64), quick: (usize, u64)) -> (usize, Duration) {
        let (rounds, millis) = self.or_quick(full, quick);
        (rounds, Duration::from_millis(millis))
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn client(&self) -> LockClient {
        open(self.url())
    }

    /// The minimum ratio here, on a quiet machine and beside hogs. There is none for a slow
    /// network, which hides most of what a client does.
    pub(crate) fn budget(&self, quiet: f64, hogs: f64) -> Option<f64> {
        match self.surroundings {
            Surroundings::Quiet => Some(quiet),
            Surroundings::Hogs => Some(hogs),
            Surroundings::Delayed => None,
        }
    }
}

pub(crate) fn open(url: &str) -> LockClient {
    LockClient::open(url).expect("the private server answers")
}

/// What the command line asks for.
struct Wanted {
    names: Vec<String>,
    quick: bool,
    tcp: bool,
    markdown: bool,
    surroundings: Vec<Surroundings>,
}

const FLAGS: [&str; 6] = ["--quick", "--tcp", "--markdown", "--quiet", "--hogs", "--delayed"];

impl Wanted {
    /// Exits if an argument is unknown.
    fn parse(mut args: Vec<String>, parts: &[Part], more: &[&str]) -> Self {
        // Cargo adds this argument.
        args.retain(|a| a != "--bench");
        let (flags, names): (Vec<_>, Vec<_>) = args.into_iter().partition(|a| a.starts_with("--"));
        let unknown_flag = flags.iter().find(|f| !FLAGS.contains(&f.as_str()));
        let unknown_name = names.iter().find(|n| !parts.iter().any(|(name, _)| name == n));
        if let Some(unknown) = unknown_flag.or(unknown_name) {
            let known: Vec<_> = parts.iter().map(|(name, _)| *name).collect();
            eprintln!(
                "unknown argument {unknown:?}; known: {} {}",
                FLAGS.join(" "),
                known.join(" ")
            );
            std::process::exit(2);
        }
        let has = |flag: &str| flags.iter().any(|f| f == flag);
        let all = [
            (Surroundings::Quiet, "--quiet"),
            (Surroundings::Hogs, "--hogs"),
            (Surroundings::Delayed, "--delayed"),
        ];
        let mut surroundings: Vec<_> =
            all.iter().filter(|(_, flag)| has(flag)).map(|(one, _)| *one).collect();
        if surroundings.is_empty() {
            surroundings.push(Surroundings::Quiet);
            if !more.is_empty() {
                surroundings.extend([Surroundings::Hogs, Surroundings::Delayed]);
            }
        }
        Self {
            names,
            quick: has("--quick"),
            tcp: has("--tcp"),
            markdown: has("--markdown"),
            surroundings,
        }
    }

    fn has(&self, part: &str) -> bool {
        self.names.is_empty() || self.names.iter().any(|name| name == part)
    }
}

/// Measures the parts that the command line names, or all; those in `everywhere` also beside hogs
/// and through a slow network. With `--role` it acts as a process that another one has started.
pub(crate) fn run(parts: &[Part], everywhere: &[&str], play: fn(&[&str]) -> bool) {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.first().is_some_and(|a| a == "--role") {
        let role: Vec<_> = args[1..].iter().map(String::as_str).collect();
        let played = surroundings::play(&role) || parts::play(&role) || play(&role);
        assert!(played, "no such role: {role:?}");
        return;
    }
    let wanted = Wanted::parse(args, parts, everywhere);
    let started = Instant::now();
    let mut table = Table::default();
    let (mut busiest, mut version) = (0.0_f64, String::new());
    for surroundings in wanted.surroundings.iter().copied() {
        let delayed = surroundings == Surroundings::Delayed;
        let server = Server::start(wanted.tcp || delayed);
        version.clone_from(&server.version);
        let network = delayed.then(|| surroundings::delay(server.port, DELAY));
        let url = network
            .as_ref()
            .map_or_else(|| server.url.clone(), |(_, port)| format!("redis://127.0.0.1:{port}/"));
        let bench = Bench { server, quick: wanted.quick, surroundings, url };
        table.suffix = surroundings.label();
        let chosen = |name: &str| {
            wanted.has(name) && (surroundings == Surroundings::Quiet || everywhere.contains(&name))
        };
        for (name, part) in parts.iter().filter(|(name, _)| chosen(name)) {
            eprintln!(
                "{name}{} ... ({:.0} s)",
                surroundings.label(),
                started.elapsed().as_secs_f64()
            );
            busiest = busiest.max(surroundings::used_by_others().unwrap_or(0.0));
            let hogs = (surroundings == Surroundings::Hogs).then(surroundings::hogs);
            part(&bench, &mut table);
            drop(hogs);
        }
    }
    print(&wanted, &version, busiest, &table);
    eprintln!("{:.0} s", started.elapsed().as_secs_f64());
}

fn print(wanted: &Wanted, version: &str, busiest: f64, table: &Table) {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let socket = if wanted.tcp { "TCP on the loopback interface" } else { "a unix socket" };
    let caution = if wanted.quick { ", quick: the numbers say little" } else { "" };
    println!("{version} over {socket}, {cores} cores, lease 30 s{caution}");
    println!(
        "raw = the same two scripts, packed once, one blocking connection per thread; raw cycles = its rate"
    );
    println!("with one thread and nobody else, measured in turns with what it is compared with");
    println!("ratio = the median over the rounds, with the quartiles where there are several\n");
    print!("{}", if wanted.markdown { table.as_markdown() } else { table.as_text() });
    println!("\n{}", table.verdict());
    let percent = busiest * 100.0;
    if busiest > BUSY {
        println!(
            "DO NOT BELIEVE IT: other programs used up to {percent:.0} % of this machine meanwhile"
        );
    } else {
        println!(
            "other programs used {percent:.0} % of this machine at most, looked at before each part"
        );
    }
}
