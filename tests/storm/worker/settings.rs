//! The settings of a worker, passed in its environment.

use std::path::PathBuf;
use std::time::Duration;

use leasehold::{Builder, Cluster, LockClient, Redlock, Sentinel};

use crate::event::Kind;
use crate::rig::MASTER_NAME;

/// The kind of deployment that the URLs lead to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    One,
    Sentinel,
    Cluster,
    Redlock,
    Memory,
}

const MODES: [(Mode, &str); 5] = [
    (Mode::One, "one"),
    (Mode::Sentinel, "sentinel"),
    (Mode::Cluster, "cluster"),
    (Mode::Redlock, "redlock"),
    (Mode::Memory, "memory"),
];

/// How a client reaches its store.
#[derive(Debug, Clone)]
pub(crate) struct Address {
    pub(crate) mode: Mode,
    pub(crate) urls: Vec<String>,
    /// See `Builder::replicas`; 0 if unused.
    pub(crate) replicas: u32,
}

impl Address {
    pub(crate) fn one(url: String) -> Self {
        Self { mode: Mode::One, urls: vec![url], replicas: 0 }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) address: Address,
    /// Other files whose names begin like this one are in the same directory.
    pub(crate) journal: PathBuf,
    pub(crate) seed: u64,
    pub(crate) threads: u32,
    pub(crate) lease: Duration,
    pub(crate) kinds: Vec<Kind>,
    /// How far its clock is ahead, by which it asks for the occurrences of a job.
    pub(crate) clock: Duration,
    /// Whether `min_hold` is supported.
    pub(crate) min_hold: bool,
    /// How long a thread rests between two turns, on average.
    pub(crate) pause: Duration,
    /// When it begins, and when it ends by itself, if it does.
    pub(crate) delay: Duration,
    pub(crate) life: Option<Duration>,
    /// It reaches the servers by a name, which is looked up slowly.
    pub(crate) slow_names: bool,
}

/// How long a dead waiter may block the others.
pub(crate) const WAITER_TIMEOUT: Duration = Duration::from_millis(1500);

impl Settings {
    pub(crate) fn to_env(&self) -> Vec<(&'static str, String)> {
        let Address { mode, urls, replicas } = &self.address;
        let mode = MODES.iter().find(|(one, _)| one == mode).expect("all modes are listed").1;
        let kinds: Vec<&str> = self.kinds.iter().map(|kind| kind.word()).collect();
        vec![
            ("STORM_MODE", mode.to_owned()),
            ("STORM_URLS", urls.join(" ")),
            ("STORM_REPLICAS", replicas.to_string()),
            ("STORM_JOURNAL", self.journal.display().to_string()),
            ("STORM_WORKER_SEED", self.seed.to_string()),
            ("STORM_THREADS", self.threads.to_string()),
            ("STORM_LEASE", self.lease.as_millis().to_string()),
            ("STORM_KINDS", kinds.join(" ")),
            ("STORM_CLOCK", self.clock.as_millis().to_string()),
            ("STORM_MIN_HOLD", self.min_hold.to_string()),
            ("STORM_PAUSE", self.pause.as_millis().to_string()),
            ("STORM_DELAY", self.delay.as_millis().to_string()),
            ("STORM_LIFE", self.life.map_or(0, |life| life.as_millis()).to_string()),
            ("STORM_SLOW_NAMES", self.slow_names.to_string()),
        ]
    }

    pub(crate) fn from_env() -> Self {
        let text = |name: &str| std::env::var(name).unwrap();
        let number = |name: &str| text(name).parse::<u64>().unwrap();
        let words =
            |name: &str| text(name).split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let mode = text("STORM_MODE");
        Self {
            address: Address {
                mode: MODES.iter().find(|(_, word)| *word == mode).unwrap().0,
                urls: words("STORM_URLS"),
                replicas: u32::try_from(number("STORM_REPLICAS")).unwrap(),
            },
            journal: text("STORM_JOURNAL").into(),
            seed: number("STORM_WORKER_SEED"),
            threads: u32::try_from(number("STORM_THREADS")).unwrap(),
            lease: Duration::from_millis(number("STORM_LEASE")),
            kinds: words("STORM_KINDS").iter().map(|word| Kind::of(word).unwrap()).collect(),
            clock: Duration::from_millis(number("STORM_CLOCK")),
            min_hold: text("STORM_MIN_HOLD") == "true",
            pause: Duration::from_millis(number("STORM_PAUSE")),
            delay: Duration::from_millis(number("STORM_DELAY")),
            life: Some(Duration::from_millis(number("STORM_LIFE"))).filter(|life| !life.is_zero()),
            slow_names: text("STORM_SLOW_NAMES") == "true",
        }
    }
}

/// A client of any store except the one in memory.
pub(crate) fn builder(address: &Address, lease: Duration) -> Builder {
    let builder = match address.mode {
        Mode::One => LockClient::builder().url(&address.urls[0]),
        Mode::Sentinel => {
            let sentinels = Sentinel::new(&address.urls, MASTER_NAME);
            LockClient::builder().sentinel(match address.replicas {
                0 => sentinels,
                replicas => sentinels.replicas(replicas),
            })
        }
        Mode::Cluster => LockClient::builder().cluster(Cluster::new(&address.urls)),
        Mode::Redlock => {
            LockClient::builder().redlock(Redlock::new(&address.urls).longest_lease(lease))
        }
        Mode::Memory => LockClient::builder(),
    };
    // Longer than any fault, so that waiters continue.
    builder
        .lease(lease)
        .waiter_timeout(WAITER_TIMEOUT)
        .outage_timeout(Duration::from_secs(60))
        .connect_lazily()
}
