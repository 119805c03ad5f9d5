"""What the tools that fit the constants of a cluster's file to measured steps have in common. Each row, a step, is run
through `trireme simulate` with the keys of a configuration. The fit minimises the mean of the relative errors, by a
Gauss-Newton iteration on the logarithms of the constants; weights make it minimise absolute values, not squares."""

import concurrent.futures
import json
import math
import os
import subprocess
import sys
import tempfile

PUBLISHED_WEIGHT = .5 # of all rows with names together; the rows of a table, without names, together have 1


class Row:
    """A step that was measured."""

    def __init__(self, keys, seconds, name=None):
        self.keys, self.seconds, self.name = keys, seconds, name
        self.stands_for = 1 # how many rows, if it is one of a sample


class Cluster:
    """A cluster's file with gaps for parameters. Each has the value it begins with, a format and perhaps a maximum."""

    def __init__(self, name, text, parameters):
        self.name, self.gaps, self.parameters = name, text, parameters

    def start(self):
        return {name: parameter[0] for name, parameter in self.parameters.items()}

    def text(self, constants):
        return self.gaps.format(**{name: parameter[1].format(constants[name])
                                   for name, parameter in self.parameters.items()})

    def moved(self, constants):
        return [math.log(constants[name] / start) for name, start in self.start().items()]

    def changed(self, constants, change):
        most = {name: parameter[2] if len(parameter) > 2 else math.inf for name, parameter in self.parameters.items()}
        return {name: min(most[name], constants[name] * math.exp(c)) for name, c in zip(self.parameters, change)}

    def write(self, constants):
        with open(os.path.join(os.path.dirname(__file__), f"../src/sim/clusters/{self.name}.yaml"), "w") as file:
            file.write(self.text(constants))


class Simulator:
    def __init__(self, cluster, binary, jobs):
        self.cluster, self.binary = cluster, binary
        self.pool = concurrent.futures.ThreadPoolExecutor(jobs)
        self.directory = tempfile.TemporaryDirectory(prefix="trireme-fit-")
        self.files = 0

    def step(self, cluster, row):
        out = subprocess.run([self.binary, "simulate", *(f"--{key}" for key in row.keys), f"cluster={cluster}",
                              "--json"], capture_output=True, text=True)
        if out.returncode:
            sys.exit(f"{' '.join(row.keys)}: {out.stderr}")
        return json.loads(out.stdout)["step_seconds"]

    def steps(self, constants, rows):
        """Futures of the seconds of each row."""
        self.files += 1
        path = os.path.join(self.directory.name, f"{self.files}.yaml")
        with open(path, "w") as file:
            file.write(self.cluster.text(constants))
        return [self.pool.submit(self.step, path, row) for row in rows]


def logs(futures, rows):
    return [math.log(future.result() / row.seconds) for future, row in zip(futures, rows)]


def solve(matrix, right):
    """Gaussian elimination with the largest pivot."""
    n = len(right)
    a = [row[:] + [value] for row, value in zip(matrix, right)]
    for i in range(n):
        pivot = max(range(i, n), key=lambda r: abs(a[r][i]))
        a[i], a[pivot] = a[pivot], a[i]
        for r in range(i + 1, n):
            factor = a[r][i] / a[i][i]
            for c in range(i, n + 1):
                a[r][c] -= factor * a[i][c]
    x = [0.0] * n
    for i in reversed(range(n)):
        x[i] = (a[i][n] - sum(a[i][c] * x[c] for c in range(i + 1, n))) / a[i][i]
    return x


def improve(errors, slopes, weights, moved, rounds=12):
    """Changes of the constants' logarithms that make the weighted sum of |errors + slopes x change| small. `moved` is
    how far the logarithms already are from where they began; to be far away costs a little."""
    n = len(slopes)
    change = [0.0] * n
    for _ in range(rounds):
        now = [e + sum(slopes[k][i] * change[k] for k in range(n)) for i, e in enumerate(errors)]
        pull = [w / max(abs(e), .02) for w, e in zip(weights, now)]
        normal = [[sum(p * a * b for p, a, b in zip(pull, slopes[j], slopes[k])) for k in range(n)] for j in range(n)]
        right = [-sum(p * slopes[j][i] * errors[i] for i, p in enumerate(pull)) for j in range(n)]
        for j in range(n):
            normal[j][j] += .002
            right[j] -= .002 * moved[j]
        change = [max(-.5, min(.5, c)) for c in solve(normal, right)]
    return change


def weights_of(rows):
    listed = sum(row.name is not None for row in rows)
    others = sum(row.stands_for for row in rows if row.name is None)
    return [PUBLISHED_WEIGHT / max(1, listed) if row.name else row.stands_for / others for row in rows]


def linearise(simulator, constants, rows):
    names = list(simulator.cluster.parameters)
    futures = [simulator.steps(constants, rows)]
    for name in names:
        futures.append(simulator.steps(dict(constants, **{name: constants[name] * 1.03}), rows))
    errors = logs(futures[0], rows)
    slopes = [[(b - a) / math.log(1.03) for a, b in zip(errors, logs(f, rows))] for f in futures[1:]]
    return errors, slopes


def fit(simulator, rows, rounds):
    """The best constants of some rounds. A change that makes things worse is tried again at a third."""
    cluster = simulator.cluster
    best = cluster.start()
    least, reach, change = math.inf, 1.0, [0.0] * len(best)
    for number in range(rounds + 1):
        constants = cluster.changed(best, [reach * c for c in change])
        errors = logs(simulator.steps(constants, rows), rows)
        file, published = mean_error(errors, rows, False), mean_error(errors, rows, True)
        print(f"round {number}: {100 * file:.2f}% on the file's rows, {100 * published:.2f}% on the published:",
              ", ".join(f"{name} {value:.4g}" for name, value in constants.items()), flush=True)
        better = file + PUBLISHED_WEIGHT * published < least
        reach = min(1.0, 2 * reach) if better else reach / 3
        if better:
            best, least = constants, file + PUBLISHED_WEIGHT * published
        if better and number < rounds:
            errors, slopes = linearise(simulator, constants, rows)
            change = improve(errors, slopes, weights_of(rows), simulator.cluster.moved(constants))
    return best


def mean_error(errors, rows, published):
    chosen = [(abs(math.exp(e) - 1), row.stands_for) for e, row in zip(errors, rows)
              if (row.name is not None) == published]
    return sum(e * times for e, times in chosen) / max(1, sum(times for _, times in chosen))


def cross_validate(simulator, rows, constants, chosen, errors, slopes, key, what):
    """Refits without each group of rows, on the slopes at the optimum, and predicts that group."""
    futures, held = [], []
    for group in sorted({key(row) for row in rows}):
        kept = [i for i, row in enumerate(chosen) if row.name or key(row) != group]
        part = [chosen[i] for i in kept]
        change = improve([errors[i] for i in kept], [[s[i] for i in kept] for s in slopes], weights_of(part),
                         simulator.cluster.moved(constants))
        left = [row for row in rows if key(row) == group]
        futures.append((group, left, simulator.steps(simulator.cluster.changed(constants, change), left)))
    for group, left, steps in futures:
        held += [abs(math.exp(e) - 1) for e in logs(steps, left)]
    print(f"each {what} left out: {100 * sum(held) / len(held):.2f}% on those {len(held)} rows")


def report(name, rows, errors, key):
    groups = {}
    for row, e in zip(rows, errors):
        groups.setdefault(key(row), []).append(math.exp(e) - 1)
    print(f"by {name}: " + ", ".join(f"{group} {100 * sum(map(abs, e)) / len(e):.1f}% ({100 * sum(e) / len(e):+.1f})"
                                     for group, e in sorted(groups.items())))
