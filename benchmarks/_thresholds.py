"""From which sizes on is the form for large sizes of `lowering="adaptive"` the faster one?

A part of `against_keras.py`. Both forms of single calls are timed in turns, as files, over sizes and masks, and the
table of export/_thresholds.py that fits best is printed.
"""

import itertools
import json
from collections.abc import Iterable
from dataclasses import asdict, replace
from math import log2
from typing import Any

import _calls
import numpy as np
from _calls import BAND, CAUSAL, KEYS, LARGE, LENGTHS, PAIRS, QUERY_LENGTHS, SMALL, WINDOW, Single
from _contestant import Contestant
from _files import SESSION
from _harness import Options, environment_of
from _plans import ALL_VALID, HALF_FILLED
from _race import Case
from _stats import rows_of

from keras_attn_export._lowerings import sliding_window
from keras_attn_export._lowerings.adaptive import kind_of
from keras_attn_export._thresholds import NEVER, WINDOW_KEYS

LENGTHS_OF_ALL = (16, 64, 128, 256, 512, 1024, 2048, 4096)  # as many queries as keys
UNEVEN = ((1, 64), (1, 1024), (1, 8192), (8, 4096), (64, 4096), (1024, 16))  # queries and keys
AROUND_WINDOW = (160, 192, 224)  # where a window of `BAND` begins to pay
BATCHES = ((1, 1), (8, 1), (4, 8), (64, 1))  # examples and heads
MOST = {"dot_product": 2**24 * 64, "additive": 2**25}  # features: of pairs, heads and what a head has
ROUNDS, TURN = 5, 0.02
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
    return [each for each in every if each.B * each.H * each.Tq * each.Tk <= MOST[each.name] // each.D]


def _places() -> list[tuple[int, int]]:
    return [*((length, length) for length in LENGTHS_OF_ALL), *UNEVEN]


def _masked(unmasked: Iterable[Single], mask: str, *fills: str) -> list[Single]:
    return [replace(each, mask=mask, fill=fill) for each in unmasked for fill in fills or (HALF_FILLED,)]


def thresholds(options: Options) -> dict[str, Any]:
    """Time both forms everywhere, and find the rules that lose the least."""
    grid = [_timed(single, options) for single in (singles()[::60] if options.quick else singles())]
    machines = _machines(options, grid)
    everywhere = [point for machine in machines for point in machine["grid"]]
    kinds = dict.fromkeys(point["kind"] for point in everywhere)
    rules = {kind: best_rule(_decided(kind, everywhere)) for kind in kinds}
    if not options.quick:
        print(_to_paste(rules))
    return {"cases": [], "machines": machines, "rules": rules}


def _decided(kind: str, points: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the points that the rule of a kind decides: that of examples has no say where all keys take part."""
    own = [point for point in points if point["kind"] == kind]
    partly = [point for point in own if point["fill"] != ALL_VALID] if kind == "examples" else []
    return partly or own


def _timed(single: Single, options: Options) -> dict[str, Any]:
    files = {form: str(_calls.write(single, form, options.work)) for form in FORMS}
    contestants = [Contestant(form, SESSION, {"model": file}) for form, file in files.items()]
    rows = rows_of(options.race(Case(single.inputs(), contestants, {}), ROUNDS, TURN))
    # What disturbs a run makes it longer: where others use the machine, the fastest tenth tells the most.
    return {"kind": kind_of(single.call()), **asdict(single), **{form: rows[form]["ms"]["p10"] for form in FORMS}}


def _machines(options: Options, grid: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what was measured on each kind of machine so far; of two measurements on one kind, the new one."""
    environment = environment_of(options.threads)
    kind = [environment["processor"], environment["cores"], options.threads, environment["versions"]["onnxruntime"]]
    file = options.results / "thresholds.json"
    known = json.loads(file.read_text(encoding="utf-8"))["machines"] if file.exists() and not options.quick else []
    return [*(machine for machine in known if machine["kind"] != kind), {"kind": kind, "grid": grid}]


def best_rule(points: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the rule whose worst loss is the least, to a tenth; of those the one with the least mean loss.

    A rule takes the form for large sizes where `(Tq - queries) * Tk >= pairs`; of additive scores where it is so times
    the units.
    """
    bounds = [(queries, round(2**exponent)) for queries, exponent in itertools.product(QUERIES, EXPONENTS)]
    rules = [_judged(points, queries, pairs) for queries, pairs in [(0, NEVER), *bounds]]
    return min(rules, key=lambda rule: (round(rule["worst"], 1), round(rule["mean"], 3)))


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
