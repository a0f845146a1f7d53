"""Find dynamic axes that TensorFlow cannot trace with unknown size."""

# Search: trace with all axes dynamic. If this fails, trace with all axes static, to exclude other causes. Then try the
# axes in their order: an axis becomes dynamic for good if the model can be traced with the remaining ones static. Each
# trace also runs the first golden case, because some code fails silently: a slice up to a size `None` takes all
# elements. The comparison is coarse, since rounding may flip a choice; the parity check follows.

from collections.abc import Collection
from contextlib import nullcontext
from dataclasses import replace

from .._array_comparison import arrays_match
from .._errors import UntraceableError
from .._format.names import Arrays
from .._golden_cases.golden_cases import GoldenCases, Run
from .._signature.signature import InputSpec, Signature
from .saved_model import build_traced_run, extract_trace_error, trace_function


def trace_or_raise(signature: Signature, golden_cases: GoldenCases) -> Run | None:
    """Trace a model and run one golden case, before more golden cases are computed.

    Returns:
        A function that runs the graph, or None if the graph returns other outputs than Keras with static axes too.

    Raises:
        UntraceableError: If the model can be traced with some axes static.
        UnsupportedModelError: If the model cannot be traced with all axes static either.
    """
    run, problem = _try_trace(signature, golden_cases, ())
    if problem is None:
        return run
    if reasons := find_untraceable_axes(signature, golden_cases):
        raise UntraceableError(reasons)
    return None


def find_untraceable_axes(signature: Signature, golden_cases: GoldenCases) -> dict[str, str]:
    """Return the axes that TensorFlow cannot trace with unknown size, with the reason, by name.

    The model can be traced if these axes are static. The result is empty if all axes can be dynamic, or if the traced
    model returns other outputs even if all axes are static.

    Raises:
        UnsupportedModelError: If the model cannot be traced with all axes static either.
    """
    names = list(golden_cases.sizes[0])
    static = set(names)
    if _try_trace(signature, golden_cases, ())[1] is None:
        return {}
    if _try_trace(signature, golden_cases, static)[1] is not None:
        trace_function(replace(signature, inputs=_build_specs(signature, golden_cases, static)), nullcontext)
        return {}
    reasons = {}
    for name in names:
        _, reason = _try_trace(signature, golden_cases, static - {name})
        if reason is None:
            static.remove(name)
        else:
            reasons[name] = f"TensorFlow cannot trace it as unknown: {reason}"
    return reasons


def _try_trace(
    signature: Signature, golden_cases: GoldenCases, static: Collection[str]
) -> tuple[Run | None, str | None]:
    """Trace with `static` axes at their sizes in the first case, run the case, and return the reason if this fails."""
    try:
        run = build_traced_run(replace(signature, inputs=_build_specs(signature, golden_cases, static)))
        outputs = run(golden_cases.cases[0].inputs)
    except Exception as error:  # noqa: BLE001 - any exception is a reason
        return None, extract_trace_error(error)
    if not _roughly_equal(outputs, golden_cases.cases[0].outputs):
        return None, "the traced model returns different outputs"
    return run, None


def _build_specs(signature: Signature, golden_cases: GoldenCases, static: Collection[str]) -> tuple[InputSpec, ...]:
    sizes = {name: golden_cases.sizes[0][name] for name in static}
    shapes = {
        name: tuple(sizes.get(size) if isinstance(size, str) else size for size in shape)
        for name, shape in golden_cases.axes.items()
    }
    return tuple(InputSpec(spec.name, spec.dtype, shapes[spec.name]) for spec in signature.inputs)


def _roughly_equal(outputs: Arrays, expected: Arrays) -> bool:
    """Return True if floats agree within 1 %, and other outputs in their shapes."""
    limits = {"rtol": 1e-2, "atol": 1e-2}
    return all(
        arrays_match(outputs[name], array, **limits) if array.dtype.kind == "f" else outputs[name].shape == array.shape
        for name, array in expected.items()
    )
