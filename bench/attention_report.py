"""Writes what bench/attention measured and simulated as tables in Markdown."""
import csv
import os
import re
import textwrap

import machine

HEADS, WIDTH = 8, 64  # of the layer that is measured


def read(path):
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def processor():
    found = re.search(r"^model name\s*: (.*)$", machine.read("/proc/cpuinfo"), re.M)
    return f"{found[1] if found else 'unknown'}, {machine.cores()[0]} cores"


def table(header, rows):
    lines = [f"| {' | '.join(header)} |", "|---|" + "--:|" * (len(header) - 1)]
    return lines + [f"| {' | '.join(row)} |" for row in rows] + [""]


def paragraph(text):
    return [*textwrap.wrap(" ".join(text.split()), 120), ""]


def way(row):
    return " ".join(filter(None, (row["method"], row["layout"]))) or "one rank"


def amount(text, unit):
    return f"{float(text) / unit:,.1f}" if text else ""


# ---- measured

def measured(rows):
    out = ["## Measured", "", *paragraph(f"""
        One layer of {HEADS} heads of {WIDTH}, keys and values as many, in f32; {rows[0]['machine']}, one thread for
        each rank. Rates are GFLOP/s of all ranks together: operations on the pairs of a query and a key that the
        mask allows, over the attention's time on the slowest rank, with what packs, merges and adds up. Uneven:
        that rank's time over the ranks' mean. Sent: by a rank, in a step, for attention. Memory: what is planned
        for a rank. Times are the least of several runs; others: what other programs took of the processors' time
        meanwhile.""")]
    if max(float(row["others"]) for row in rows) > machine.DISTURBED:
        out += paragraph("""
            The machine was not always quiet: the more others took, the less certain are rates, unevenness and steps.
            `bench/attention measure` makes rows anew that are deleted.""")
    out += paragraph("""
        `documents` fill a sequence with one of half of it, one of a quarter, and so on; `window` is an eighth of
        it.""")
    for kernel in dict.fromkeys(row["kernel"] for row in rows):
        for mask in dict.fromkeys(row["mask"] for row in rows if row["kernel"] == kernel):
            body = [[way(row), row["length"], *(f"{float(row[key]) / 1e9:.1f}" for key in ("forward_rate",
                                                                                           "backward_rate")),
                     f"{float(row['imbalance']):.2f}" if row["ranks"] != "1" else "",
                     f"{1e3 * float(row['step_seconds']):.1f}", amount(row["sent_bytes"], 1e6),
                     amount(row["memory_bytes"], 1e6), f"{100 * float(row['others']):.0f}%"]
                    for row in rows if (row["kernel"], row["mask"]) == (kernel, mask)]
            ranks = max(row["ranks"] for row in rows)
            out += [f"Mask `{mask}`, {kernel} kernels, {ranks} ranks:", "",
                    *table(["method, layout", "length", "forward", "backward", "uneven", "step, ms", "sent, MB",
                            "memory, MB", "others"], body)]
    return out


# ---- simulated

def of_effect(rows, effect):
    return [row for row in rows if row["effect"] == effect]


def balance(rows):
    out = paragraph("""
        *Balance.* Contiguous parts of a causal mask give the last of P ranks (2 P - 1) / P times the mean: 1.87 for
        8, which is what zigzag saves where attention is all there is. Striped Attention (Brandon et al. 2023)
        reports 1.45 times the ring's speed, for steps of 262,144 tokens on 8 A100s. On 8 H100s, where a mask in
        every step, as stripes have it, costs nothing:""")
    body = []
    for model in dict.fromkeys(row["model"] for row in rows):
        own = [row for row in rows if row["model"] == model]
        ring = next((row for row in own if (row["method"], row["layout"]) == ("ring", "contiguous")), own[0])
        body += [[f"{row['model']}, {way(row)}", row["length"],
                  f"{float(row['attention_most']) / float(row['attention_mean']):.3f}",
                  f"{float(ring['attention_most']) / float(row['attention_most']):.3f}",
                  f"{float(row['step_seconds']):.2f}",
                  f"{float(ring['step_seconds']) / float(row['step_seconds']):.3f}"] for row in own]
    return out + table(["model, method, layout", "length", "attention, most / mean", "faster than the contiguous ring",
                        "step, s", "faster"], body)


def degrees(rows):
    best = min(rows, key=lambda row: float(row["step_seconds"]))
    body = [[row["more"].rpartition("=")[2] + (" (best)" if row is best else ""), f"{float(row['step_seconds']):.3f}",
             f"{float(row['step_seconds']) / float(best['step_seconds']):.3f}"] for row in rows]
    return [*paragraph(f"""
        *Hybrid.* {rows[0]['model']}, {int(rows[0]['length']):,} tokens, 2 nodes of 8, links within a node ten times
        as fast as those between nodes. USP (Fang and Zhao 2024) advises to exchange heads within a node, and to
        send keys round between nodes; here by `context_parallel_ulysses_degree`:"""),
            *table(["degree", "step, s", "of the best"], body)]


def growth(rows):
    ranks = list(dict.fromkeys(row["ranks"] for row in rows))
    body = [[method, *(amount(row["sent_bytes"], 1e9) for rank in ranks for row in rows
                       if (row["method"], row["ranks"]) == (method, rank))]
            for method in dict.fromkeys(row["method"] for row in rows)]
    return [*paragraph(f"""
        *Growth.* GB that a rank of {rows[0]['model']} with as many key-value heads as others sends for attention in
        a step of 8,192 tokens of each rank, by the number of ranks. DeepSpeed-Ulysses (Jacobs et al. 2023):
        constant where tokens and ranks grow together, up to (P - 1) / P; a ring's grows with P - 1:"""),
            *table(["method", *(f"{rank} ranks" for rank in ranks)], body)]


def directions(rows):
    body = []
    for links, ranks in dict.fromkeys((row["links"], row["ranks"]) for row in rows):
        at = {row["method"]: float(row["forward_seconds"]) for row in rows
              if (row["links"], row["ranks"]) == (links, ranks)}
        body.append([links, ranks, *(f"{at[method]:.2f}" if method in at else "" for method in ("ring", "tokenring")),
                     f"{at['ring'] / at['tokenring']:.2f}" if len(at) == 2 else ""])
    return [*paragraph(f"""
        *Directions.* Forward of {rows[0]['model']} with as many key-value heads as others, in f32, 6,144 tokens to
        a card, over links of 0.2 GB/s, which take longer than attention. TokenRing (Wang et al. 2024) sends queries
        one way and what they have seen the other way, half as many bytes each way as a ring's keys and values, in P
        steps instead of P - 1: up to 2 (P - 1) / P times as fast where both directions of a link between two cards
        have a bandwidth of their own (on 4 cards the authors measured 7.6 ms against 3.5 to 4.6 ms for a step).
        Where all that a card sends goes over one link to a switch there is nothing to gain. Where both directions
        of a direct link share its bandwidth (half), there is with many cards alone: what is seen then goes home
        over links that queries do not use."""),
            *table(["links", "cards", "ring, s", "tokenring, s", "faster"], body)]


def crossing(rows):
    heads = list(dict.fromkeys(row["more"].rpartition("=")[2] for row in rows))
    body, sent = [], {}
    for head in heads:
        at = {row["method"]: float(row["sent_bytes"]) for row in rows if row["more"].rpartition("=")[2] == head}
        sent[int(head)] = at
        body.append([f"{head} / {heads[0]}", *(f"{at[method] / 1e9:.1f}" if method in at else ""
                                              for method in ("ring", "burst"))])
    out = [*paragraph(f"""
        *Crossing.* GB that a rank of {rows[0]['model']} in f32 sends for attention in a step of
        {int(rows[0]['length']):,} tokens on 8 cards, by its share of key-value heads. BurstAttention (Sun et al.
        2024) sends queries round in backward, and less than a ring only where keys are more than 3/4 as wide as
        queries; a little earlier with few cards, since a ring's gradients make one step more than its keys:"""),
           *table(["key-value heads", "ring", "burst"], body)]
    most, least = sent[int(heads[0])], sent[int(heads[-1])]
    if len(most) == 2 and len(least) == 2:
        gain, loss = most["ring"] - most["burst"], least["burst"] - least["ring"]
        crossed = 1 - gain / (gain + loss) * (1 - int(heads[-1]) / int(heads[0]))
        out += [f"Both are straight lines, which cross at {crossed:.3f}.", ""]
    return out


EFFECTS = {"balance": balance, "degrees": degrees, "growth": growth, "directions": directions, "crossing": crossing}


def simulated(rows):
    out = ["## Simulated", "", *paragraph("""
        `trireme simulate` on the programs of `trireme train`, on H100s as `cluster=h100` describes them.""")]
    for effect, tell in EFFECTS.items():
        if of_effect(rows, effect):
            out += tell(of_effect(rows, effect))
    return out


def write(path):
    lines = ["# Attention over ranks that share sequences", "", *paragraph("""
        `bench/attention` has made this; [docs/parallel.md](../../docs/parallel.md#context-parallel) describes the
        methods.""")]
    for name, tell in (("measured", measured), ("simulated", simulated)):
        rows = read(f"{path}-{name}.csv")
        if rows:
            lines += tell(rows)
    with open(path + ".md", "w", encoding="utf-8") as file:
        file.write("\n".join(lines).rstrip() + "\n")
