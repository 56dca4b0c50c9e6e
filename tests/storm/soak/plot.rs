//! The samples as an SVG: a row for each store, a panel for each figure.

use std::fmt::Write;

use super::samples::Series;

const WIDTH: f64 = 190.0;
const HEIGHT: f64 = 74.0;
const LEFT: f64 = 130.0;
const TOP: f64 = 46.0;
/// Between panels, for the labels of the axes.
const GAP: (f64, f64) = (46.0, 34.0);
const COLOURS: [&str; 2] = ["#4e79a7", "#f28e2b"];

/// The panels of a store: the title, and the series in it.
const PANELS: [(&str, &[&str]); 6] = [
    ("memory of a process, MB", &["p0 memory MB", "p1 memory MB"]),
    ("threads of a process", &["p0 threads", "p1 threads"]),
    ("sockets of a process", &["p0 sockets", "p1 sockets"]),
    ("keys, rows, nodes of the store", &["keys", "rows", "nodes"]),
    ("connections of the servers", &["connections"]),
    ("locks taken so far", &["locks taken"]),
];

pub(super) fn draw(stores: &[(&str, &Series)]) -> String {
    let (width, height) =
        (LEFT + 6.0 * (WIDTH + GAP.0), TOP + stores.len() as f64 * (HEIGHT + GAP.1) + 10.0);
    let minutes = stores
        .iter()
        .flat_map(|(_, series)| series.values().flatten())
        .map(|(at, _)| *at)
        .fold(1.0, f64::max);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
         font-family=\"sans-serif\" font-size=\"10\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    for (column, (title, _)) in PANELS.iter().enumerate() {
        let x = LEFT + column as f64 * (WIDTH + GAP.0);
        writeln!(
            svg,
            "<text x=\"{x:.0}\" y=\"24\" font-size=\"12\" font-weight=\"bold\">{title}</text>"
        )
        .unwrap();
    }
    for (row, (store, series)) in stores.iter().enumerate() {
        let y = TOP + row as f64 * (HEIGHT + GAP.1);
        writeln!(
            svg,
            "<text x=\"8\" y=\"{:.0}\" font-size=\"12\" font-weight=\"bold\">{store}</text>",
            y + 40.0
        )
        .unwrap();
        for (column, (_, names)) in PANELS.iter().enumerate() {
            let x = LEFT + column as f64 * (WIDTH + GAP.0);
            let shown: Vec<&Vec<(f64, f64)>> =
                names.iter().filter_map(|name| series.get(*name)).collect();
            if !shown.is_empty() {
                panel(&mut svg, (x, y), minutes, &shown);
            }
        }
    }
    svg + "</svg>\n"
}

/// A number that is easy to read, at least as large as this one.
fn round_up(value: f64) -> f64 {
    let power = 10_f64.powf(value.max(1.0).log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|step| step * power)
        .find(|round| *round >= value)
        .unwrap_or(value)
}

fn panel(svg: &mut String, (x, y): (f64, f64), minutes: f64, lines: &[&Vec<(f64, f64)>]) {
    let top = round_up(
        lines.iter().flat_map(|line| line.iter()).map(|(_, value)| *value).fold(1.0, f64::max),
    );
    let (right, bottom) = (x + WIDTH, y + HEIGHT);
    writeln!(
        svg,
        "<rect x=\"{x}\" y=\"{y}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#f7f7f7\"/>"
    )
    .unwrap();
    for (value, at) in [(0.0, bottom), (top / 2.0, (y + bottom) / 2.0), (top, y)] {
        writeln!(
            svg,
            "<line x1=\"{x}\" x2=\"{right}\" y1=\"{at}\" y2=\"{at}\" stroke=\"#dddddd\"/>"
        )
        .unwrap();
        let left = x - 4.0;
        writeln!(
            svg,
            "<text x=\"{left}\" y=\"{:.1}\" text-anchor=\"end\">{value}</text>",
            at + 3.0
        )
        .unwrap();
    }
    writeln!(svg, "<text x=\"{x}\" y=\"{:.1}\">0</text>", bottom + 12.0).unwrap();
    writeln!(
        svg,
        "<text x=\"{right}\" y=\"{:.1}\" text-anchor=\"end\">{minutes:.0} min</text>",
        bottom + 12.0
    )
    .unwrap();
    for (line, colour) in lines.iter().zip(COLOURS) {
        let point = |(at, value): &(f64, f64)| {
            format!("{:.1},{:.1}", x + at / minutes * WIDTH, bottom - value / top * HEIGHT)
        };
        let points: Vec<String> = line.iter().map(point).collect();
        writeln!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.3\"/>",
            points.join(" ")
        )
        .unwrap();
    }
}

#[test]
fn a_plot_has_a_panel_for_each_figure_that_was_sampled() {
    let mut series = Series::new();
    series.insert("p0 memory MB".to_owned(), vec![(1.0, 12.0), (2.0, 13.0)]);
    series.insert("keys".to_owned(), vec![(1.0, 3.0), (2.0, 30.0)]);
    let svg = draw(&[("redis", &series)]);
    assert_eq!(svg.matches("<polyline").count(), 2);
    assert!(
        svg.contains(">redis<")
            && svg.contains(">2 min<")
            && svg.contains(">50<")
            && svg.contains(">20<")
    );
    assert_eq!(
        [0.2, 1.0, 7.0, 51.0, 99.0, 100.0].map(round_up),
        [1.0, 1.0, 10.0, 100.0, 100.0, 100.0]
    );
}
