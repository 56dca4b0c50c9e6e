//! A timeline of a failed run, as an SVG, and its violations as text.
//!
//! A lane for each thread: thin grey lines are waits, bars are beliefs (a colour for each name),
//! red ticks are `is_held` calls that returned false. The faults are above, and a red line marks a
//! failed check.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use crate::check::Violation;
use crate::event::{Nanos, millis};
use crate::history::{Attempt, History};

const PIXELS_A_SECOND: f64 = 160.0;
const LANE: usize = 18;
const LEFT: f64 = 90.0;
const COLOURS: [&str; 8] =
    ["#4e79a7", "#f28e2b", "#59a14f", "#b07aa1", "#76b7b2", "#edc948", "#9c755f", "#ff9da7"];

struct Picture<'a> {
    history: &'a History,
    from: Nanos,
    to: Nanos,
    began: Nanos,
    body: String,
}

/// Writes the violations, one per line, with the seconds since the run began.
pub(crate) fn tell(dir: &Path, history: &History, violations: &[Violation], began: Nanos) {
    let mut text = String::new();
    for Violation { check, at, text: what } in violations {
        writeln!(text, "{:9.4} s  {check}: {what}", seconds(*at, began)).unwrap();
    }
    text += "\nfaults:\n";
    for fault in &history.faults {
        let (from, to) = (seconds(fault.from, began), seconds(fault.to, began));
        writeln!(text, "{from:9.4} s to {to:9.4} s  {:?} of {}", fault.fault, fault.target)
            .unwrap();
    }
    for (from, to) in &history.stalls {
        writeln!(
            text,
            "{:9.4} s to {:9.4} s  the machine stood still",
            seconds(*from, began),
            seconds(*to, began)
        )
        .unwrap();
    }
    writeln!(text, "\nthe run began at {began} by the clock in the files").unwrap();
    std::fs::write(dir.join("verdict.txt"), text).unwrap();
}

fn seconds(at: Nanos, began: Nanos) -> f64 {
    (at as f64 - began as f64) / 1e9
}

/// Draws the time around the first violation.
pub(crate) fn draw(
    dir: &Path,
    history: &History,
    violations: &[Violation],
    began: Nanos,
) -> PathBuf {
    let first = violations
        .first()
        .map_or(began, |violation| violation.at)
        .clamp(began, history.over.max(began));
    let (from, to) = (first.saturating_sub(millis(12_000)).max(began), first + millis(3000));
    let mut picture = Picture { history, from, to, began, body: String::new() };
    let height = picture.lanes(violations);
    let width = LEFT + (to - from) as f64 / 1e9 * PIXELS_A_SECOND + 20.0;
    let svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n{}</svg>\n",
        picture.body
    );
    let path = dir.join("timeline.svg");
    std::fs::write(&path, svg).unwrap();
    path
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

impl Picture<'_> {
    fn x(&self, at: Nanos) -> f64 {
        LEFT + (at.clamp(self.from, self.to) - self.from) as f64 / 1e9 * PIXELS_A_SECOND
    }

    /// Whether any part of a span is in the picture.
    fn shows(&self) -> impl Fn(Nanos, Nanos) -> bool + use<> {
        let (first, last) = (self.from, self.to);
        move |from, to| from <= last && to >= first
    }

    fn text(&mut self, x: f64, y: usize, text: &str) {
        writeln!(self.body, "<text x=\"{x:.1}\" y=\"{y}\">{}</text>", escaped(text)).unwrap();
    }

    fn bar(
        &mut self,
        span: (Nanos, Nanos),
        (y, height): (usize, usize),
        colour: &str,
        title: &str,
    ) {
        let (x, width) = (self.x(span.0), (self.x(span.1) - self.x(span.0)).max(1.0));
        writeln!(
            self.body,
            "<rect x=\"{x:.2}\" y=\"{y}\" width=\"{width:.2}\" height=\"{height}\" fill=\"{colour}\"><title>{}</title></rect>",
            escaped(title)
        )
        .unwrap();
    }

    /// Draws everything, from the top. Returns the height.
    fn lanes(&mut self, violations: &[Violation]) -> usize {
        let (history, shows) = (self.history, self.shows());
        let names = history.names();
        let colour = |name: &str| {
            COLOURS[names.iter().position(|own| own == name).unwrap_or(0) % COLOURS.len()]
        };
        for (n, name) in names.iter().enumerate() {
            let x = LEFT + 60.0 * n as f64;
            writeln!(
                self.body,
                "<rect x=\"{x}\" y=\"4\" width=\"10\" height=\"10\" fill=\"{}\"/>",
                colour(name)
            )
            .unwrap();
            self.text(x + 14.0, 13, name);
        }
        let mut y = 30;
        for fault in history.faults.iter().filter(|fault| shows(fault.from, fault.to)) {
            let title = format!("{:?} of {}", fault.fault, fault.target);
            self.bar((fault.from, fault.to), (y, 12), "#ffd0d0", &title);
            let x = self.x(fault.from);
            self.text(x, y + 10, &title);
            y += 14;
        }
        let top = y + 6;
        let mut lanes: BTreeMap<(usize, u32), Vec<&Attempt>> = BTreeMap::new();
        for attempt in &history.attempts {
            let end = attempt
                .given
                .as_ref()
                .map(|given| given.1)
                .or(attempt.answered())
                .unwrap_or(history.over);
            if shows(attempt.asked, end) {
                lanes.entry((attempt.process, attempt.thread)).or_default().push(attempt);
            }
        }
        y = top;
        for (_, attempts) in lanes {
            self.text(4.0, y + 12, &history.who(attempts[0]));
            for attempt in &attempts {
                self.attempt(attempt, y, colour(&attempt.names[0]));
            }
            y += LANE;
        }
        self.marks(violations, top, y);
        y + 30
    }

    fn attempt(&mut self, attempt: &Attempt, y: usize, colour: &str) {
        let what = format!("{:?} {:?}", attempt.kind, attempt.names);
        let answered = attempt.answered().unwrap_or(self.history.over);
        self.bar(
            (attempt.asked, answered),
            (y + 7, 2),
            "#bbbbbb",
            &format!("{what} waits, {:?}", attempt.outcome),
        );
        if let Some(span) = attempt.belief() {
            let title = format!("{what} believes, {:?}, {:?}", attempt.outcome, attempt.given);
            self.bar(span, (y + 2, 12), colour, &title);
        }
        if let Some(at) = attempt.doubted {
            self.bar((at, at), (y, 16), "red", &format!("{what} is lost, {:?}", attempt.told));
        }
    }

    fn marks(&mut self, violations: &[Violation], top: usize, bottom: usize) {
        let mut at = self.from;
        while at <= self.to {
            let x = self.x(at);
            self.text(x, bottom + 20, &format!("{:.1} s", seconds(at, self.began)));
            writeln!(
                self.body,
                "<line x1=\"{x}\" x2=\"{x}\" y1=\"{top}\" y2=\"{bottom}\" stroke=\"#eeeeee\"/>"
            )
            .unwrap();
            at += millis(500);
        }
        let shows = self.shows();
        for violation in violations.iter().filter(|violation| shows(violation.at, violation.at)) {
            let title = format!("{}: {}", violation.check, violation.text);
            self.bar((violation.at, violation.at), (top, bottom - top), "#ff000080", &title);
        }
    }
}

#[test]
fn a_picture_shows_who_believed() {
    let mut history = History { over: millis(5000), ..History::default() };
    let line = |text: &str| crate::event::Event::parse(text).unwrap();
    let events = [
        "1000000 0 1 asks plain a<b - -",
        "2000000 0 1 got 7",
        "3000000 0 1 looked true 3000001",
        "4000000 0 1 gave ok 4000001",
    ];
    history.add("p0", None, &events.map(line));
    let dir = crate::rig::fresh_dir();
    let violation = Violation { check: "exclusion", at: millis(3), text: "<two>".to_owned() };
    let svg =
        std::fs::read_to_string(draw(&dir, &history, std::slice::from_ref(&violation), 0)).unwrap();
    assert!(svg.contains("p0/t0") && svg.contains("believes") && svg.contains("&lt;two&gt;"));
    tell(&dir, &history, &[violation], 0);
    assert!(std::fs::read_to_string(dir.join("verdict.txt")).unwrap().contains("exclusion: <two>"));
    std::fs::remove_dir_all(dir).unwrap();
}
