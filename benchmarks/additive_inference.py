"""How fast is additive attention in inference, and how much memory does it take?"""

from typing import Any

import _harness
from _inference import Contenders, memory_share, speed
from _race import race
from _sizes import ADDITIVE, ALL_VALID, HALF_FILLED, Size
from _stats import bar

SIZES = (
    Size(ADDITIVE, B=8, Tq=64, Tk=64, D=128, U=128),
    Size(ADDITIVE, B=8, Tq=128, Tk=128, D=256, U=256),
    Size(ADDITIVE, B=2, Tq=512, Tk=512, D=256, U=256),
)
QUICK_SIZES = (Size(ADDITIVE, B=2, Tq=16, Tk=16, D=8, U=8),)
SPEED, SPEED_HALF_FILLED, MEMORY = 2.5, 4.0, 1 / 8


def measure(options: _harness.Options) -> dict[str, Any]:
    sizes = QUICK_SIZES if options.quick else SIZES
    cases = []
    for index, size in enumerate(sizes):
        contenders = Contenders(size, options, options.work / f"size{index}")
        for fill in (HALF_FILLED,) if options.quick else (ALL_VALID, HALF_FILLED):
            cases += race([contenders.everyone(fill)], options.work, **options.pace())
    bars = [] if options.quick else _bars(cases)
    return {"title": "Additive attention, inference", "cases": cases, "bars": bars}


def _bars(cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    bars = []
    for size in SIZES[1:]:
        fast, half = speed(cases, size, ALL_VALID), speed(cases, size, HALF_FILLED)
        share = memory_share(cases, size, ALL_VALID)
        bars += [
            bar(f"{size}, all valid: speed over the plain ONNX", fast, SPEED, at_least=True),
            bar(f"{size}, half filled: speed over the plain ONNX", half, SPEED_HALF_FILLED, at_least=True),
            bar(f"{size}, all valid: share of the plain ONNX's extra memory", share, MEMORY, at_least=False),
        ]
    return bars


if __name__ == "__main__":
    _harness.run("additive_inference", __doc__, measure)
