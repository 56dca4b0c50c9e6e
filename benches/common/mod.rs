//! What the benchmarks share: the command line, a server of their own, *raw*, load, other
//! processes, and the parts that are the same for every primitive.

pub(crate) mod load;
pub(crate) mod parts;
pub(crate) mod player;
pub(crate) mod primitive;
pub(crate) mod scripts;
pub(crate) mod server;
pub(crate) mod table;

use std::time::{Duration, Instant};

use leasehold::LockClient;

use self::server::Server;
use self::table::Table;

/// Some rows of the table, selected by name.
pub(crate) type Part = (&'static str, fn(&Bench, &mut Table));

pub(crate) struct Bench {
    pub(crate) server: Server,
    pub(crate) quick: bool,
}

impl Bench {
    pub(crate) fn or_quick<T>(&self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }

    /// Rounds, and how long each lasts in milliseconds.
    pub(crate) fn rounds(&self, full: (usize, u64), quick: (usize, u64)) -> (usize, Duration) {
        let (rounds, millis) = self.or_quick(full, quick);
        (rounds, Duration::from_millis(millis))
    }

    pub(crate) fn url(&self) -> &str {
        &self.server.url
    }

    pub(crate) fn client(&self) -> LockClient {
        open(self.url())
    }
}

pub(crate) fn open(url: &str) -> LockClient {
    LockClient::open(url).expect("the private server answers")
}

/// Measures the parts that the command line names, or all. With `--role` it is a process that
/// another one has started.
pub(crate) fn run(parts: &[Part], play: fn(&[&str])) {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    if args.first().is_some_and(|a| a == "--role") {
        return play(&args[1..].iter().map(String::as_str).collect::<Vec<_>>());
    }
    // Cargo adds this argument.
    args.retain(|a| a != "--bench");
    let (flags, names): (Vec<_>, Vec<_>) = args.into_iter().partition(|a| a.starts_with("--"));
    let unknown_flag = flags.iter().find(|f| !["--quick", "--tcp", "--markdown"].contains(&f.as_str()));
    let unknown_name = names.iter().find(|n| !parts.iter().any(|(name, _)| name == n));
    if let Some(unknown) = unknown_flag.or(unknown_name) {
        let known: Vec<_> = parts.iter().map(|(name, _)| *name).collect();
        eprintln!("unknown argument {unknown:?}; known: --quick --tcp --markdown {}", known.join(" "));
        std::process::exit(2);
    }
    let [quick, tcp, markdown] = ["--quick", "--tcp", "--markdown"].map(|flag| flags.iter().any(|f| f == flag));
    let started = Instant::now();
    let bench = Bench { server: Server::start(tcp), quick };
    let mut table = Table::default();
    for (name, part) in parts {
        if names.is_empty() || names.iter().any(|n| n == name) {
            eprintln!("{name} ... ({:.0} s)", started.elapsed().as_secs_f64());
            part(&bench, &mut table);
        }
    }
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let socket = if tcp { "TCP on the loopback interface" } else { "a unix socket" };
    let caution = if quick { ", quick: the numbers say little" } else { "" };
    println!("{} over {socket}, {cores} cores, lease 30 s{caution}", bench.server.version);
    println!("raw = the same two scripts, packed once, one blocking connection per thread; raw cycles = its rate");
    println!("with one thread and nobody else, measured in turns with what it is compared with\n");
    print!("{}", if markdown { table.as_markdown() } else { table.as_text() });
    println!("\n{}", table.verdict());
    eprintln!("{:.0} s", started.elapsed().as_secs_f64());
}
