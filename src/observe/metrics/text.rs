//! The text that Prometheus scrapes.

use std::fmt::Write;

use super::{Sample, Value, families};
use crate::observe::stats::Stats;

impl Stats {
    /// The figures in the text exposition format of Prometheus (version 0.0.4, with the media type
    /// `text/plain; version=0.0.4`). All names begin with `leasehold_`; every sample has the label
    /// `client`, which is the [client's name](crate::Builder::client_name).
    ///
    /// It is the text of one client; [`to_prometheus_of`](Self::to_prometheus_of) writes one of
    /// several, because a text may describe each metric only once.
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
        Self::to_prometheus_of(std::slice::from_ref(self))
    }

    /// [`to_prometheus`](Self::to_prometheus) of several clients of one program, whose
    /// [names](crate::Builder::client_name) must differ: otherwise their samples have the same
    /// labels, and Prometheus refuses the text.
    #[must_use]
    pub fn to_prometheus_of(clients: &[Self]) -> String {
        let mut text = String::with_capacity(8 << 10);
        for family in families(clients) {
            let kind = match family.samples[0].value {
                Value::Count(_) | Value::Seconds(_) => "counter",
                Value::Level(_) => "gauge",
                Value::Histogram(_) => "histogram",
            };
            let name = family.name;
            let help = family.help;
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
            for sample in &family.samples {
                write_sample(&mut text, name, sample);
            }
        }
        text
    }
}

fn write_sample(text: &mut String, name: &str, sample: &Sample<'_>) {
    let labels = labels_of(sample);
    let _ = match sample.value {
        Value::Count(count) => writeln!(text, "{name}{{{labels}}} {count}"),
        Value::Seconds(number) | Value::Level(number) => {
            writeln!(text, "{name}{{{labels}}} {number}")
        }
        Value::Histogram(histogram) => {
            for (end, count) in histogram.cumulated() {
                let _ = writeln!(
                    text,
                    "{name}_bucket{{{labels},le=\"{}\"}} {count}",
                    end.as_secs_f64()
                );
            }
            let count = histogram.count();
            let sum = histogram.sum().as_secs_f64();
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
