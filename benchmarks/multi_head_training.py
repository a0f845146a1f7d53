"""What does a training step of multi-head attention cost beside that of Keras's own layer, on each backend?"""

from typing import Any

import _harness
import numpy as np
from _process import Contestant
from _race import Case, race
from _stats import bar

SIZES = [{"B": 8, "T": 128, "D": 256, "H": 4}, {"B": 2, "T": 512, "D": 256, "H": 4}]
QUICK_SIZES = [{"B": 2, "T": 8, "D": 8, "H": 2}]
FORMS = {  # the backend, and the `jit_compile` of the model
    "TensorFlow graph": ("tensorflow", False),
    "TensorFlow XLA": ("tensorflow", True),
    "JAX": ("jax", True),
    "PyTorch eager": ("torch", False),
}
MASKS = ["no mask", "lengths", "causal"]
QUICK_FORMS, QUICK_MASKS = ["TensorFlow XLA", "PyTorch eager"], ["lengths"]
OURS, THEIRS = "MultiHeadAttention(DotProductAttention())", "keras.layers.MultiHeadAttention"
TIME = 1.1  # over that of Keras's layer


def measure(options: _harness.Options) -> dict[str, Any]:
    cases = []
    for form in QUICK_FORMS if options.quick else FORMS:
        backend, jit = FORMS[form]
        for size in QUICK_SIZES if options.quick else SIZES:
            masks = QUICK_MASKS if options.quick else MASKS
            raced = [_case(form, {"backend": backend, "jit": jit, "size": size, "mask": mask}) for mask in masks]
            cases += race(raced, options.work, **options.pace(rounds=40))  # one after another: each is six processes
    return {
        "title": "Multi-head attention, training step",
        "cases": cases,
        "bars": [] if options.quick else _bars(cases),
    }


def _case(form: str, options: dict[str, Any]) -> Case:
    size = options["size"]
    rng = np.random.default_rng(0)
    features = {
        name: rng.standard_normal((size["B"], size["T"], size["D"]), "float32") for name in ("inputs", "target")
    }
    lengths = np.maximum(1, np.linspace(0, size["T"], size["B"] + 2)[1:-1]).astype("int32")
    contestants = [Contestant(label, "multi-head training", {**options, "layer": label}) for label in (THEIRS, OURS)]
    facts = {
        "size": f"{form}, {' '.join(f'{axis}{length}' for axis, length in size.items())}",
        "shape": {"layer": "multi-head", **size},
        "fill": options["mask"],
    }
    return Case({**features, "lengths": lengths}, contestants, facts, THEIRS)


def _bars(cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """An aim for each form and size: the largest over the masks."""
    found: dict[str, list[float]] = {}
    for case in cases:
        ours = next((row for row in case["rows"] if row["contestant"] == OURS and row.get("faster")), None)
        found.setdefault(case["size"], []).extend([1 / ours["faster"]["median"]] if ours else [])
    return [
        bar(
            f"{size}: time over that of Keras's layer, whatever the mask",
            max(ratios, default=None),
            TIME,
            at_least=False,
        )
        for size, ratios in found.items()
    ]


if __name__ == "__main__":
    _harness.run("multi_head_training", __doc__, measure)
