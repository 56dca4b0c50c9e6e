//! The time line as an SVG. No I/O.

use std::fmt::Write;
use std::time::Duration;

use super::summary::part;
use super::timeline::{Group, Span, Timeline, joined, most_of};
use crate::text::{fit, time, width};

const WIDTH: f64 = 1_200.0;
const LEFT: f64 = 270.0;
const RIGHT: f64 = 1_110.0;
const TOP: f64 = 92.0;
const MOST_ROWS: usize = 30;
const LABEL_COLUMNS: usize = 36;
/// The greatest height of the curve of waiters.
const WAITS_HEIGHT: f64 = 64.0;
/// A narrower span would be invisible.
const LEAST_WIDTH: f64 = 1.0;
/// Up to this many spans have a tooltip.
const MOST_HINTS: usize = 2_000;

/// Distinct also for people who do not see all colours, and on paper.
const COLOURS: [&str; 8] =
    ["#3b6fb6", "#e08a2e", "#3f9b6c", "#c0504d", "#7d62a8", "#4aa3b5", "#b8679d", "#8c7a3d"];
const OTHERS: &str = "#8a93a0";

pub(super) struct Title {
    /// Both are safe to show, and not escaped for XML yet.
    pub(super) name: String,
    pub(super) store: String,
    pub(super) interval: Duration,
}

struct Row {
    label: String,
    colour: &'static str,
    held: Duration,
    times: u64,
    spans: Vec<Span>,
}

struct Picture<'t> {
    timeline: &'t Timeline,
    rows: Vec<Row>,
    row_height: f64,
    svg: String,
}

pub(super) fn picture(title: &Title, timeline: &Timeline) -> String {
    let finest = timeline.end / 2_000;
    let rows = rows(timeline, finest);
    let row_height = if rows.len() <= 12 { 32.0 } else { 22.0 };
    let mut picture = Picture { timeline, rows, row_height, svg: String::new() };
    picture.draw(title, finest);
    picture.svg
}

/// In the order of their first holds; those with the shortest times share one row.
fn rows(timeline: &Timeline, finest: Duration) -> Vec<Row> {
    let groups = timeline.shown_groups();
    let mut by_share: Vec<&Group> = groups.iter().collect();
    by_share.sort_by_key(|group| std::cmp::Reverse(group.total));
    let own = if by_share.len() > MOST_ROWS { MOST_ROWS - 1 } else { by_share.len() };
    let least = by_share.split_off(own);
    let is_own = |group: &&Group| !least.iter().any(|other| other.client == group.client);
    let row = |(place, group): (usize, &Group)| Row {
        label: group.who(),
        colour: COLOURS[place % COLOURS.len()],
        held: group.total,
        times: group.times,
        spans: joined_where_it_cannot_be_seen(&group.spans, finest),
    };
    let mut rows: Vec<Row> = groups.iter().filter(is_own).enumerate().map(row).collect();
    if !least.is_empty() {
        let mut spans: Vec<Span> =
            least.iter().flat_map(|group| group.spans.iter().copied()).collect();
        spans.sort_unstable();
        rows.push(Row {
            label: format!("{} others", least.len()),
            colour: OTHERS,
            held: least.iter().map(|group| group.total).sum(),
            times: least.iter().map(|group| group.times).sum(),
            spans: joined(&spans, finest),
        });
    }
    rows
}

/// Two spans that touch are not joined: the lock was released and taken again between them.
fn joined_where_it_cannot_be_seen(spans: &[Span], finest: Duration) -> Vec<Span> {
    if spans.len() <= MOST_HINTS { spans.to_vec() } else { joined(spans, finest) }
}

impl Picture<'_> {
    fn draw(&mut self, title: &Title, finest: Duration) {
        let rows_bottom = TOP + self.row_height * self.rows.len().max(1) as f64;
        let has_waits = self.timeline.waits.iter().any(|(_, waiting)| *waiting > 0);
        let waits_bottom = if has_waits { rows_bottom + 18.0 + WAITS_HEIGHT } else { rows_bottom };
        let height = waits_bottom + 74.0;
        self.open(title, height);
        self.bands();
        self.axis(rows_bottom, waits_bottom);
        self.spans();
        if has_waits {
            self.waits(waits_bottom, finest);
        }
        self.gaps(waits_bottom);
        self.labels();
        self.legend(waits_bottom + 54.0, has_waits);
        self.svg.push_str("</svg>\n");
    }

    fn put(&mut self, line: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = self.svg.write_fmt(line);
        self.svg.push('\n');
    }

    fn open(&mut self, title: &Title, height: f64) {
        let name = escape(&fit(&title.name, 70));
        let store = escape(&fit(&title.store, 80));
        let watched = time(self.timeline.end);
        let interval = time(title.interval);
        self.put(format_args!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" \
             font-family=\"'Segoe UI', 'Helvetica Neue', Arial, 'DejaVu Sans', sans-serif\" font-size=\"13\" fill=\"#1f2933\">\n\
             <title>Who had the lock {name}</title>\n<style>.n {{ fill: #5f6b7a }} .e {{ text-anchor: end }} .m {{ text-anchor: middle }}</style>\n\
             <defs><pattern id=\"gap\" width=\"7\" height=\"7\" patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\">\
             <rect width=\"7\" height=\"7\" fill=\"#f3f4f6\"/><rect width=\"2\" height=\"7\" fill=\"#b9c0ca\"/></pattern></defs>\n\
             <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>\n\
             <text x=\"24\" y=\"36\" font-size=\"21\" font-weight=\"600\">{name}\
             <tspan class=\"n\" font-size=\"15\" font-weight=\"400\" dx=\"10\">who had the lock</tspan></text>\n\
             <text x=\"24\" y=\"60\" class=\"n\">{store}  ·  watched for {watched}, polled every {interval}</text>"
        ));
    }

    fn x(&self, at: Duration) -> f64 {
        LEFT + part(at, self.timeline.end).clamp(0.0, 1.0) * (RIGHT - LEFT)
    }

    fn row_y(&self, place: usize) -> f64 {
        TOP + self.row_height * place as f64
    }

    fn bands(&mut self) {
        for place in (0..self.rows.len().max(1)).step_by(2) {
            let y = self.row_y(place);
            let height = self.row_height;
            let width = WIDTH - 48.0;
            self.put(format_args!(
                "<rect x=\"24\" y=\"{y}\" width=\"{width}\" height=\"{height}\" fill=\"#f6f7f9\"/>"
            ));
        }
    }

    fn axis(&mut self, rows_bottom: f64, bottom: f64) {
        self.put(format_args!(
            "<text x=\"{}\" y=\"{}\" class=\"n e\" font-size=\"11\">share</text>",
            WIDTH - 32.0,
            TOP - 8.0
        ));
        let (step, unit) = step(self.timeline.end);
        let mut at = Duration::ZERO;
        while at <= self.timeline.end {
            let x = self.x(at);
            self.put(format_args!(
                "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{:.1}\" stroke=\"#dde1e6\"/>\n\
                 <text x=\"{x:.1}\" y=\"{:.1}\" class=\"n m\" font-size=\"12\">{}</text>",
                bottom + 5.0,
                bottom + 20.0,
                tick(at, step, unit)
            ));
            at += step;
        }
        for y in [rows_bottom, bottom] {
            self.put(format_args!(
                "<line x1=\"{LEFT}\" x2=\"{RIGHT}\" y1=\"{y}\" y2=\"{y}\" stroke=\"#9aa5b1\"/>"
            ));
        }
    }

    fn spans(&mut self) {
        let has_hints = self.rows.iter().map(|row| row.spans.len()).sum::<usize>() <= MOST_HINTS;
        for (place, row) in std::mem::take(&mut self.rows).iter().enumerate() {
            let y = self.row_y(place) + 4.0;
            let height = self.row_height - 8.0;
            self.put(format_args!("<g fill=\"{}\">", row.colour));
            for (from, to) in &row.spans {
                let x = self.x(*from);
                // The gap shows that it was released and taken again at once.
                let width = (self.x(*to) - x - 0.5).max(LEAST_WIDTH);
                let x = x.min(RIGHT - width);
                let rect = format!(
                    "<rect x=\"{x:.1}\" y=\"{y}\" width=\"{width:.1}\" height=\"{height}\""
                );
                if has_hints {
                    let hint =
                        format!("{}: {}, from {}", row.label, time(*to - *from), time(*from));
                    self.put(format_args!(
                        "{rect} rx=\"1.5\"><title>{}</title></rect>",
                        escape(&hint)
                    ));
                } else {
                    self.put(format_args!("{rect}/>"));
                }
            }
            self.put(format_args!("</g>"));
            self.rows_label(place, row);
        }
    }

    fn rows_label(&mut self, place: usize, row: &Row) {
        let y = self.row_y(place) + self.row_height / 2.0 + 4.5;
        let percent = part(row.held, self.timeline.end) * 100.0;
        let hint = escape(&format!("{}: {}, {} times", row.label, time(row.held), row.times));
        self.put(format_args!(
            "<text x=\"{}\" y=\"{y}\" class=\"e\">{}<title>{hint}</title></text>\n\
             <text x=\"{}\" y=\"{y}\" class=\"e\">{percent:.1} %</text>",
            LEFT - 12.0,
            escape(&shortened(&row.label)),
            WIDTH - 32.0
        ));
    }

    fn labels(&mut self) {
        if self.timeline.groups.is_empty() {
            let y = TOP + self.row_height / 2.0 + 4.5;
            self.put(format_args!(
                "<text x=\"{}\" y=\"{y}\" class=\"e n\">nobody had it</text>",
                LEFT - 12.0
            ));
        }
    }

    fn waits(&mut self, bottom: f64, finest: Duration) {
        let waits = &self.timeline.waits;
        let steps = if waits.len() > MOST_HINTS { most_of(waits, finest) } else { waits.clone() };
        let most = steps.iter().map(|(_, waiting)| *waiting).max().unwrap_or(1).max(1);
        let y = |waiting: u64| bottom - waiting as f64 / most as f64 * (WAITS_HEIGHT - 8.0);
        let mut line =
            format!("M{:.1} {bottom}", self.x(steps.first().map_or(Duration::ZERO, |(at, _)| *at)));
        for (at, waiting) in &steps {
            let _ = write!(line, " H{:.1} V{:.1}", self.x(*at), y(*waiting));
        }
        let _ = write!(line, " H{RIGHT}");
        self.put(format_args!(
            "<path d=\"{line} V{bottom} Z\" fill=\"#5f6b7a\" fill-opacity=\"0.18\"/>\n\
             <path d=\"{line}\" fill=\"none\" stroke=\"#5f6b7a\" stroke-width=\"1.5\"/>\n\
             <text x=\"{0}\" y=\"{1:.1}\" class=\"e\">waiting</text>\n\
             <text x=\"{2}\" y=\"{3:.1}\" class=\"e n\" font-size=\"12\">max {most}</text>",
            LEFT - 12.0,
            bottom - WAITS_HEIGHT / 2.0 + 8.0,
            WIDTH - 32.0,
            y(most) + 5.0,
        ));
    }

    fn gaps(&mut self, bottom: f64) {
        let height = bottom - TOP;
        for (from, to) in &self.timeline.unknown {
            let x = self.x(*from);
            let width = (self.x(*to) - x).max(LEAST_WIDTH);
            let hint = format!("the store could not be queried for {}", time(*to - *from));
            self.put(format_args!(
                "<rect x=\"{x:.1}\" y=\"{TOP}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"url(#gap)\"><title>{hint}</title></rect>"
            ));
        }
    }

    fn legend(&mut self, y: f64, has_waits: bool) {
        let percent = |time| part(time, self.timeline.end) * 100.0;
        let mut x = LEFT;
        let mut entries = vec![
            ("fill=\"#3b6fb6\"", "holds the lock".to_owned()),
            (
                "fill=\"#ffffff\" stroke=\"#b9c0ca\"",
                format!("free: {:.1} %", percent(self.timeline.free)),
            ),
        ];
        if !self.timeline.unknown.is_empty() {
            let unknown = percent(self.timeline.unknown_time());
            entries.push((
                "fill=\"url(#gap)\"",
                format!("the store could not be queried: {unknown:.1} %"),
            ));
        }
        if has_waits {
            entries.push(("fill=\"#5f6b7a\" fill-opacity=\"0.3\"", "waiters".to_owned()));
        }
        for (fill, text) in entries {
            self.put(format_args!(
                "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"18\" height=\"12\" rx=\"1.5\" {fill}/>\n\
                 <text x=\"{:.1}\" y=\"{y:.1}\" class=\"n\">{text}</text>",
                y - 10.5,
                x + 25.0
            ));
            x += 62.0 + width(&text) as f64 * 7.0;
        }
    }
}

/// Cuts a label such as `billing-7 (pid 4711 on host-a)` at its end, which rarely distinguishes two
/// holders.
fn shortened(label: &str) -> String {
    fit(label, LABEL_COLUMNS)
}

/// A round step between ticks, and its unit.
fn step(end: Duration) -> (Duration, &'static str) {
    const STEPS_MS: [u64; 22] = [
        1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000, 120_000,
        300_000, 600_000, 1_800_000, 3_600_000, 7_200_000, 21_600_000,
    ];
    const MOST_TICKS: u128 = 10;
    let fits = |step: &&u64| end.as_millis() / u128::from(**step) <= MOST_TICKS;
    // Longer than the longest step: whole days.
    let days = Duration::from_secs(86_400)
        * u32::try_from(end.as_secs() / 864_000 + 1).unwrap_or(u32::MAX);
    let step = STEPS_MS.iter().find(fits).map_or(days, |step| Duration::from_millis(*step));
    let unit = match step.as_millis() {
        0..1_000 if end < Duration::from_secs(1) => "ms",
        0..60_000 => "s",
        60_000..3_600_000 => "min",
        _ => "h",
    };
    (step, unit)
}

fn tick(at: Duration, step: Duration, unit: &str) -> String {
    let number = match unit {
        "ms" => at.as_millis().to_string(),
        "s" if step < Duration::from_secs(1) => format!("{:.1}", at.as_secs_f64()),
        "s" => at.as_secs().to_string(),
        "min" => (at.as_secs() / 60).to_string(),
        _ => (at.as_secs() / 3_600).to_string(),
    };
    format!("{number} {unit}")
}

/// Escapes text, also for attributes in double quotes. Control characters, which XML forbids, have
/// been made visible before.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            // XML does not allow them, although Rust does.
            '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::super::standing::{Holder, Standing, owner};
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    fn of(holders: u64, label: &str) -> String {
        let mut line = Timeline::new(MS(100));
        for n in 0..holders {
            let owner = owner(&format!("{label}{n}"));
            let one = Holder {
                id: format!("c{n}:1"),
                owner: Some(owner),
                held_for: None,
                is_kept: false,
                is_foreign: false,
            };
            line.see(
                MS(n * 200),
                &Standing { holders: vec![one], waiting: Some(n), ..Standing::default() },
            );
        }
        line.finish(MS(holders * 200));
        let title = Title {
            name: "a<b>&\"c'".to_owned(),
            store: "redis://h/?a=1&b".to_owned(),
            interval: MS(100),
        };
        picture(&title, &line)
    }

    #[test]
    fn no_text_is_taken_for_xml() {
        let svg = of(2, "<script>\"&'");
        assert!(
            !svg.contains("<script") && svg.contains("&lt;script&gt;&quot;&amp;&#39;0 (pid "),
            "{svg}"
        );
        assert!(
            svg.contains("a&lt;b&gt;&amp;&quot;c&#39;") && svg.contains("redis://h/?a=1&amp;b")
        );
        assert_eq!(escape("\u{ffff}x"), "\u{fffd}x");
    }

    #[test]
    fn more_than_thirty_holders_share_the_last_row() {
        let rows = |svg: &str| svg.matches("<g fill=").count();
        assert_eq!(
            (rows(&of(0, "a")), rows(&of(1, "a")), rows(&of(30, "a")), rows(&of(45, "a"))),
            (0, 1, 30, 30)
        );
        assert!(of(45, "a").contains(">16 others<") && !of(30, "a").contains("others"));
        assert!(of(0, "a").contains("nobody had it"));
    }

    #[test]
    fn ticks_are_as_people_count() {
        for (end, expected, last) in [
            (500, "50 ms", "500 ms"),
            (4_000, "0.5 s", "4.0 s"),
            (16_000, "2 s", "16 s"),
            (600_000, "1 min", "10 min"),
            (86_400_000, "6 h", "24 h"),
            (20 * 86_400_000, "72 h", "432 h"),
        ] {
            let (step, unit) = step(MS(end));
            let steps = end / u64::try_from(step.as_millis()).unwrap();
            assert!(steps <= 10, "{end}");
            assert_eq!(
                (
                    tick(step, step, unit).as_str(),
                    tick(step * u32::try_from(steps).unwrap(), step, unit).as_str()
                ),
                (expected, last)
            );
        }
    }
}
