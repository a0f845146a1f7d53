"""Sizes from which the form for large sizes of `lowering="adaptive"` is the faster one.

Times both forms of single calls as files, over sizes and masks, and prints the table of export/_thresholds.py that fits
best.
"""

import itertools
from collections.abc import Iterable
from dataclasses import asdict, replace
from typing import Any

import _calls
from _calls import CAUSAL, KEYS, LENGTHS, PAIRS, QUERY_LENGTHS, WINDOW, Single
from _contestant import Contestant
from _files import SESSION
from _harness import Options
from _plans import ALL_VALID, HALF_FILLED
from _race import Case
from _rules import FORMS, python_table, rules_of

from keras_attn_export._lowerings.forms.adaptive import kind_of

LENGTHS_OF_ALL = (16, 64, 128, 256, 512, 1024, 2048, 4096)  # as many queries as keys
UNEVEN = ((1, 64), (1, 1024), (1, 8192), (8, 4096), (64, 4096), (1024, 16))  # queries and keys
AROUND_WINDOW = (160, 192, 224)  # where a window of `BAND` begins to pay
BATCHES = ((1, 1), (8, 1), (4, 8), (64, 1))  # examples and heads
MOST = {"dot_product": 2**24 * 64, "additive": 2**25}  # features: of pairs, heads and what a head has
ROUNDS, TURN = 5, 0.02


def singles() -> list[Single]:
    """Return the calls to time."""
    dot = [Single("dot_product", "", B, H, *places) for (B, H), places in itertools.product(BATCHES, _places())]
    calls = [
        *dot,
        *(_masked(dot, LENGTHS, ALL_VALID, HALF_FILLED)),
        *(single for single in _masked(dot, KEYS) if (single.B, single.H) == (4, 8)),
        *(single for mask in (CAUSAL, WINDOW) for single in _masked(dot, mask) if single.Tq == single.Tk),
        *(Single("dot_product", WINDOW, B, H, T, T) for (B, H), T in itertools.product(BATCHES, AROUND_WINDOW)),
        *_masked(dot, QUERY_LENGTHS),
        *_masked(dot, PAIRS),
        *(replace(single, weights=True) for single in _masked(dot, LENGTHS, ALL_VALID, HALF_FILLED) if single.B < 64),
        *(
            Single("additive", LENGTHS, B, 1, *places, D=units, fill=fill)
            for B, units, places, fill in itertools.product(
                (1, 8, 64), (64, 256), (*_places(), (10, 30)), (ALL_VALID, HALF_FILLED)
            )
        ),
    ]
    return [call for call in calls if call.B * call.H * call.Tq * call.Tk <= MOST[call.name] // call.D]


def _places() -> list[tuple[int, int]]:
    return [*((length, length) for length in LENGTHS_OF_ALL), *UNEVEN]


def _masked(unmasked: Iterable[Single], mask: str, *fills: str) -> list[Single]:
    return [replace(single, mask=mask, fill=fill) for single in unmasked for fill in fills or (HALF_FILLED,)]


def cases(options: Options) -> list[dict[str, Any]]:
    """Time both forms at every point, and print the rules that lose the least."""
    results = [_timed(single, options) for single in (singles()[::60] if options.quick else singles())]
    if not options.quick:
        print(python_table(rules_of([result["point"] for result in results])))
    return results


def _timed(single: Single, options: Options) -> dict[str, Any]:
    files = {form: str(_calls.write(single, form, options.work)) for form in FORMS}
    contestants = [Contestant(form, SESSION, {"model": file}) for form, file in files.items()]
    result = options.race(Case(single.inputs(), contestants, single.mask), ROUNDS, TURN)
    # Other processes only make runs longer, so the fastest tenth is the most reliable figure.
    ms = {row["contestant"]: row["ms"]["p10"] for row in result["rows"]}
    return {"point": {"kind": kind_of(single.call()), **asdict(single), **ms}, "calibration": result["calibration"]}
