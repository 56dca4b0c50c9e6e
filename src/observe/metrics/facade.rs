//! For the facade of the crate `metrics`.

use ::metrics::{Label, Unit, counter, describe_counter, describe_gauge, gauge};

use super::{Family, Sample, Value};
use crate::observe::stats::Stats;

impl Stats {
    /// Publishes the figures to the recorder that the program has installed with the crate
    /// `metrics`: the series of [`to_prometheus`](Self::to_prometheus), so that the same queries
    /// work with both, and their descriptions. Call it now and then, such as before a scrape, or
    /// every 10 s on a thread of your own; it may be repeated. Does nothing without a recorder. No
    /// I/O of this crate.
    ///
    /// A name that is no longer among [`names`](Self::names) stays in the recorder with its last
    /// values: set the idle timeout that recorders have.
    ///
    /// It publishes on demand and not at each event: an event would cost a lookup in the recorder,
    /// more than all of this crate's own counting. So a histogram is published as Prometheus reads
    /// it: counters with the suffix `_bucket` and a label `le`, a counter `_count`, and a gauge
    /// `_sum`. Totals of seconds are gauges too, because counters of that crate have no fractions;
    /// `rate` of Prometheus takes them all the same.
    pub fn publish(&self) {
        for family in self.families().iter().filter(|family| !family.samples.is_empty()) {
            // Each time: the program may have installed another recorder meanwhile.
            describe(family);
            for sample in &family.samples {
                publish(family.name, sample);
            }
        }
    }
}

fn describe(family: &Family<'_>) {
    let name = family.name;
    let help = family.help;
    match family.samples[0].value {
        Value::Count(_) => describe_counter!(name, Unit::Count, help),
        Value::Seconds(_) => describe_gauge!(name, Unit::Seconds, help),
        Value::Level(_) if name.ends_with("_seconds") => describe_gauge!(name, Unit::Seconds, help),
        Value::Level(_) => describe_gauge!(name, Unit::Count, help),
        Value::Histogram(_) => {
            describe_counter!(format!("{name}_bucket"), Unit::Count, help);
            describe_counter!(format!("{name}_count"), Unit::Count, help);
            describe_gauge!(format!("{name}_sum"), Unit::Seconds, help);
        }
    }
}

fn publish(name: &'static str, sample: &Sample<'_>) {
    let labels: Vec<Label> =
        sample.labels.iter().map(|(label, value)| Label::new(*label, value.clone())).collect();
    match sample.value {
        Value::Count(count) => counter!(name, labels).absolute(count),
        Value::Seconds(number) | Value::Level(number) => gauge!(name, labels).set(number),
        Value::Histogram(histogram) => {
            let ends =
                histogram.cumulated().map(|(end, count)| (end.as_secs_f64().to_string(), count));
            for (end, count) in ends.chain([("+Inf".to_owned(), histogram.count())]) {
                let mut labels = labels.clone();
                labels.push(Label::new("le", end));
                counter!(format!("{name}_bucket"), labels).absolute(count);
            }
            counter!(format!("{name}_count"), labels.clone()).absolute(histogram.count());
            gauge!(format!("{name}_sum"), labels).set(histogram.sum().as_secs_f64());
        }
    }
}
