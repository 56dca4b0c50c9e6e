//! The page in the text format of Prometheus, version 0.0.4.

use std::collections::HashSet;
use std::fmt::{Display, Write};
use std::time::UNIX_EPOCH;

use leasehold::Primitive;
use leasehold::observe::{LockSummary, NodeState, NodeStatus};

use super::figures::{Figures, held_for};

/// Labels beside `store`, and the value.
type Sample = (Vec<(&'static str, String)>, f64);

pub(super) fn page(figures: &Figures) -> String {
    let mut page = Page { text: String::with_capacity(8 << 10), store: &figures.store };
    page.of_looks(figures);
    if let Some(seen) = &figures.seen {
        page.of_kinds(&seen.locks);
        page.one(
            "holds_unlisted",
            "Holds that clients have no room to announce.",
            seen.unlisted as f64,
        );
        page.of_names(figures.named());
        let omitted = seen.locks.len() - figures.named().len();
        page.one("names_omitted", "Names that have no samples of their own.", omitted as f64);
        page.of_servers(&seen.nodes);
        if let Some((warnings, problems)) = figures.findings {
            let of = |severity: &str, count: usize| {
                (vec![("severity", severity.to_owned())], count as f64)
            };
            let samples = [of("warning", warnings), of("problem", problems)];
            page.family("findings", "gauge", "Findings of leasehold doctor, by severity.", samples);
        }
    }
    let help = "The exporter, by its version.";
    let _ = writeln!(
        page.text,
        "# HELP leasehold_exporter_info {help}\n# TYPE leasehold_exporter_info gauge"
    );
    let _ = writeln!(
        page.text,
        "leasehold_exporter_info{{version=\"{}\"}} 1",
        env!("CARGO_PKG_VERSION")
    );
    page.text
}

struct Page<'p> {
    text: String,
    store: &'p str,
}

impl Page<'_> {
    fn of_looks(&mut self, figures: &Figures) {
        if let Some(is_up) = figures.is_up() {
            self.one(
                "up",
                "1 if the last poll of the store succeeded, else 0.",
                f64::from(u8::from(is_up)),
            );
            self.one("look_seconds", "How long the last poll took.", figures.took.as_secs_f64());
        }
        let of = |outcome: &str, count: u64| (vec![("outcome", outcome.to_owned())], count as f64);
        let looks = [of("ok", figures.succeeded), of("failed", figures.failed)];
        self.family("looks_total", "counter", "Polls of the store, by outcome.", looks);
        if let Some(last) =
            figures.last_success.and_then(|last| last.duration_since(UNIX_EPOCH).ok())
        {
            let help = "When the last poll succeeded, in seconds since 1970.";
            self.one("last_look_timestamp_seconds", help, last.as_secs_f64());
        }
    }

    /// Every kind always has a sample: a series that comes and goes cannot be summed over time.
    fn of_kinds(&mut self, locks: &[LockSummary]) {
        let by_kind = |count: fn(&LockSummary) -> u64| {
            KINDS.map(|kind| {
                let sum: u64 =
                    locks.iter().filter(|lock| lock.primitive() == kind).map(count).sum();
                (vec![("kind", kind.as_str().to_owned())], sum as f64)
            })
        };
        self.family("locks", "gauge", "Names in use, by kind.", by_kind(|_| 1));
        let waiting = by_kind(|lock| lock.waiting().unwrap_or(0));
        self.family("waiting", "gauge", "Who waits for them, as far as the store knows.", waiting);
    }

    fn of_names(&mut self, locks: &[LockSummary]) {
        // Prometheus refuses a page on which a sample comes twice.
        let mut known = HashSet::new();
        let locks: Vec<_> = locks
            .iter()
            .filter(|lock| known.insert((lock.name(), lock.primitive().as_str())))
            .collect();
        let mut family = |name: &str, help: &str, value: fn(&LockSummary) -> Option<f64>| {
            let labels = |lock: &LockSummary| {
                vec![
                    ("name", lock.name().to_owned()),
                    ("kind", lock.primitive().as_str().to_owned()),
                ]
            };
            let samples = locks.iter().filter_map(|lock| Some((labels(lock), value(lock)?)));
            self.family(name, "gauge", help, samples);
        };
        family(
            "name_held_seconds",
            "For how long the longest holder of the name has had it.",
            |lock| held_for(lock).map(|held| held.as_secs_f64()),
        );
        family(
            "name_holders",
            "Holders of the name; of a semaphore, the permits that are taken.",
            // Nobody knows that of permits without leases.
            |lock| (lock.primitive() != Primitive::CountingSemaphore).then(|| lock.taken() as f64),
        );
        family("name_waiting", "Who waits for the name, as far as the store knows.", |lock| {
            lock.waiting().map(|waiting| waiting as f64)
        });
        family(
            "name_remaining_seconds",
            "Until the last lease of the name ends unless it is renewed.",
            |lock| lock.remaining().map(|left| left.as_secs_f64()),
        );
        family(
            "name_fencing_token",
            "The last fencing token that was issued for the name.",
            |lock| lock.last_token().map(|token| token.get() as f64),
        );
    }

    fn of_servers(&mut self, nodes: &[NodeStatus]) {
        let labels = |node: &NodeStatus| vec![("server", node.address().to_owned())];
        let is_up = |node: &NodeStatus| f64::from(u8::from(node.state() != NodeState::Down));
        let help = "1 if the server answers, else 0.";
        self.family(
            "server_up",
            "gauge",
            help,
            nodes.iter().map(|node| (labels(node), is_up(node))),
        );
        let latency = |node: &NodeStatus| Some((labels(node), node.latency()?.as_secs_f64()));
        let help = "How long the last answer of the server took.";
        self.family("server_latency_seconds", "gauge", help, nodes.iter().filter_map(latency));
    }

    fn one(&mut self, name: &str, help: &str, value: f64) {
        self.family(name, "gauge", help, [(Vec::new(), value)]);
    }

    /// Nothing at all without samples.
    fn family(
        &mut self,
        name: &str,
        kind: &str,
        help: &str,
        samples: impl IntoIterator<Item = Sample>,
    ) {
        let mut samples = samples.into_iter().peekable();
        if samples.peek().is_some() {
            let _ = writeln!(
                self.text,
                "# HELP leasehold_store_{name} {help}\n# TYPE leasehold_store_{name} {kind}"
            );
        }
        for (labels, value) in samples {
            let _ = write!(self.text, "leasehold_store_{name}{{store=\"{}\"", Escaped(self.store));
            for (label, text) in labels {
                let _ = write!(self.text, ",{label}=\"{}\"", Escaped(&text));
            }
            let _ = writeln!(self.text, "}} {value}");
        }
    }
}

const KINDS: [Primitive; 8] = [
    Primitive::Mutex,
    Primitive::Fair,
    Primitive::Read,
    Primitive::Write,
    Primitive::Semaphore,
    Primitive::CountingSemaphore,
    Primitive::Latch,
    // A scheduled job that runs.
    Primitive::Once,
];

/// The value of a label.
struct Escaped<'t>(&'t str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.chars().try_for_each(|c| match c {
            '\\' => f.write_str("\\\\"),
            '"' => f.write_str("\\\""),
            '\n' => f.write_str("\\n"),
            c => f.write_char(c),
        })
    }
}
