//! The figures as metrics: names, meanings and samples. They are written as the text that
//! Prometheus scrapes, for a registry of the crate `prometheus-client`, and for the facade of the
//! crate `metrics`.

#[cfg(feature = "prometheus-client")]
mod collector;
#[cfg(feature = "metrics")]
mod facade;
mod text;

#[cfg(feature = "prometheus-client")]
pub use collector::Collector;

use super::stats::{NameStats, Stats};
use crate::base::counters::Figures;
use crate::base::histogram::Histogram;
use crate::base::loss::LossReason;
use crate::report::outcomes::{ElectionStats, JobStats, RunOutcome};

/// A metric: its name, its meaning and its samples.
struct Family<'s> {
    name: &'static str,
    help: &'static str,
    samples: Vec<Sample<'s>>,
}

struct Sample<'s> {
    labels: Vec<(&'static str, String)>,
    value: Value<'s>,
}

#[derive(Clone, Copy)]
enum Value<'s> {
    Count(u64),
    Seconds(f64),
    Level(f64),
    Histogram(&'s Histogram),
}

/// The values of samples, each with its additional labels.
type Samples<'s> = Vec<(Vec<(&'static str, String)>, Value<'s>)>;

/// Each metric once, with the samples of all clients; none without samples.
fn families(clients: &[Stats]) -> Vec<Family<'_>> {
    let mut of_clients = clients.iter().map(Stats::families);
    // Every client has the same metrics in the same order, though not all of them have samples.
    let mut all = of_clients.next().unwrap_or_default();
    for more in of_clients {
        for (family, more) in all.iter_mut().zip(more) {
            family.samples.extend(more.samples);
        }
    }
    all.retain(|family| !family.samples.is_empty());
    all
}

impl Stats {
    fn families(&self) -> Vec<Family<'_>> {
        let mut all = self.of_primitives();
        all.extend(self.of_names());
        all.extend(self.of_jobs());
        all.extend(self.of_elections());
        all.extend(self.of_client());
        all
    }

    fn client(&self) -> (&'static str, String) {
        ("client", self.client_name().to_owned())
    }

    fn of_primitives(&self) -> Vec<Family<'_>> {
        let family = |name, help, samples: fn(&Figures) -> Samples<'_>| {
            let of = |(primitive, figures)| {
                let labels = [self.client(), ("primitive", primitive_label(primitive))];
                samples(figures).into_iter().map(move |(more, value)| Sample {
                    labels: labels.iter().cloned().chain(more).collect(),
                    value,
                })
            };
            Family { name, help, samples: self.primitives().flat_map(of).collect() }
        };
        vec![
            family(
                "leasehold_calls_total",
                "Calls that tried to take something, by how they ended.",
                outcomes,
            ),
            family(
                "leasehold_errors_total",
                "Calls that ended with an error, by its kind.",
                |figures| {
                    figures
                        .errors()
                        .map(|(kind, count)| (vec![("error", kind.label())], Value::Count(count)))
                        .collect()
                },
            ),
            family("leasehold_contended_total", "Calls that met contention.", |figures| {
                count(figures.contended())
            }),
            family(
                "leasehold_hand_overs_total",
                "Grants that came from another thread of the client.",
                hand_overs,
            ),
            family("leasehold_renewals_total", "Renewals that were confirmed.", |figures| {
                count(figures.renewals())
            }),
            family(
                "leasehold_renewal_failures_total",
                "Renewals that failed and were tried again.",
                |figures| count(figures.renewal_failures()),
            ),
            family("leasehold_lost_total", "Holds that were lost, by the reason.", |figures| {
                LossReason::ALL
                    .iter()
                    .map(|reason| {
                        (
                            vec![("reason", reason.label().to_owned())],
                            Value::Count(figures.lost_by(*reason)),
                        )
                    })
                    .collect()
            }),
            family(
                "leasehold_wait_seconds",
                "Waiting times of the calls that had to wait.",
                |figures| vec![(Vec::new(), Value::Histogram(figures.waits()))],
            ),
            family("leasehold_wait_max_seconds", "The longest of these waits.", |figures| {
                vec![(Vec::new(), Value::Level(figures.waits().max().as_secs_f64()))]
            }),
            family("leasehold_hold_seconds", "Durations of the holds that are over.", |figures| {
                vec![(Vec::new(), Value::Histogram(figures.holds()))]
            }),
            family("leasehold_hold_max_seconds", "The longest of these holds.", |figures| {
                vec![(Vec::new(), Value::Level(figures.holds().max().as_secs_f64()))]
            }),
        ]
    }

    fn of_names(&self) -> Vec<Family<'_>> {
        let family = |name, help, value: fn(&Figures) -> Value<'static>| {
            let of = |named: &NameStats| {
                let name = ("name", named.name().to_owned());
                Sample {
                    labels: vec![
                        self.client(),
                        ("primitive", primitive_label(named.primitive())),
                        name,
                    ],
                    value: value(named.figures()),
                }
            };
            Family { name, help, samples: self.names().iter().map(of).collect() }
        };
        vec![
            family(
                "leasehold_name_calls_total",
                "Calls for one of the names that matter most.",
                |figures| Value::Count(figures.calls()),
            ),
            family(
                "leasehold_name_contended_total",
                "Calls for it that found it taken.",
                |figures| Value::Count(figures.contended()),
            ),
            family("leasehold_name_wait_seconds_total", "Total waiting time for it.", |figures| {
                Value::Seconds(figures.waits().sum().as_secs_f64())
            }),
            family(
                "leasehold_name_hold_seconds_total",
                "Total time that it was held.",
                |figures| Value::Seconds(figures.holds().sum().as_secs_f64()),
            ),
            family("leasehold_name_lost_total", "Holds of it that were lost.", |figures| {
                Value::Count(figures.lost())
            }),
        ]
    }

    fn of_jobs(&self) -> Vec<Family<'_>> {
        let labels = |job: &JobStats| vec![self.client(), ("name", job.name().to_owned())];
        let of = |job| {
            RunOutcome::ALL.map(|outcome| {
                let mut labels = labels(job);
                labels.push(("outcome", outcome.label().to_owned()));
                Sample { labels, value: Value::Count(job.count(outcome)) }
            })
        };
        let last = |job: &JobStats| {
            let at = job.last_done_since_1970()?;
            Some(Sample { labels: labels(job), value: Value::Level(at.as_secs_f64()) })
        };
        vec![
            Family {
                name: "leasehold_job_runs_total",
                help: "Calls for a scheduled job, by what became of them.",
                samples: self.jobs().iter().flat_map(of).collect(),
            },
            Family {
                name: "leasehold_job_last_done_timestamp_seconds",
                help: "The newest success of the job that the client knows of, in seconds since 1970.",
                samples: self.jobs().iter().filter_map(last).collect(),
            },
        ]
    }

    fn of_elections(&self) -> Vec<Family<'_>> {
        let family = |name, help, value: fn(&ElectionStats) -> Value<'static>| {
            let of = |election: &ElectionStats| Sample {
                labels: vec![self.client(), ("name", election.name().to_owned())],
                value: value(election),
            };
            Family { name, help, samples: self.elections().iter().map(of).collect() }
        };
        vec![
            family("leasehold_terms_total", "Terms of the election that were led.", |election| {
                Value::Count(election.terms())
            }),
            family("leasehold_leads", "1 if the client leads now, else 0.", |election| {
                Value::Level(f64::from(u8::from(election.leads())))
            }),
        ]
    }

    fn of_client(&self) -> Vec<Family<'_>> {
        let family = |name, help, value: Option<Value<'static>>| {
            let samples = value
                .into_iter()
                .map(|value| Sample { labels: vec![self.client()], value })
                .collect();
            Family { name, help, samples }
        };
        let level = |level: usize| Some(Value::Level(level as f64));
        let count = |count: Option<u64>| count.map(Value::Count);
        let opened = count(self.connections_opened());
        vec![
            family("leasehold_holds", "Current holds.", level(self.holds())),
            family("leasehold_waiting", "Calls that are waiting now.", level(self.waiting())),
            family(
                "leasehold_unknown_outcomes",
                "Requests whose outcome is yet to be resolved.",
                level(self.unknown_outcomes()),
            ),
            family(
                "leasehold_requests_total",
                "Requests sent to the servers.",
                count(self.requests()),
            ),
            family(
                "leasehold_sent_bytes_total",
                "Bytes sent to the servers.",
                count(self.bytes_sent()),
            ),
            family(
                "leasehold_received_bytes_total",
                "Bytes received from the servers.",
                count(self.bytes_received()),
            ),
            family("leasehold_connections_opened_total", "Connections that were opened.", opened),
            family(
                "leasehold_connections_broken_total",
                "Connections that broke, or did not answer in time.",
                count(self.connections_broken()),
            ),
            family(
                "leasehold_reconnects_total",
                "Connections opened to replace one that broke.",
                count(self.reconnects()),
            ),
        ]
    }
}

fn primitive_label(primitive: crate::base::primitive::Primitive) -> String {
    primitive.as_str().to_owned()
}

fn count(count: u64) -> Samples<'static> {
    vec![(Vec::new(), Value::Count(count))]
}

/// How calls end, each with its count.
fn outcomes(figures: &Figures) -> Samples<'_> {
    let outcomes = [
        ("granted_at_once", figures.granted_at_once()),
        ("granted_after_wait", figures.granted_after_wait()),
        ("reentered", figures.reentered()),
        ("busy", figures.busy()),
        ("timed_out", figures.timed_out()),
        ("stopped", figures.stopped()),
        ("failed", figures.failed()),
    ];
    outcomes
        .map(|(outcome, count)| (vec![("outcome", outcome.to_owned())], Value::Count(count)))
        .into()
}

fn hand_overs(figures: &Figures) -> Samples<'_> {
    let ways = [
        ("passed_on", figures.passed_on()),
        ("with_release", figures.acquired_with_release()),
        ("joined", figures.joined()),
    ];
    ways.map(|(how, count)| (vec![("how", how.to_owned())], Value::Count(count))).into()
}
