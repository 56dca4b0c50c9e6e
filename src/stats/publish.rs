//! The same figures for the facade of the crate `metrics`.

use metrics::{Label, counter, gauge};

use super::Stats;
use super::families::{Sample, Value};

impl Stats {
    /// Sets the figures at the recorder that the program has installed with the crate `metrics`,
    /// under the names of [`to_prometheus`](Self::to_prometheus): counters to their counts, the
    /// rest as gauges. Call it now and then, such as before a scrape, or every 10 s on a thread
    /// of your own. Does nothing without a recorder. No I/O of this crate.
    ///
    /// It publishes on demand and not at each event: an event would cost a look-up at the recorder,
    /// more than all of this crate's own counting. So histograms come as their quantiles, in a
    /// gauge with the label `quantile` (0.5, 0.99 and 1), with counters `_count` and `_sum_micros`.
    /// (Seconds that only grow come as whole microseconds, because counters of that crate have no
    /// fractions: `leasehold_name_wait_micros_total`.)
    pub fn publish(&self) {
        for family in self.families() {
            family.samples.iter().for_each(|sample| publish(family.name, sample));
        }
    }
}

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
