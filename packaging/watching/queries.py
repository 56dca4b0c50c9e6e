"""Runs the queries of the dashboard and of the alerts against a Prometheus.

  queries.py check URL [--dashboard FILE]     fails if a query of the dashboard, or a series of an alert, has no answer
  queries.py draw URL FROM TO FILE            draws the dashboard as SVG, from its own queries and layout (seconds since 1970)
"""

import html
import json
import math
import pathlib
import re
import sys
import urllib.parse
import urllib.request

import yaml

HERE = pathlib.Path(__file__).parent


def ask(url, path, **parameters):
    with urllib.request.urlopen(f"{url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}", timeout=10) as answer:
        return json.load(answer)["data"]["result"]


def filled_in(expression, interval):
    """As Grafana fills in the variables when all are selected."""
    for variable, value in [("$client", ".*"), ("$store", ".*"), ("$__rate_interval", interval)]:
        expression = expression.replace(variable, value)
    assert "$" not in expression, f"an unknown variable: {expression}"
    return expression


def panels(dashboard):
    return [panel for panel in json.loads(dashboard.read_text())["panels"] if panel["type"] != "row"]


def of_dashboard(dashboard):
    for panel in panels(dashboard):
        for target in panel["targets"]:
            yield panel["title"], filled_in(target["expr"], "10s")


# Most alerts must have no answer, so the series that they read are asked for. These come only with their event.
COME_WITH_THE_EVENT = {"leasehold_errors_total"}


def of_alerts():
    for group in yaml.safe_load((HERE / "alerts.yml").read_text())["groups"]:
        for rule in group["rules"]:
            labels = [label for by in re.findall(r"by \(([^)]*)\)", rule["expr"]) for label in by.split(", ")]
            for name, matchers in re.findall(r"(leasehold_\w+)(\{[^}]*\})?", rule["expr"]):
                with_labels = ", ".join(f'{label}!=""' for label in labels)
                if name in COME_WITH_THE_EVENT:
                    matchers = ""
                yield rule["alert"], f"{name}{{{', '.join(filter(None, [matchers.strip('{}'), with_labels]))}}}"


def check(url, dashboard):
    silent = []
    queries = [*of_dashboard(dashboard), *of_alerts()]
    for title, query in queries:
        answer = ask(url, "query", query=query)
        values = [float(series["value"][1]) for series in answer]
        # A quantile of nothing is no number.
        if not any(math.isfinite(value) for value in values):
            silent.append(f"{title}: {query}")
    for line in silent:
        print(line)
    print(f"{len(queries) - len(silent)} of {len(queries)} queries have an answer")
    return not silent


# ---- the picture --------------------------------------------------------------

WIDTH, COLUMN, UNIT = 1200, 50, 26
COLOURS = ["#7eb26d", "#eab839", "#6ed0e0", "#ef843c", "#e24d42", "#1f78c1", "#ba43a9", "#705da0", "#508642", "#cca300"]


def text_of(value, unit):
    if not math.isfinite(value):
        return "-"
    if unit == "s":
        for factor, name in [(1e-6, "µs"), (1e-3, "ms"), (1, "s"), (60, "min")]:
            if value < 1000 * factor or name == "min":
                return f"{value / factor:.3g} {name}"
    if unit == "percentunit":
        return f"{value * 100:.3g} %"
    return f"{value:.3g}" + {"ops": "/s", "reqps": "/s"}.get(unit, "")


def legend_of(target, series):
    name = re.sub(r"\{\{(\w+)\}\}", lambda found: series["metric"].get(found[1], ""), target["legendFormat"])
    return name.strip() or "value"


def answers(url, panel, begin, end):
    for target in panel["targets"]:
        step = (end - begin) / 60
        query = filled_in(target["expr"], "10s")
        for series in ask(url, "query_range", query=query, start=begin, end=end, step=step):
            points = [(float(at), float(value)) for at, value in series["values"]]
            points = [(at, value) for at, value in points if math.isfinite(value)]
            if points:
                yield legend_of(target, series), points


def lines_of(panel, series, frame, begin, end):
    left, top, width, height = frame
    unit = panel["fieldConfig"]["defaults"]["unit"]
    is_stacked = "stacking" in panel["fieldConfig"]["defaults"].get("custom", {})
    below, stacked = {}, []
    for name, points in series:
        if is_stacked:
            points = [(at, value + below.get(at, 0)) for at, value in points]
            below.update(points)
        stacked.append((name, points))
    largest = max((value for _, points in stacked for _, value in points), default=0) or 1
    for share in (0, 0.5, 1):
        y = top + height * (1 - share)
        yield f'<path d="M{left} {y:.0f}h{width}" stroke="#333"/>'
        yield f'<text x="{left - 4}" y="{y + 3:.0f}" text-anchor="end">{html.escape(text_of(largest * share, unit))}</text>'
    for number, (name, points) in enumerate(stacked):
        place = lambda at, value: f"{left + width * (at - begin) / (end - begin):.1f} {top + height * (1 - value / largest):.1f}"
        colour = COLOURS[number % len(COLOURS)]
        yield f'<path d="M{"L".join(place(*point) for point in points)}" fill="none" stroke="{colour}"/>'
    yield from labels_of([(name, max(value for _, value in points)) for name, points in series], frame)


def labels_of(peaks, frame):
    """The names of the lines, in two rows: of the tallest lines if not all have room."""
    left, top, width, height = frame
    rows, x = [[]], left - 30
    for number in sorted(range(len(peaks)), key=lambda number: -peaks[number][1]):
        label = peaks[number][0][:24]
        room = 22 + 5.2 * len(label)
        if x + room > left + width + 12:
            if len(rows) == 2:
                break
            rows, x = [*rows, []], left - 30
        rows[-1].append((x, COLOURS[number % len(COLOURS)], html.escape(label)))
        x += room
    for number, row in enumerate(rows):
        y = top + height + 12 + 10 * number
        for x, colour, label in row:
            yield f'<rect x="{x:.0f}" y="{y - 4}" width="8" height="3" fill="{colour}"/>'
            yield f'<text x="{x + 11:.0f}" y="{y}">{label}</text>'


def heat_of(series, frame, begin, end):
    """How many in each bucket: the buckets of Prometheus include those before them."""
    left, top, width, height = frame
    ends = sorted(((float(name.replace("+Inf", "inf")), dict(points)) for name, points in series), key=lambda bucket: bucket[0])
    alone = [(ends[n][0], {at: max(0, value - (ends[n - 1][1].get(at, 0) if n else 0)) for at, value in ends[n][1].items()}) for n in range(len(ends))]
    used = [bucket for bucket in alone if max(bucket[1].values(), default=0) > 0 and math.isfinite(bucket[0])]
    if not used:
        return
    used = [bucket for bucket in alone if used[0][0] <= bucket[0] <= used[-1][0]]
    most = max(value for _, points in used for value in points.values())
    tall, wide = height / len(used), width / 60
    for number, (bound, points) in enumerate(used):
        y = top + height - (number + 1) * tall
        for at, value in points.items():
            if value > 0:
                x = left + width * (at - begin) / (end - begin)
                strength = 0.15 + 0.85 * value / most
                yield f'<rect x="{x:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{tall:.1f}" fill="#ef843c" opacity="{strength:.2f}"/>'
    for number in (0, len(used) - 1):
        y = top + height - (number + 0.5) * tall
        yield f'<text x="{left - 4}" y="{y + 3:.0f}" text-anchor="end">{text_of(used[number][0], "s")}</text>'


def stat_of(panel, series, frame):
    left, top, width, height = frame
    defaults = panel["fieldConfig"]["defaults"]
    texts = {value: shown["text"] for mapping in defaults["mappings"] for value, shown in mapping["options"].items()}
    wide = (width + 40) / max(1, len(series))
    for number, (name, points) in enumerate(series):
        value = points[-1][1]
        colour = [step["color"] for step in defaults["thresholds"]["steps"] if step["value"] is None or value >= step["value"]][-1]
        colour = {"red": "#c4162a", "green": "#37872d", "orange": "#fa6400"}[colour]
        x = left - 40 + number * wide
        yield f'<rect x="{x:.0f}" y="{top}" width="{wide - 4:.0f}" height="{height + 14}" fill="{colour}"/>'
        shown = texts.get(f"{value:g}", text_of(value, defaults["unit"]))
        yield f'<text x="{x + wide / 2:.0f}" y="{top + height / 2 + 8:.0f}" text-anchor="middle" font-size="18">{html.escape(shown)}</text>'
        yield f'<text x="{x + wide / 2:.0f}" y="{top + height + 8:.0f}" text-anchor="middle">{html.escape(name[-30:])}</text>'


def draw(url, begin, end, file):
    everything = json.loads((HERE / "dashboard.json").read_text())["panels"]
    bottom = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in everything)
    picture = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {bottom * UNIT + 10}" font-family="sans-serif" font-size="10" fill="#ccc">',
        '<rect width="100%" height="100%" fill="#111217"/>',
    ]
    for panel in everything:
        place = panel["gridPos"]
        x, y, width, height = place["x"] * COLUMN, place["y"] * UNIT, place["w"] * COLUMN, place["h"] * UNIT
        title = html.escape(panel["title"])
        if panel["type"] == "row":
            picture.append(f'<text x="8" y="{y + 18}" font-size="13" font-weight="bold">{title}</text>')
            continue
        picture.append(f'<rect x="{x + 3}" y="{y + 3}" width="{width - 6}" height="{height - 6}" fill="#181b1f" stroke="#2a2d33"/>')
        picture.append(f'<text x="{x + 12}" y="{y + 19}" font-size="12">{title}</text>')
        frame = (x + 56, y + 30, width - 72, height - 58)
        series = list(answers(url, panel, begin, end))
        drawn = {"heatmap": lambda: heat_of(series, frame, begin, end), "stat": lambda: stat_of(panel, series, frame)}
        picture += drawn.get(panel["type"], lambda: lines_of(panel, series, frame, begin, end))()
    pathlib.Path(file).write_text("\n".join([*picture, "</svg>", ""]))


match sys.argv[1:]:
    case ["check", url]:
        sys.exit(not check(url, HERE / "dashboard.json"))
    case ["check", url, "--dashboard", file]:
        sys.exit(not check(url, pathlib.Path(file)))
    case ["draw", url, begin, end, file]:
        draw(url, float(begin), float(end), file)
    case _:
        sys.exit(__doc__)
