"""Writes what bench/islands measured: tables as Markdown, charts as SVG."""
import html
import math
import statistics

import report

COLOURS = ("#2f6fb5", "#c2571a", "#2e8b57", "#8a4fb0", "#b8860b", "#d1477e", "#3a9fa6", "#7f7f7f", "#a14a3b", "#5f7d1e")
WIDTH, HEIGHT, LEFT, TOP, GAP, LEGEND = 330, 230, 62, 66, 70, 190
MAIN = "1M"


def name_of(row):
    more = row["more"].replace("outer.", "").replace(" ", ", ")
    return row["method"] + (f", {more}" if more else "") + (", one island" if row.get("islands") == "1" else "")


def best(rows):
    return min(rows, key=lambda row: float(row["loss"]) if row["loss"] != "nan" else math.inf)


def groups_of(rows):
    """Rows that differ by their learning rate alone: {(method, size, islands, more, seed): rows}."""
    groups = {}
    for row in rows:
        key = tuple(row[column] for column in ("method", "size", "islands", "more", "seed"))
        groups.setdefault(key, []).append(row)
    return groups


def gap(row, base):
    """By how much its loss is above that of the other, in percent."""
    return 100 * (float(row["loss"]) / float(base["loss"]) - 1)


def percent(value):
    return f"{value:+.2f}%"


def amount(text):
    return f"{float(text) / 1e3:,.0f}" if text else ""


def table(header, rows):
    lines = [f"| {' | '.join(header)} |", "|---|" + "--:|" * (len(header) - 1)]
    return lines + [f"| {' | '.join(row)} |" for row in rows] + [""]


def losses_of_methods(groups, base):
    rates = sorted({row["rate"] for rows in groups.values() for row in rows}, key=float)
    plain = next((rows[0]["bytes"] for key, rows in groups.items() if key[0] == "data_parallel"), "")
    out = []
    for (_, size, islands, _, seed), rows in groups.items():
        if size != MAIN or seed != "1" or islands == "2":
            continue
        row, at = best(rows), {row["rate"]: row["loss"] for row in rows}
        ratio = f"{float(plain) / float(row['bytes']):.0f}" if plain and row["bytes"] else ""
        out.append([name_of(row), amount(row["bytes"]), ratio, percent(gap(row, base)),
                    *(f"{float(at[rate]):.4f}" if rate in at else "" for rate in rates)])
    return ["What a rank sends for each step, and how many times less this is than with data parallel in f32; loss by",
            "inner learning rate, in nats per token:", "",
            *table(["method", "kB per step", "times less", "best, to `adamw`", *rates], out)]


def sizes_of(groups):
    """{islands: {parameters: (AdamW's row, its row)}} of diloco."""
    found = {}
    for (method, size, islands, more, seed), rows in groups.items():
        base = groups.get(("adamw", size, "0", "", "1"))
        if method == "diloco" and islands in ("2", "4") and (more, seed) == ("", "1") and base:
            found.setdefault(islands, {})[int(rows[0]["parameters"])] = best(base), best(rows)
    return found


def losses_of_sizes(groups):
    out = [[f"{int(parameters) / 1e6:.2f} M", islands, f"{float(base['loss']):.4f}", f"{float(row['loss']):.4f}",
            percent(gap(row, base))]
           for islands, pairs in sorted(sizes_of(groups).items()) for parameters, (base, row) in sorted(pairs.items())]
    return ["`diloco` in models of several sizes, each with its best learning rate:", "",
            *table(["parameters", "islands", "loss of `adamw`", "loss", "gap"], out)] if out else []


def seeds_of(groups):
    out = []
    for method, islands in (("adamw", "0"), ("diloco", "4")):
        values = [float(best(rows)["loss"]) for key, rows in groups.items()
                  if key[:4] == (method, MAIN, islands, "")]
        if len(values) > 1:
            spread = 100 * statistics.stdev(values) / statistics.mean(values)
            out.append(f"Over {len(values)} seeds the standard deviation of `{method}`'s loss is {spread:.2f}%.")
    return [*out, ""] if out else []


def shares_of(speeds, nodes):
    """{method: {Mbit/s: (tokens per second, share of what it is without a network)}}."""
    rows = [row for row in speeds if row["nodes"] == nodes]
    # Before and after the others.
    alone = statistics.mean(float(row["tokens_per_second"]) for row in rows if row["method"] == "alone")
    found = {}
    for row in rows:
        if row["mbit"]:
            speed = float(row["tokens_per_second"])
            found.setdefault(name_of(row), {})[int(row["mbit"])] = speed, speed / alone
    return found


def network(speeds):
    out = []
    for nodes in sorted({row["nodes"] for row in speeds}):
        for name, shares in shares_of(speeds, nodes).items():
            out.append([name, nodes, *(f"{speed:.0f} ({share:.0%})" for _, (speed, share) in
                                       sorted(shares.items(), reverse=True))])
    links = sorted({int(row["mbit"]) for row in speeds if row["mbit"]}, reverse=True)
    return ["Tokens per second of nodes of one core each by the rate of their links, and what this is of that of",
            f"processes that know nothing of each other; {speeds[0]['size']} parameters, {speeds[0]['machine']}:", "",
            *table(["method", "nodes", *(f"{link} Mbit/s" for link in links)], out)]


def chart(title, panels):
    """Panels beside each other: (title, name of x, unit of y, logarithmic, {name: [(x, y)]})."""
    names = list(dict.fromkeys(name for panel in panels for name in panel[4]))
    colour = {name: COLOURS[number % len(COLOURS)] for number, name in enumerate(names)}
    body, left = [], LEFT
    for panel in panels:
        body += draw(panel, left, colour)
        left += WIDTH + GAP
    for number, name in enumerate(names):
        y = TOP + 18 * number
        body.append(f'<line x1="{left - GAP + 20}" x2="{left - GAP + 40}" y1="{y}" y2="{y}" stroke="{colour[name]}" '
                    f'stroke-width="3"/>'
                    f'<text class="soft" x="{left - GAP + 46}" y="{y + 4}">{html.escape(name)}</text>')
    width, height = left - GAP + LEGEND + 40, max(TOP + HEIGHT + 50, TOP + 18 * len(names) + 10)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">\n'
            f'<title>{html.escape(title)}</title>\n<style>{report.STYLE}</style>\n'
            f'<rect class="paper" width="{width}" height="{height}" rx="10"/>\n'
            f'<text class="title" x="20" y="26">{html.escape(title)}</text>\n' + "\n".join(body) + "\n</svg>\n")


def ticks(low, high):
    """Some four round numbers that span the range."""
    rough = max(high - low, 1e-9) / 4
    step = 10 ** math.floor(math.log10(rough))
    step *= next(factor for factor in (1, 2, 5, 10) if factor * step >= rough * 0.999)
    return [step * number for number in range(math.floor(low / step), math.ceil(high / step) + 1)]


def draw(panel, left, colour):
    title, x_name, unit, logarithmic, series = panel
    points = [point for line in series.values() for point in line]
    scale = math.log10 if logarithmic else float
    marks_y = ticks(min(0, *(y for _, y in points)), max(y for _, y in points))
    marks_x = sorted({x for x, _ in points}) if logarithmic else ticks(0, max(x for x, _ in points))
    first, last = scale(marks_x[0]), scale(marks_x[-1])

    def at(x, y):
        return (left + WIDTH * (scale(x) - first) / ((last - first) or 1),
                TOP + HEIGHT * (marks_y[-1] - y) / (marks_y[-1] - marks_y[0]))

    body = [f'<text class="soft" x="{left}" y="{TOP - 14}">{html.escape(title)}</text>']
    for y in marks_y:
        height = at(marks_x[0], y)[1]
        body.append(f'<line x1="{left}" x2="{left + WIDTH}" y1="{height:.1f}" y2="{height:.1f}" stroke="#8a98a6" '
                    f'stroke-width="{1 if abs(y) < 1e-9 else 0.4}"/>'
                    f'<text class="soft name" x="{left - 6}" y="{height + 4:.1f}">{round(y, 6):g}{unit}</text>')
    for x in marks_x:
        body.append(f'<text class="soft" text-anchor="middle" x="{at(x, 0)[0]:.1f}" y="{TOP + HEIGHT + 18}">'
                    f'{round(x, 2):g}</text>')
    body.append(f'<text class="soft" text-anchor="middle" x="{left + WIDTH / 2}" y="{TOP + HEIGHT + 38}">'
                f'{x_name}</text>')
    for name, line in series.items():
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (at(*point) for point in sorted(line)))
        body.append(f'<polyline points="{path}" fill="none" stroke="{colour[name]}" stroke-width="2"/>')
        body += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{colour[name]}"/>'
                 for x, y in (at(*point) for point in line)]
    return body


def curve_of(row):
    return {int(step): float(loss) for step, loss in (pair.split(":") for pair in row["curve"].split())}


def curves(groups, base):
    """How far a method is above AdamW while it trains, by millions of tokens."""
    plain, series = curve_of(base), {}
    each = int(base["tokens"]) / max(plain) / 1e6
    for (method, size, islands, more, seed), rows in groups.items():
        if method != "adamw" and size == MAIN and seed == "1" and islands in ("1", "4") and not more:
            row = best(rows)
            series[name_of(row)] = [(each * step, 100 * (loss / plain[step] - 1))
                                    for step, loss in curve_of(row).items() if step in plain]
    return series


def write(path, losses, speeds):
    groups = groups_of(losses)
    base = groups.get(("adamw", MAIN, "0", "", "1"))
    lines = ["# Islands: losses and speeds", "", "`bench/islands` has measured all of this;",
             "[docs/islands.md](../../docs/islands.md) says what it means.", ""]
    charts = {}
    if base:
        base = best(base)
        lines += [*losses_of_methods(groups, base), *losses_of_sizes(groups), *seeds_of(groups)]
        above = [("1M parameters, as training goes on", "million tokens", "%", False, curves(groups, base))]
        charts["loss"] = "By how much the loss is above AdamW's", above
        sizes = {f"{islands} islands": [(n / 1e6, gap(row, plain)) for n, (plain, row) in pairs.items()]
                 for islands, pairs in sorted(sizes_of(groups).items())}
        if sizes:
            above.append(("DiLoCo, by the size of the model", "million parameters", "%", True, sizes))
    if speeds:
        lines += network(speeds)
        charts["network"] = "Speed, of what it is without a network", [
            (f"{nodes} islands", "Mbit/s", "%", True,
             {name: [(link, 100 * share) for link, (_, share) in shares.items()]
              for name, shares in shares_of(speeds, nodes).items()})
            for nodes in sorted({row["nodes"] for row in speeds})]
    with open(path + ".md", "w", encoding="utf-8") as file:
        file.write("\n".join(lines).rstrip() + "\n")
    for name, (title, panels) in charts.items():
        with open(f"{path}-{name}.svg", "w", encoding="utf-8") as file:
            file.write(chart(title, [panel for panel in panels if panel[4]]))
