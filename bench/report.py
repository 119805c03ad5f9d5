"""Writes what bench/run measured: a table as CSV and as Markdown, and a chart of tokens per second as SVG.

    report.py FILE.csv      writes FILE.svg anew"""
import csv
import html
import os
import sys

COLUMNS = ("part", "model", "batch", "seq_len", "dtype", "program", "version", "tokens_per_second", "ratio", "mfu",
           "peak_flops", "predicted_bytes", "resident_bytes", "steps", "settings")


def number(value, form, scale=1.0):
    return form.format(float(value) * scale) if value != "" else ""


def table(rows):
    lines = ["| model | tokens | dtype | program | tokens/s | Trireme is faster | MFU | memory | predicted | steps |",
             "|---|---|---|---|--:|--:|--:|--:|--:|--:|"]
    for r in rows:
        lines.append(f"| {r['model']} | {r['batch']} x {r['seq_len']} | {r['dtype']} | {r['program']} "
                     f"| {number(r['tokens_per_second'], '{:.0f}')} | {number(r['ratio'], '{:.2f} x')} "
                     f"| {number(r['mfu'], '{:.1f}%', 100)} | {number(r['resident_bytes'], '{:.2f} GB', 1e-9)} "
                     f"| {number(r['predicted_bytes'], '{:.2f} GB', 1e-9)} | {r['steps']} |")
    return "\n".join(lines)


def markdown(name, head, rows):
    settings = []
    for r in rows:
        if r["settings"]:
            settings.append(f"- {r['program']} ({r['version']}), {r['dtype']}: {r['settings']}")
    facts = [f"| {key} | {value} |" for key, value in head]
    lines = [f"# Speed of training, {name}", "", "| | |", "|---|---|", *facts, "", table(rows), "",
             "Forward, backward and AdamW; figures are medians over the steps, and programs that are compared took",
             "turns. MFU: model FLOPs, 6 x weights in matrix products x tokens + 12 x layers x width x context x",
             "tokens, over the peak of fused multiply-adds in the same dtype, measured beside the steps. Memory is",
             "the most that was resident, predicted is what Trireme said beforehand. PyTorch's bf16 is autocast.",
             "`bench/run` measured all of this, and found the settings of the other programs by measurement."]
    if settings:
        lines += ["", "The fastest settings of those tried:", "", *dict.fromkeys(settings)]
    return "\n".join(lines) + "\n"


STYLE = """
text { font: 13px "DejaVu Sans", Verdana, Helvetica, Arial, sans-serif; fill: #1c2733 }
.title { font-weight: bold; font-size: 14px }
.name { text-anchor: end }
.soft { fill: #5b6b7b; font-size: 12px }
.paper { fill: #ffffff }
.ours { fill: #2f6fb5 }
.other { fill: #a9b6c3 }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 }
.soft { fill: #a5b4c3 }
.paper { fill: #12181f }
.ours { fill: #6aa8e8 }
.other { fill: #55657a }
}
"""
WIDTH, LEFT, RIGHT, BAR, GAP = 760, 215, 130, 18, 6


def slower(ratio):
    return f"{ratio:.1f} x slower" if ratio >= 1 else f"{1 / ratio:.1f} x faster"


def chart(name, machine, rows):
    """Groups of bars, one per model, shape and dtype that was compared; where nothing was, Trireme's own speeds."""
    groups = {}
    for r in [r for r in rows if r["part"] != "switches"] or rows:
        title = f"{r['model']}, {r['batch']} x {r['seq_len']} tokens, {r['dtype']}"
        groups.setdefault(title, []).append(r)
    compared = {title: group for title, group in groups.items() if len(group) > 1}
    groups = compared or groups
    longest = max(float(r["tokens_per_second"]) for group in groups.values() for r in group)
    body, y = [], 62
    for title, group in groups.items():
        body.append(f'<text class="title" x="20" y="{y + 4}">{html.escape(title)}</text>')
        y += 16
        for r in sorted(group, key=lambda r: -float(r["tokens_per_second"])):
            speed = float(r["tokens_per_second"])
            width = max(2, (WIDTH - LEFT - RIGHT) * speed / longest)
            ours = r["program"] == "Trireme"
            times = "" if r["ratio"] == "" else f'<tspan class="soft" dx="8">{slower(float(r["ratio"]))}</tspan>'
            body.append(f'<text class="name" x="{LEFT - 8}" y="{y + 13}">{html.escape(r["program"])}</text>'
                        f'<rect class="{"ours" if ours else "other"}" x="{LEFT}" y="{y}" width="{width:.1f}" '
                        f'height="{BAR}" rx="2"/>'
                        f'<text x="{LEFT + width + 8:.1f}" y="{y + 13}">{speed:.0f}{times}</text>')
            y += BAR + GAP
        y += 24
    height = y - 8
    box = f'viewBox="0 0 {WIDTH} {height}"'
    return (f'<svg xmlns="http://www.w3.org/2000/svg" {box} role="img" aria-labelledby="t d">\n'
            f'<title id="t">Training speed in tokens per second</title>\n'
            f'<desc id="d">{html.escape("; ".join(describe(t, g) for t, g in groups.items()))}</desc>\n'
            f"<style>{STYLE}</style>\n"
            f'<rect class="paper" width="{WIDTH}" height="{height}" rx="10"/>\n'
            f'<text class="title" x="20" y="26">Training, tokens per second</text>'
            f'<text class="soft" x="{WIDTH - 20}" y="26" text-anchor="end">{html.escape(machine)} · {name}</text>\n'
            + "\n".join(body) + "\n</svg>\n")


def describe(title, group):
    return f"{title}: " + ", ".join(f"{r['program']} {float(r['tokens_per_second']):.0f}" for r in group)


def write_chart(path, name, machine, rows):
    with open(path, "w", encoding="utf-8") as file:
        file.write(chart(name, machine, rows))


def read(path, commit):
    """Rows by part that PATH.csv has of this commit."""
    parts = {}
    if os.path.exists(path + ".csv"):
        with open(path + ".csv", encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                if row["commit"] == commit:
                    parts.setdefault(row["part"], []).append({column: row[column] for column in COLUMNS})
    return parts


def write(path, name, head, rows):
    """PATH.md, PATH.csv, PATH.svg."""
    facts = dict(head)
    machine = f"{facts['processor'].split(',')[0]}, {facts['cores']} core{'s' if facts['cores'] != '1' else ''}"
    with open(path + ".md", "w", encoding="utf-8") as file:
        file.write(markdown(name, head, rows))
    with open(path + ".csv", "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, ("date", "commit", "machine") + COLUMNS, lineterminator="\n")
        writer.writeheader()
        for r in rows:
            common = {"date": name, "commit": facts["commit"], "machine": machine}
            writer.writerow({**common, **{column: r[column] for column in COLUMNS}})
    if rows:
        write_chart(path + ".svg", name, machine, rows)


def main():
    path = sys.argv[1]
    with open(path, encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    write_chart(path.removesuffix(".csv") + ".svg", rows[0]["date"], rows[0]["machine"], rows)


if __name__ == "__main__":
    main()
