//! For a registry of the crate `prometheus-client`.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

use super::{Value, families};
use crate::base::histogram::Histogram;
use crate::observe::stats::Stats;

/// The figures of one or several clients, for a registry of the crate `prometheus-client`: the
/// series of [`Stats::to_prometheus`], histograms with their buckets. Cargo feature
/// `prometheus-client`.
///
/// They are read at each scrape, on its thread: no I/O, and nothing blocks. Clients of one program
/// belong into one collector and need different [names](crate::Builder::client_name), because a
/// scrape may describe each metric only once.
///
/// # Examples
/// ```
/// use leasehold::LockClient;
/// use leasehold::observe::Collector;
/// use prometheus_client::registry::Registry;
///
/// let client = LockClient::builder().client_name("billing").build_in_memory()?;
/// let mut registry = Registry::default();
/// let of_scrapes = client.clone();
/// registry.register_collector(Box::new(Collector::new(move || vec![of_scrapes.stats()])));
///
/// drop(client.lock("job")?);
/// let mut text = String::new();
/// prometheus_client::encoding::text::encode(&mut text, &registry)?;
/// let labels = r#"client="billing",primitive="mutex",outcome="granted_at_once""#;
/// assert!(text.contains(&format!("leasehold_calls_total{{{labels}}} 1\n")));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Collector(Box<dyn Fn() -> Vec<Stats> + Send + Sync>);

impl Collector {
    /// `stats` is called at each scrape. A clone of a client that it owns keeps that client open.
    pub fn new(stats: impl Fn() -> Vec<Stats> + Send + Sync + 'static) -> Self {
        Self(Box::new(stats))
    }
}

impl fmt::Debug for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Collector").finish_non_exhaustive()
    }
}

impl prometheus_client::collector::Collector for Collector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let clients = (self.0)();
        for family in families(&clients) {
            let kind = match family.samples[0].value {
                Value::Count(_) | Value::Seconds(_) => MetricType::Counter,
                Value::Level(_) => MetricType::Gauge,
                Value::Histogram(_) => MetricType::Histogram,
            };
            // The encoder appends `_total` to counters, and a dot to the help.
            let name = family.name.strip_suffix("_total").unwrap_or(family.name);
            let mut metric =
                encoder.encode_descriptor(name, family.help.trim_end_matches('.'), None, kind)?;
            for sample in &family.samples {
                encode(metric.encode_family(&sample.labels)?, &sample.value)?;
            }
        }
        Ok(())
    }
}

fn encode(mut metric: MetricEncoder<'_>, value: &Value<'_>) -> fmt::Result {
    match value {
        Value::Count(count) => metric.encode_counter::<NoLabelSet, _, f64>(count, None),
        Value::Seconds(seconds) => metric.encode_counter::<NoLabelSet, _, f64>(seconds, None),
        Value::Level(level) => metric.encode_gauge(level),
        Value::Histogram(histogram) => {
            let sum = histogram.sum().as_secs_f64();
            let count = histogram.count();
            metric.encode_histogram::<NoLabelSet>(sum, count, &buckets(histogram), None)
        }
    }
}

/// Each bucket with what is in it alone: the encoder adds them up. The last one has no end.
fn buckets(histogram: &Histogram) -> Vec<(f64, u64)> {
    let mut below = 0;
    let ends = histogram.cumulated().map(|(end, count)| (end.as_secs_f64(), count));
    let alone = |(end, count)| (end, count - std::mem::replace(&mut below, count));
    ends.chain([(f64::INFINITY, histogram.count())]).map(alone).collect()
}
