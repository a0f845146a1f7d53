"""Find the dynamic axes at which tracing fails: Python code that asks for a size, as a loop over steps does.

Some code fails only when the graph runs: a slice up to a size that is `None` takes all there is.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import nullcontext
from dataclasses import replace

from .._alike import alike
from .._errors import UntraceableError
from .._model.golden_cases import Cases
from .._model.signature import InputSpec, Signature
from .._standalone.verify import Arrays
from .saved_model import traced_function, traced_outputs


def check_traceable(signature: Signature, golden: Cases) -> None:
    """Raise what keeps TensorFlow from tracing a model: found with one golden case, before more are run.

    Raises:
        UntraceableError: It can with some axes static.
        UnsupportedModelError: It cannot at all.
    """
    if reasons := untraceable_axes(signature, golden):
        raise UntraceableError(reasons)


def untraceable_axes(signature: Signature, golden: Cases) -> dict[str, str]:
    """Return the axes that TensorFlow cannot trace as unknown, by name, with what it says.

    With these static it can. It is nothing if it can as it is, or only gives other outputs with all of them static.

    Raises:
        UnsupportedModelError: It cannot with all of them static either.
    """
    names = list(golden.sizes[0])
    static = set(names)
    if _problem(signature, golden, ()) is None:
        return {}
    if _problem(signature, golden, static) is not None:
        traced_function(replace(signature, inputs=_specs(signature, golden, static)), nullcontext)
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
    inputs = _specs(signature, golden, static)
    outputs, problem = traced_outputs(signature, inputs, golden.cases[0].inputs)
    if problem is None and not _is_roughly(outputs, golden.cases[0].outputs):
        return "the traced model gives other outputs"
    return problem


def _specs(signature: Signature, golden: Cases, static: Collection[str]) -> tuple[InputSpec, ...]:
    sizes = {name: golden.sizes[0][name] for name in static}
    shapes = {
        name: tuple(sizes.get(size) if isinstance(size, str) else size for size in shape)
        for name, shape in golden.axes.items()
    }
    return tuple(InputSpec(spec.name, spec.dtype, shapes[spec.name]) for spec in signature.inputs)


def _is_roughly(outputs: Arrays, expected: Arrays) -> bool:
    """Tell whether floats are near to what is expected, and all else of its shape: rounding may decide a choice."""
    limits = {"rtol": 1e-2, "atol": 1e-2}
    return all(
        alike(outputs[name], array, **limits) if array.dtype.kind == "f" else outputs[name].shape == array.shape
        for name, array in expected.items()
    )
