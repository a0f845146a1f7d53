"""From which sizes on is the form for large sizes of `lowering="adaptive"` the faster one?"""

import itertools
import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from math import log2, prod
from typing import Any

import _calls
import _harness
import _machine
import _stats
import numpy as np
from _calls import BAND, CAUSAL, KEYS, LARGE, LENGTHS, PAIRS, QUERY_LENGTHS, SMALL, WINDOW, Single
from _sizes import ALL_VALID, HALF_FILLED
from _timer import Timer

from keras_attn_export._lowerings import sliding_window
from keras_attn_export._lowerings.adaptive import kind_of
from keras_attn_export._thresholds import NEVER, WINDOW_KEYS

LENGTHS_OF_ALL = (16, 64, 128, 256, 512, 1024, 2048, 4096)  # as many queries as keys
UNEVEN = ((1, 64), (1, 1024), (1, 8192), (8, 4096), (64, 4096), (1024, 16))  # queries and keys
AROUND_WINDOW = (160, 192, 224)  # where a window of `BAND` begins to pay
BATCHES = ((1, 1), (8, 1), (4, 8), (64, 1))  # examples and heads
MOST_SCORES, MOST_FEATURES = 2**24, 2**25
ROUNDS, TURN, PAUSE = 5, 0.02, 0.002
QUERIES = (0, 1, 2, 4, 8, 16, 32, 64, 128)  # how many of them a rule may leave out
EXPONENTS = np.arange(8, 19, 0.5)  # of 2: the fewest pairs; with more, a golden case of both forms would take too long
FORMS = (SMALL, LARGE)


def singles() -> list[Single]:
    """Return the calls to time."""
    dot = [Single("dot_product", "", B, H, *places) for (B, H), places in itertools.product(BATCHES, _places())]
    every = [
        *dot,
        *(_masked(dot, LENGTHS, ALL_VALID, HALF_FILLED)),
        *(each for each in _masked(dot, KEYS) if (each.B, each.H) == (4, 8)),
        *(each for mask in (CAUSAL, WINDOW) for each in _masked(dot, mask) if each.Tq == each.Tk),
        *(Single("dot_product", WINDOW, B, H, T, T) for (B, H), T in itertools.product(BATCHES, AROUND_WINDOW)),
        *_masked(dot, QUERY_LENGTHS),
        *_masked(dot, PAIRS),
        *(replace(each, weights=True) for each in _masked(dot, LENGTHS, ALL_VALID, HALF_FILLED) if each.B < 64),
        *(
            Single("additive", LENGTHS, B, 1, *places, D=units, fill=fill)
            for B, units, places, fill in itertools.product(
                (1, 8, 64), (64, 256), (*_places(), (10, 30)), (ALL_VALID, HALF_FILLED)
            )
        ),
    ]
    return [each for each in every if _size(each) <= (MOST_FEATURES if each.name == "additive" else MOST_SCORES)]


def _places() -> list[tuple[int, int]]:
    return [*((length, length) for length in LENGTHS_OF_ALL), *UNEVEN]


def _masked(unmasked: Iterable[Single], mask: str, *fills: str) -> list[Single]:
    return [replace(each, mask=mask, fill=fill) for each in unmasked for fill in fills or (HALF_FILLED,)]


def _size(single: Single) -> int:
    return prod((single.B, single.H, single.Tq, single.Tk, single.D if single.name == "additive" else 1))


def measure(options: _harness.Options) -> dict[str, Any]:
    chosen = singles()[::60] if options.quick else singles()
    rounds, turn = (2, 0.002) if options.quick else (ROUNDS, TURN)
    with Timer(options.threads, options.provider) as small, Timer(options.threads, options.provider) as large:
        grid = [_timed(single, {SMALL: small, LARGE: large}, options, rounds, turn) for single in chosen]
    machines = _machines(options, grid)
    everywhere = [point for machine in machines for point in machine["grid"]]
    kinds = dict.fromkeys(point["kind"] for point in everywhere)
    rules = {kind: best_rule(_decided(kind, everywhere)) for kind in kinds}
    if not options.quick:
        print(_to_paste(rules))
    return {"title": "Where the form changes", "cases": [], "bars": [], "machines": machines, "rules": rules}


def _decided(kind: str, points: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the points that the rule of a kind decides: that of examples has no say where all keys take part."""
    own = [point for point in points if point["kind"] == kind]
    partly = [point for point in own if point["fill"] != ALL_VALID] if kind == "examples" else []
    return partly or own


def _timed(
    single: Single, timers: dict[str, Timer], options: _harness.Options, rounds: int, turn: float
) -> dict[str, Any]:
    """Time both forms of a call in turns, each in its process, whose only session it is."""
    inputs = options.work / "inputs.npz"
    np.savez(inputs, **single.inputs())
    for form, timer in timers.items():
        timer.open(_calls.write(single, form, options.work), inputs)
    taken: dict[str, list[list[float]]] = {form: [] for form in FORMS}
    order = list(FORMS)
    for _ in range(rounds):
        for form in order:
            taken[form].append(timers[form].time(turn))
            time.sleep(PAUSE)  # in which the threads of the one before fall asleep
        order.reverse()
    # What disturbs a run makes it longer: where others use the machine, the fastest tenth tells the most.
    ms = {form: _stats.spread([seconds * 1e3 for each in taken[form] for seconds in each])["p10"] for form in FORMS}
    return {"kind": kind_of(single.call()), **single.to_json(), **ms}


def _machines(options: _harness.Options, grid: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what was measured on each kind of machine so far; of two measurements on one kind, the new one."""
    environment = _machine.environment(options.provider, options.threads)
    kind = [environment["processor"], environment["cores"], options.threads, environment["versions"]["onnxruntime"]]
    file = options.results / "thresholds.json"
    known = json.loads(file.read_text(encoding="utf-8"))["machines"] if file.exists() and not options.quick else []
    return [*(machine for machine in known if machine["kind"] != kind), {"kind": kind, "grid": grid}]


def best_rule(points: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the rule whose worst loss is the least, to a tenth; of those the one with the least mean loss.

    A rule takes the form for large sizes where `(Tq - queries) * Tk >= pairs`; of additive scores where it is so times
    the units.
    """
    rules = [_judged(points, queries, pairs) for queries, pairs in _rules()]
    return min(rules, key=lambda rule: (round(rule["worst"], 1), round(rule["mean"], 3)))


def _rules() -> Iterator[tuple[int, int]]:
    yield 0, NEVER
    for queries, exponent in itertools.product(QUERIES, EXPONENTS):
        yield queries, round(2**exponent)


def _judged(points: list[dict[str, Any]], queries: int, pairs: int) -> dict[str, Any]:
    """Return a rule with its worst and its mean loss: the time of the form it takes over that of the faster one."""
    losses = [
        point[LARGE if _counted(point, queries) >= pairs else SMALL] / min(point[form] for form in FORMS)
        for point in points
    ]
    worst = max(range(len(points)), key=lambda number: losses[number])
    shape = {name: points[worst][name] for name in ("mask", "B", "H", "Tq", "Tk", "D", "fill")}
    mean = 2 ** float(np.mean([log2(loss) for loss in losses]))
    return {"queries": queries, "pairs": pairs, "worst": losses[worst], "mean": mean, "where": shape}


def _counted(point: dict[str, Any], queries: int) -> float:
    counts = {"additive": point["D"], "window": _OF_WINDOW}.get(point["kind"], 1)
    return float((point["Tq"] - queries) * point["Tk"] * counts)


_OF_WINDOW = (WINDOW_KEYS / (sliding_window.QUERIES + 2 * BAND)) ** 2


def _to_paste(rules: dict[str, dict[str, Any]]) -> str:
    """Return the table of export/_thresholds.py as these rules have it."""
    lines = [
        f'    "{kind}": From({rule["queries"]}, {"NEVER" if rule["pairs"] == NEVER else rule["pairs"]}),'
        for kind, rule in rules.items()
    ]
    return "\n".join(["LARGE = {", *lines, "}"])


if __name__ == "__main__":
    _harness.run("thresholds", __doc__, measure)
