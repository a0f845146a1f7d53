"""Find dynamic axes that TensorFlow cannot trace with unknown size.

Some code fails only when the graph runs: a slice up to a size that is `None` takes all there is.
"""

from collections.abc import Collection
from contextlib import nullcontext
from dataclasses import replace

from .._array_comparison import alike
from .._errors import UntraceableError
from .._format.names import Arrays
from .._golden_cases.golden_cases import Cases, Run
from .._signature.signature import InputSpec, Signature
from .saved_model import said_against, traced_function, traced_run


def check_traceable(signature: Signature, golden: Cases) -> Run | None:
    """Raise what keeps TensorFlow from tracing a model: found with one golden case, before more are run.

    Returns:
        What runs the graph, unless that gives other outputs than Keras.

    Raises:
        UntraceableError: It can with some axes static.
        UnsupportedModelError: It cannot at all.
    """
    run, problem = _traced(signature, golden, ())
    if problem is None:
        return run
    if reasons := untraceable_axes(signature, golden):
        raise UntraceableError(reasons)
    return None


def untraceable_axes(signature: Signature, golden: Cases) -> dict[str, str]:
    """Return the axes that TensorFlow cannot trace as unknown, by name, with what it says.

    With these static it can. It is nothing if it can as it is, or only gives other outputs with all of them static.

    Raises:
        UnsupportedModelError: It cannot with all of them static either.
    """
    names = list(golden.sizes[0])
    static = set(names)
    if _traced(signature, golden, ())[1] is None:
        return {}
    if _traced(signature, golden, static)[1] is not None:
        traced_function(replace(signature, inputs=_specs(signature, golden, static)), nullcontext)
        return {}
    found = {}
    for name in names:
        _, said = _traced(signature, golden, static - {name})
        if said is None:
            static.remove(name)
        else:
            found[name] = f"TensorFlow cannot trace it as unknown: {said}"
    return found


def _traced(signature: Signature, golden: Cases, static: Collection[str]) -> tuple[Run | None, str | None]:
    """Trace with some axes at their size in the first case, the others unknown, and return what is said against it.

    What was traced must give the outputs of that case, roughly.
    """
    try:
        run = traced_run(replace(signature, inputs=_specs(signature, golden, static)))
        outputs = run(golden.cases[0].inputs)
    except Exception as error:  # noqa: BLE001 - the question is whether it fails, whatever it fails with
        return None, said_against(error)
    if not _is_roughly(outputs, golden.cases[0].outputs):
        return None, "the traced model gives other outputs"
    return run, None


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
