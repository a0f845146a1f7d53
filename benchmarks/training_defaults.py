"""Does a training step of additive attention ever cost more with the default than in the plain form?"""

from typing import Any

import _harness
import _models
import numpy as np
from _process import Contestant
from _race import Case, race
from _sizes import ADDITIVE, HALF_FILLED, Size, random_inputs
from _stats import bar

FORMS = {  # the backend, and the `jit_compile` of the model
    "TensorFlow graph": ("tensorflow", False),
    "PyTorch eager": ("torch", False),
    "JAX jit": ("jax", True),
}
QUICK_FORMS = ["TensorFlow graph"]
DEFAULT, PLAIN = 'query_block_size="auto", the default', "query_block_size=None"
TIME = 1.05  # over that of the plain form
SPEED = 1.6  # of the plain form's, where a causal mask hides half of the pairs


def _size(B: int, Tq: int, Tk: int, U: int, **masks: bool) -> Size:
    return Size(ADDITIVE, B=B, Tq=Tq, Tk=Tk, D=U, U=U, **masks)


SIZES = [
    _size(32, 8, 8, 16),
    _size(64, 16, 16, 32),
    _size(32, 32, 32, 64),
    _size(64, 1, 64, 128),
    _size(64, 32, 48, 64),
    _size(16, 64, 64, 128),
    _size(128, 20, 20, 256),
    _size(8, 128, 128, 128),
    _size(4, 256, 256, 128),
    _size(1, 1024, 1024, 64),
    _size(2, 512, 512, 256),
    _size(2, 512, 512, 256, causal=True),
]
QUICK_SIZES = [_size(2, 8, 8, 8), _size(2, 16, 16, 8, causal=True)]


def measure(options: _harness.Options) -> dict[str, Any]:
    cases = []
    for form in QUICK_FORMS if options.quick else FORMS:
        for size in QUICK_SIZES if options.quick else SIZES:
            # one after another, so that no more than two processes are there at a time
            cases += race([_case(form, size, options)], options.work, **options.pace())
    return {
        "title": "Additive attention, training step with the default",
        "cases": cases,
        "bars": [] if options.quick else _bars(cases),
    }


def _case(form: str, size: Size, options: _harness.Options) -> Case:
    backend, jit = FORMS[form]
    inputs = random_inputs(size, HALF_FILLED)
    target = np.random.default_rng(2).standard_normal((size.B, size.Tq, size.D), dtype="float32")
    weights = str(options.work / f"weights {size}.npz")
    np.savez(weights, *_models.attention_model(size).get_weights())
    shared = {"backend": backend, "jit": jit, "size": size.to_json(), "weights": weights}
    contestants = [
        Contestant(label, "keras training", {**shared, "query_block_size": block_size})
        for label, block_size in ((PLAIN, None), (DEFAULT, "auto"))
    ]
    facts = {"form": form, "size": str(size), "shape": size.to_json(), "fill": HALF_FILLED}
    return Case({**inputs, "target": target}, contestants, facts, PLAIN)


def _bars(cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """An aim for each form, the largest time over the sizes; and one for the size with a causal mask, as a graph."""
    speeds: dict[str, dict[str, float]] = {}
    for case in cases:
        *_, default = case["rows"]
        speeds.setdefault(case["form"], {})
        if default.get("faster"):
            speeds[case["form"]][case["size"]] = default["faster"]["median"]
    graph, causal = next(iter(FORMS)), next(str(size) for size in SIZES if size.causal)
    return [
        *(
            bar(
                f"{form}: time over the plain form's, whatever the size",
                max((1 / speed for speed in found.values()), default=None),
                TIME,
                at_least=False,
            )
            for form, found in speeds.items()
        ),
        bar(f"{graph}, {causal}: speed over the plain form's", speeds[graph].get(causal), SPEED, at_least=True),
    ]


if __name__ == "__main__":
    _harness.run("training_defaults", __doc__, measure)
