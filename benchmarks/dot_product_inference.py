"""How fast is scaled dot-product attention in inference, and how much memory does it take?"""

from typing import Any

import _harness
from _inference import Contenders, find, ours, speed
from _race import race
from _sizes import ALL_VALID, DOT, HALF_FILLED, Size
from _stats import bar

from keras_attn_export._options import ADAPTIVE

SHORT = Size(DOT, B=8, Tq=512, Tk=512, D=64)
LONG = Size(DOT, B=1, Tq=4096, Tk=4096, D=64)
QUICK_SIZES = (Size(DOT, B=2, Tq=16, Tk=16, D=8),)
SPEED = {  # over the plain ONNX
    SHORT: {ALL_VALID: 1.2, HALF_FILLED: 2.0},
    LONG: {ALL_VALID: 1.5, HALF_FILLED: 3.0},
}


def measure(options: _harness.Options) -> dict[str, Any]:
    cases = []
    for index, size in enumerate(QUICK_SIZES if options.quick else SPEED):
        contenders = Contenders(size, options, options.work / f"size{index}")
        for fill in (HALF_FILLED,) if options.quick else (ALL_VALID, HALF_FILLED):
            cases += race([contenders.everyone(fill)], options.work, **options.pace())
    bars = [] if options.quick else _bars(cases)
    return {"title": "Scaled dot-product attention, inference", "cases": cases, "bars": bars}


def _bars(cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    bars = [
        bar(f"{size}, {fill}: speed over the plain ONNX", speed(cases, size, fill), limit, at_least=True)
        for size, limits in SPEED.items()
        for fill, limit in limits.items()
    ]
    row = find(cases, LONG, ALL_VALID, ours(ADAPTIVE))
    matrix = 4 * LONG.Tq * LONG.Tk / 2**20
    text = f"{LONG}, all valid: extra memory in MiB, against one Tq x Tk matrix of float32"
    return [*bars, bar(text, row["memory"] if row else None, matrix, at_least=False)]


if __name__ == "__main__":
    _harness.run("dot_product_inference", __doc__, measure)
