"""Sizes from which the large form of `lowering="adaptive"` is faster than the small form.

Both forms of single calls are timed as files, for all sizes and masks. The best rules are printed as the table of
export/_thresholds.py; see `_rules.py`.
"""

import itertools
from collections.abc import Iterable
from dataclasses import asdict, replace
from typing import Any

import _calls
from _calls import CAUSAL, KEYS, LENGTHS, PAIRS, QUERY_LENGTHS, WINDOW, SingleCall
from _contestant import Contestant
from _files import SESSION
from _harness import Options
from _plans import ALL_VALID, HALF_FILLED
from _race import Case
from _rules import FORMS, find_rules, format_python_table

from keras_attn_export._lowerings.forms.adaptive import get_threshold_key

EQUAL_LENGTHS = (16, 64, 128, 256, 512, 1024, 2048, 4096)  # of queries and of keys
UNEQUAL_LENGTHS = ((1, 64), (1, 1024), (1, 8192), (8, 4096), (64, 4096), (1024, 16))  # queries and keys
WINDOW_LENGTHS = (160, 192, 224)  # more lengths near the threshold of a window of `BAND_KEYS`
BATCHES = ((1, 1), (8, 1), (4, 8), (64, 1))  # examples and heads
MAX_FEATURES = {"dot_product": 2**24 * 64, "additive": 2**25}  # B * H * Tq * Tk * D of a timed call
ROUNDS, TURN_SECONDS = 5, 0.02


def list_calls() -> list[SingleCall]:
    """Return the calls to time."""
    unmasked = [
        SingleCall("dot_product", "", B, H, *lengths) for (B, H), lengths in itertools.product(BATCHES, _list_sizes())
    ]
    padded = _add_mask(unmasked, LENGTHS, ALL_VALID, HALF_FILLED)
    calls = [
        *unmasked,
        *padded,
        *(single for single in _add_mask(unmasked, KEYS) if (single.B, single.H) == (4, 8)),
        *(single for mask in (CAUSAL, WINDOW) for single in _add_mask(unmasked, mask) if single.Tq == single.Tk),
        *(SingleCall("dot_product", WINDOW, B, H, T, T) for (B, H), T in itertools.product(BATCHES, WINDOW_LENGTHS)),
        *_add_mask(unmasked, QUERY_LENGTHS),
        *_add_mask(unmasked, PAIRS),
        *(replace(single, weights=True) for single in padded if single.B < 64),
        *(
            SingleCall("additive", LENGTHS, B, 1, *lengths, D=units, fill=fill)
            for B, units, lengths, fill in itertools.product(
                (1, 8, 64), (64, 256), (*_list_sizes(), (10, 30)), (ALL_VALID, HALF_FILLED)
            )
        ),
    ]
    return [call for call in calls if call.B * call.H * call.Tq * call.Tk <= MAX_FEATURES[call.name] // call.D]


def _list_sizes() -> list[tuple[int, int]]:
    return [*((length, length) for length in EQUAL_LENGTHS), *UNEQUAL_LENGTHS]


def _add_mask(calls: Iterable[SingleCall], mask: str, *fills: str) -> list[SingleCall]:
    return [replace(single, mask=mask, fill=fill) for single in calls for fill in fills or (HALF_FILLED,)]


def run_cases(options: Options) -> list[dict[str, Any]]:
    """Time both forms of all calls, and print the best rules."""
    results = [_time_forms(single, options) for single in (list_calls()[::60] if options.quick else list_calls())]
    if not options.quick:
        print(format_python_table(find_rules([result["point"] for result in results])))
    return results


def _time_forms(single: SingleCall, options: Options) -> dict[str, Any]:
    files = {form: str(_calls.write_file(single, form, options.folder)) for form in FORMS}
    contestants = [Contestant(form, SESSION, {"model": file}) for form, file in files.items()]
    result = options.race(Case(single.make_inputs(), contestants, single.mask), ROUNDS, TURN_SECONDS)
    # Other processes only make runs longer, so the 10th percentile is the most reliable figure.
    ms = {row["contestant"]: row["ms"]["p10"] for row in result["rows"]}
    point = {"kind": get_threshold_key(single.make_call()), **asdict(single), **ms}
    return {"point": point, "calibration": result["calibration"]}
