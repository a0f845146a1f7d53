"""Find the dynamic axes at which tracing fails: Python code that asks for a size, as a loop over steps does.

Some code fails only when the graph runs: a slice up to a size that is `None` takes all there is.
"""

from __future__ import annotations

from collections.abc import Collection

from .._alike import alike
from .._model.golden_cases import Cases
from .._model.signature import InputSpec, Signature
from .._standalone.verify import Arrays
from .saved_model import traced_outputs


def untraceable_axes(signature: Signature, golden: Cases) -> dict[str, str]:
    """Return the axes that TensorFlow cannot trace as unknown, by name, with what it says.

    With these static it can. It is nothing if it can as it is, or cannot with all of them static: then they are not the
    reason.
    """
    names = list(golden.sizes[0])
    static = set(names)
    if _problem(signature, golden, ()) is None or _problem(signature, golden, static) is not None:
        return {}
    found = {}
    for name in names:
        said = _problem(signature, golden, static - {name})
        if said is None:
            static.remove(name)
        else:
            found[name] = f"TensorFlow cannot trace it as unknown: {said}"
    return found


def _problem(signature: Signature, golden: Cases, static: Collection[str]) -> str | None:
    """Return what is said against tracing with some axes at their size in the first case, the others unknown.

    What was traced must give the outputs of that case, roughly.
    """
    sizes = {name: golden.sizes[0][name] for name in static}
    inputs = []
    for spec in signature.inputs:
        shape = (sizes.get(size) if isinstance(size, str) else size for size in golden.axes[spec.name])
        inputs.append(InputSpec(spec.name, spec.dtype, tuple(shape)))
    outputs, problem = traced_outputs(signature, inputs, golden.cases[0].inputs)
    if problem is None and not _is_roughly(outputs, golden.cases[0].outputs):
        return "the traced model gives other outputs"
    return problem


def _is_roughly(outputs: Arrays, expected: Arrays) -> bool:
    """Tell whether floats are near to what is expected, and all else of its shape: rounding may decide a choice."""
    limits = {"rtol": 1e-2, "atol": 1e-2}
    return all(
        alike(outputs[name], array, **limits) if array.dtype.kind == "f" else outputs[name].shape == array.shape
        for name, array in expected.items()
    )
