//! The figures as metrics: names, meanings and samples, as the text that Prometheus scrapes and for
//! the facade of the crate `metrics`.

use std::fmt::Write;

#[cfg(feature = "metrics")]
use ::metrics::{Label, counter, gauge};

use super::stats::{NameStats, Stats};
use crate::base::counters::Figures;
use crate::base::histogram::Histogram;
use crate::base::loss::LossReason;

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

impl Stats {
    fn families(&self) -> Vec<Family<'_>> {
        let mut all = self.of_primitives();
        all.extend(self.of_names());
        all.extend(self.of_client());
        all.retain(|family| !family.samples.is_empty());
        all
    }

    fn client(&self) -> (&'static str, String) {
        ("client", self.client_name().to_owned())
    }

    fn of_primitives(&self) -> Vec<Family<'_>> {
        let family = |name, help, samples: fn(&Figures) -> Samples<'_>| {
            let of = |(primitive, figures)| {
                let labels = [self.client(), ("primitive", primitive_label(primitive))];
                samples(figures)
                    .into_iter()
                    .map(move |(more, value)| Sample { labels: labels.iter().cloned().chain(more).collect(), value })
            };
            Family { name, help, samples: self.primitives().flat_map(of).collect() }
        };
        vec![
            family("leasehold_calls_total", "Calls that tried to take something, by how they ended.", outcomes),
            family("leasehold_errors_total", "Calls that ended with an error, by its kind.", |figures| {
                figures.errors().map(|(kind, count)| (vec![("error", kind.label())], Value::Count(count))).collect()
            }),
            family("leasehold_contended_total", "Calls that met contention.", |figures| count(figures.contended())),
            family("leasehold_hand_overs_total", "Grants that came from another thread of the client.", hand_overs),
            family("leasehold_renewals_total", "Renewals that were confirmed.", |figures| count(figures.renewals())),
            family("leasehold_renewal_failures_total", "Renewals that failed and were tried again.", |figures| {
                count(figures.renewal_failures())
            }),
            family("leasehold_lost_total", "Holds that were lost, by the reason.", |figures| {
                LossReason::ALL
                    .iter()
                    .map(|reason| (vec![("reason", reason.label().to_owned())], Value::Count(figures.lost_by(*reason))))
                    .collect()
            }),
            family("leasehold_wait_seconds", "Waiting times of the calls that had to wait.", |figures| {
                vec![(Vec::new(), Value::Histogram(figures.waits()))]
            }),
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
                    labels: vec![self.client(), ("primitive", primitive_label(named.primitive())), name],
                    value: value(named.figures()),
                }
            };
            Family { name, help, samples: self.names().iter().map(of).collect() }
        };
        vec![
            family("leasehold_name_calls_total", "Calls for one of the names that matter most.", |figures| {
                Value::Count(figures.calls())
            }),
            family("leasehold_name_contended_total", "Calls for it that found it taken.", |figures| {
                Value::Count(figures.contended())
            }),
            family("leasehold_name_wait_seconds_total", "Total waiting time for it.", |figures| {
                Value::Seconds(figures.waits().sum().as_secs_f64())
            }),
            family("leasehold_name_hold_seconds_total", "Total time that it was held.", |figures| {
                Value::Seconds(figures.holds().sum().as_secs_f64())
            }),
            family("leasehold_name_lost_total", "Holds of it that were lost.", |figures| Value::Count(figures.lost())),
        ]
    }

    fn of_client(&self) -> Vec<Family<'_>> {
        let family = |name, help, value: Option<Value<'static>>| {
            let samples = value.into_iter().map(|value| Sample { labels: vec![self.client()], value }).collect();
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
            family("leasehold_requests_total", "Requests sent to the servers.", count(self.requests())),
            family("leasehold_sent_bytes_total", "Bytes sent to the servers.", count(self.bytes_sent())),
            family("leasehold_received_bytes_total", "Bytes received from the servers.", count(self.bytes_received())),
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
    outcomes.map(|(outcome, count)| (vec![("outcome", outcome.to_owned())], Value::Count(count))).into()
}

fn hand_overs(figures: &Figures) -> Samples<'_> {
    let ways = [
        ("passed_on", figures.passed_on()),
        ("with_release", figures.acquired_with_release()),
        ("joined", figures.joined()),
    ];
    ways.map(|(how, count)| (vec![("how", how.to_owned())], Value::Count(count))).into()
}

impl Stats {
    /// The figures in the text exposition format of Prometheus (version 0.0.4, with the media type
    /// `text/plain; version=0.0.4`). All names begin with `leasehold_`; every sample has the label
    /// `client`, which is the [client's name](crate::Builder::client_name).
    ///
    /// It is the text of one client. A program with several clients serves them at several paths,
    /// because a text may describe each metric only once.
    ///
    /// # Examples
    /// ```
    /// let client = leasehold::LockClient::builder().client_name("billing").build_in_memory()?;
    /// drop(client.lock("job")?);
    /// let text = client.stats().to_prometheus();
    /// let labels = r#"client="billing",primitive="mutex",outcome="granted_at_once""#;
    /// assert!(text.contains(&format!("leasehold_calls_total{{{labels}}} 1\n")));
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    #[must_use]
    pub fn to_prometheus(&self) -> String {
        let mut text = String::with_capacity(8 << 10);
        for family in self.families() {
            let kind = match family.samples[0].value {
                Value::Count(_) | Value::Seconds(_) => "counter",
                Value::Level(_) => "gauge",
                Value::Histogram(_) => "histogram",
            };
            let (name, help) = (family.name, family.help);
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
            family.samples.iter().for_each(|sample| write_sample(&mut text, name, sample));
        }
        text
    }
}

fn write_sample(text: &mut String, name: &str, sample: &Sample<'_>) {
    let labels = labels_of(sample);
    let _ = match sample.value {
        Value::Count(count) => writeln!(text, "{name}{{{labels}}} {count}"),
        Value::Seconds(number) | Value::Level(number) => writeln!(text, "{name}{{{labels}}} {number}"),
        Value::Histogram(histogram) => {
            for (end, count) in histogram.cumulated() {
                let _ = writeln!(text, "{name}_bucket{{{labels},le=\"{}\"}} {count}", end.as_secs_f64());
            }
            let (count, sum) = (histogram.count(), histogram.sum().as_secs_f64());
            writeln!(
                text,
                "{name}_bucket{{{labels},le=\"+Inf\"}} {count}\n{name}_sum{{{labels}}} {sum}\n{name}_count{{{labels}}} \
                 {count}"
            )
        }
    };
}

fn labels_of(sample: &Sample<'_>) -> String {
    let mut text = String::new();
    for (label, value) in &sample.labels {
        let comma = if text.is_empty() { "" } else { "," };
        let _ = write!(text, "{comma}{label}=\"");
        for c in value.chars() {
            match c {
                '\\' => text.push_str("\\\\"),
                '"' => text.push_str("\\\""),
                '\n' => text.push_str("\\n"),
                c => text.push(c),
            }
        }
        text.push('"');
    }
    text
}

#[cfg(feature = "metrics")]
impl Stats {
    /// Publishes the figures to the recorder that the program has installed with the crate
    /// `metrics`, under the names of [`to_prometheus`](Self::to_prometheus): counters as their
    /// counts, the rest as gauges. Call it now and then, such as before a scrape, or every 10 s on
    /// a thread of your own. Does nothing without a recorder. No I/O of this crate.
    ///
    /// It publishes on demand and not at each event: an event would cost a lookup in the recorder,
    /// more than all of this crate's own counting. So histograms are published as their quantiles,
    /// in a gauge with the label `quantile` (0.5, 0.99 and 1), with counters `_count` and
    /// `_sum_micros`. (Totals of seconds are published as whole microseconds, because counters of
    /// that crate have no fractions: `leasehold_name_wait_micros_total`.)
    pub fn publish(&self) {
        for family in self.families() {
            family.samples.iter().for_each(|sample| publish(family.name, sample));
        }
    }
}

#[cfg(feature = "metrics")]
fn publish(name: &'static str, sample: &Sample<'_>) {
    let labels: Vec<Label> = sample.labels.iter().map(|(label, value)| Label::new(*label, value.clone())).collect();
    match sample.value {
        Value::Count(count) => counter!(name, labels).absolute(count),
        Value::Seconds(seconds) => {
            counter!(name.replace("_seconds_", "_micros_"), labels).absolute((seconds * 1e6) as u64);
        }
        Value::Level(level) => gauge!(name, labels).set(level),
        Value::Histogram(histogram) => {
            for quantile in [0.5, 0.99, 1.0_f64] {
                let mut labels = labels.clone();
                labels.push(Label::new("quantile", quantile.to_string()));
                gauge!(name, labels).set(histogram.quantile(quantile).as_secs_f64());
            }
            counter!(format!("{name}_count"), labels.clone()).absolute(histogram.count());
            let micros = u64::try_from(histogram.sum().as_micros()).unwrap_or(u64::MAX);
            counter!(format!("{name}_sum_micros"), labels).absolute(micros);
        }
    }
}
