//! The figures as a table for people.

use std::fmt;

use super::Stats;
use crate::base::counters::Figures;

/// No line is wider.
const WIDTH: usize = 100;
const LABEL: usize = 24;

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let label = shortened(&self.client_name, 40);
        let Self { uptime, holds, waiting, unknown_outcomes, .. } = self;
        writeln!(f, "client {label}, up {uptime:.0?}")?;
        writeln!(f, "  now: {holds} held, {waiting} waiting, {unknown_outcomes} unknown outcomes")?;
        if let Some(traffic) = &self.traffic {
            let (sent, received) = (bytes(traffic.sent), bytes(traffic.received));
            writeln!(f, "  {} requests, {sent} sent, {received} received", traffic.requests)?;
            let (opened, broken, again) = (traffic.opened, traffic.broken, traffic.reopened);
            writeln!(f, "  {opened} connections opened, {broken} broken, {again} of those replaced")?;
        }
        writeln!(f)?;
        writeln!(
            f,
            "{:LABEL$} {:>9} {:>9} {:>6} {:>23} {:>23}",
            "", "calls", "granted", "cont.", "wait p50, p99, max", "hold p50, p99, max"
        )?;
        row(f, "all", &self.total)?;
        for (primitive, figures) in self.primitives() {
            row(f, primitive.as_str(), figures)?;
        }
        for named in &self.names {
            row(f, &shortened(named.name(), LABEL), named.figures())?;
        }
        let all = self.primitives().filter_map(|(primitive, figures)| Some((primitive, trouble_of(figures)?)));
        for (primitive, trouble) in all {
            wrapped(f, &format!("{primitive}: {}", trouble.join(", ")))?;
        }
        Ok(())
    }
}

fn row(f: &mut fmt::Formatter<'_>, label: &str, figures: &Figures) -> fmt::Result {
    let (waits, holds) = (figures.waits(), figures.holds());
    let share = 100.0 * figures.contended_share();
    write!(f, "{label:LABEL$} {:>9} {:>9} {share:>5.1}%", figures.calls(), figures.granted())?;
    for durations in [waits, holds] {
        for duration in [durations.p50(), durations.p99(), durations.max()] {
            if durations.count() == 0 {
                write!(f, " {:>7}", "-")?;
            } else {
                write!(f, " {:>7}", short(duration))?;
            }
        }
    }
    writeln!(f)
}

/// Everything but grants, as far as there is any.
fn trouble_of(figures: &Figures) -> Option<Vec<String>> {
    let counts = [
        (figures.reentered(), "re-entered"),
        (figures.busy(), "busy"),
        (figures.timed_out(), "timed out"),
        (figures.passed_on(), "passed on"),
        (figures.acquired_with_release(), "acquired with a release"),
        (figures.joined(), "joined"),
        (figures.renewals(), "renewals"),
        (figures.renewal_failures(), "renewals failed"),
    ];
    let mut parts: Vec<_> =
        counts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")).collect();
    parts
        .extend(figures.losses().map(|(reason, count)| format!("{count} lost ({})", reason.label().replace('_', " "))));
    parts.extend(figures.errors().map(|(kind, count)| format!("{count} with the error {kind:?}")));
    (!parts.is_empty()).then_some(parts)
}

/// Breaks a line between words.
fn wrapped(f: &mut fmt::Formatter<'_>, line: &str) -> fmt::Result {
    let mut width = 0;
    for word in line.split(' ') {
        let length = word.chars().count();
        if width > 0 && width + 1 + length > WIDTH {
            write!(f, "\n  ")?;
            width = 2;
        } else if width > 0 {
            write!(f, " ")?;
            width += 1;
        }
        write!(f, "{word}")?;
        width += length;
    }
    writeln!(f)
}

/// A name in so many columns: what no terminal should get is escaped.
pub(crate) fn shortened(name: &str, columns: usize) -> String {
    let escaped: String = name.escape_debug().collect();
    if escaped.chars().count() <= columns {
        return escaped;
    }
    escaped.chars().take(columns - 1).chain(['…']).collect()
}

/// In at most seven columns.
fn short(duration: std::time::Duration) -> String {
    let seconds = duration.as_secs_f64();
    match seconds {
        ..1e-3 => format!("{:.0}us", seconds * 1e6),
        ..1.0 => format!("{:.1}ms", seconds * 1e3),
        ..1e4 => format!("{seconds:.1}s"),
        ..3.6e7 => format!("{:.0}h", seconds / 3600.0),
        _ => "long".to_owned(),
    }
}

fn bytes(count: u64) -> String {
    let mut size = count as f64;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if size < 1024.0 {
            return if unit == "B" { format!("{count} B") } else { format!("{size:.1} {unit}") };
        }
        size /= 1024.0;
    }
    format!("{size:.1} TiB")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn durations_and_names_keep_their_columns() {
        for nanos in (0..64).map(|bits| (1_u64 << bits) - 1) {
            let text = short(Duration::from_nanos(nanos));
            assert!(text.len() <= 7, "{text}");
        }
        assert_eq!(short(Duration::from_micros(250)), "250us");
        assert_eq!(short(Duration::from_secs(9_999)), "9999.0s");
        assert_eq!(shortened("a\nb", 10), "a\\nb");
        assert_eq!(shortened(&"x".repeat(30), 24).chars().count(), 24);
        assert_eq!((bytes(1023), bytes(1536)), ("1023 B".to_owned(), "1.5 KiB".to_owned()));
    }
}
