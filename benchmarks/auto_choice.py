"""Is `lowering="auto"` ever slower than the plain ONNX file that Keras writes?"""

from typing import Any

import _harness
from _inference import Contenders, ours
from _race import race
from _sizes import ADDITIVE, ALL_VALID, DOT, HALF_FILLED, Size
from _stats import bar

CASES = (
    (Size(DOT, B=1, Tq=8, Tk=8, D=8), ALL_VALID),
    (Size(ADDITIVE, B=1, Tq=8, Tk=8, D=8, U=8), ALL_VALID),
    (Size(DOT, B=8, Tq=64, Tk=64, D=64), HALF_FILLED),
    (Size(ADDITIVE, B=8, Tq=64, Tk=64, D=64, U=64), HALF_FILLED),
    (Size(DOT, B=4, Tq=1, Tk=512, D=64), HALF_FILLED),
    (Size(ADDITIVE, B=4, Tq=1, Tk=512, D=64, U=64), HALF_FILLED),
    (Size(DOT, B=1, Tq=1, Tk=4096, D=64), ALL_VALID),
    (Size(DOT, B=2, Tq=1024, Tk=1024, D=64), ALL_VALID),
    (Size(ADDITIVE, B=2, Tq=256, Tk=256, D=128, U=128), ALL_VALID),
    (Size(DOT, B=4, Tq=256, Tk=256, D=64, per_query=True), HALF_FILLED),
    (Size(DOT, B=4, Tq=256, Tk=256, D=64, causal=True), ALL_VALID),
    (Size(ADDITIVE, B=4, Tq=64, Tk=96, D=64, U=64, weights=True), HALF_FILLED),
)
SLOWEST = 1.05  # time over that of the peer
ROUNDS = 31


def measure(options: _harness.Options) -> dict[str, Any]:
    chosen = (CASES[0], CASES[1]) if options.quick else CASES
    cases = []
    for index, (size, fill) in enumerate(chosen):
        contenders = Contenders(size, options, options.work / f"size{index}")
        case = contenders.case(fill, [contenders.peer(), contenders.ours("auto", fill)])
        cases += race([case], options.work, **options.pace(ROUNDS))
    worst = [_time_share(case) for case in cases]
    value = None if None in worst else max(share for share in worst if share is not None)
    bars = [bar("largest time over the plain ONNX's, of all shapes", value, SLOWEST, at_least=False)]
    return {"title": '`lowering="auto"` on many shapes', "cases": cases, "bars": [] if options.quick else bars}


def _time_share(case: dict[str, Any]) -> float | None:
    (row,) = (row for row in case["rows"] if row["contestant"] == ours("auto"))
    return 1 / row["faster"]["median"] if row.get("faster") else None


if __name__ == "__main__":
    _harness.run("auto_choice", __doc__, measure)
