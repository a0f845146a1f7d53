"""How do time and memory grow with the number of keys?"""

from dataclasses import replace
from typing import Any

import _harness
from _inference import PEER, Contenders, ours
from _race import race
from _sizes import ADDITIVE, ALL_VALID, DOT, Size
from _stats import line

from keras_attn_export._options import ADAPTIVE

KEYS = (128, 256, 512, 1024, 2048, 4096)
QUICK_KEYS = (16, 32, 64)
LABELS = (PEER, ours(ADAPTIVE))


def measure(options: _harness.Options) -> dict[str, Any]:
    cases, fits = [], []
    for layer in (ADDITIVE, DOT):
        sizes = _sizes(layer, options.quick)
        contenders = Contenders(sizes[-1], options, options.work / layer)
        files = [contenders.peer(), contenders.ours(ADAPTIVE)]
        prepared = [contenders.case(ALL_VALID, [replace(file) for file in files], size, layer=layer) for size in sizes]
        found = race(prepared, options.work, **options.pace())
        cases += found
        fits += [fit for label in LABELS if (fit := _fit(layer, label, found))]
    return {"title": "Cost against the number of keys", "cases": cases, "fits": fits, "bars": []}


def _sizes(layer: str, quick: bool) -> list[Size]:
    rest = {"D": 8, "U": 8} if quick else {"D": 64, "U": 64}
    queries = 16 if quick else 128
    return [Size(layer, B=1, Tq=queries, Tk=keys, **rest) for keys in (QUICK_KEYS if quick else KEYS)]


def _fit(layer: str, label: str, cases: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the line through the times of a contestant, and how its cost for a key and its memory change."""
    rows = [(case["shape"]["Tk"], row) for case in cases for row in case["rows"] if row["contestant"] == label]
    if any("ms" not in row for _, row in rows):
        return None
    keys, times = [count for count, _ in rows], [row["ms"]["median"] * 1e6 for _, row in rows]
    fitted = line(keys, times)
    return {
        "layer": layer,
        "contestant": label,
        "ns_per_key": fitted["slope"],
        "r2": fitted["r2"],
        "growth": (times[-1] / keys[-1]) / (times[0] / keys[0]),
        "memory": [rows[0][1]["memory"], rows[-1][1]["memory"]],
    }


if __name__ == "__main__":
    _harness.run("cost_against_keys", __doc__, measure)
