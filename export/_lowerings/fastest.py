"""Find the fastest lowering of each call of an attention layer, by running all of them on what the layer gets."""

from __future__ import annotations

import statistics
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import tensorflow as tf
from onnx import numpy_helper

from .._bundle.parity import ROUGH, compared
from .._errors import BundleError, ExportError
from .._machine import usable_cpus
from .._model.golden_cases import Cases
from .._options import PORTABLE, TRACED_OPSET, Options
from .._progress import Progress
from .._standalone import verify
from .._standalone.verify import Arrays
from .._tracing.attention_calls import DOMAIN, Call
from .._tracing.onnx_file import Axes, finish, with_functions, write
from .._tracing.to_onnx import trace
from .._tracing.traced import Traced
from .bodies import candidates, function_of, lowest_opset
from .lowered import Choice, Lowered

SECONDS = 1.0  # for all candidates of one call together
FEWEST_BURSTS, MOST_BURSTS, RUNS = 5, 200, 3
MARGIN = 0.97  # plain primitives are kept unless another is faster than this


def fastest(
    lowered: Lowered, usable: Collection[str], golden: Cases, options: Options, folder: Path, step: Progress
) -> dict[Call, Choice]:
    """Return the fastest lowering of every call of a traced model that has candidates.

    Args:
        lowered: The model, with some lowering of each such call.
        usable: The lowerings to try, beside plain primitives.
        golden: The cases; times are taken on the samples, or else on the largest.
        options: Say where to measure.
        folder: An empty folder, for files that are not kept.
        step: Is told what is being done.
    """
    calls = [call for call, lowering in lowered.lowerings.items() if lowering != PORTABLE]
    if not calls:
        return {}
    step("Running the model up to its attention layers")
    opset = options.opset or TRACED_OPSET
    plain = {call: finish(*_alone(call), opset).model for call in calls}
    cases, timed = _cases_to_run(golden)
    inputs = _inputs_of_calls(lowered.traced, plain, golden.axes, cases, opset, folder, options.provider)
    names = list(cases)
    choices = {}
    for call in calls:
        step(f"Timing layer {call.layer}")
        models = {PORTABLE: plain[call]}
        for name in candidates(call):
            if name in usable:
                models[name] = _lowered(plain[call], call, name, options.opset or lowest_opset(name))
        files = {name: folder / f"{call.op}_{name}.onnx" for name in models}
        for name, model in models.items():
            write(Traced(model), files[name], check=False)  # the file of the bundle is checked in full
        choices[call] = _choice(files, list(zip(names, inputs[call], strict=True)), timed, options)
    return choices


def _cases_to_run(golden: Cases) -> tuple[dict[str, Arrays], int]:
    """Return the inputs of the cases to run, and the number of the one to measure on.

    Cases of more than twice its size are left to the parity of the whole model: plain primitives of additive attention
    take gigabytes, several times here.
    """
    sizes = {name: sum(array.nbytes for array in arrays.values()) for name, arrays, *_ in golden.cases}
    plain = [name for name, arrays, *_ in golden.cases if all(map(_is_plain, arrays.values()))]
    timed = "samples" if "samples" in sizes else max(plain or sizes, key=lambda name: sizes[name])
    cases = {name: arrays for name, arrays, *_ in golden.cases if sizes[name] <= 2 * sizes[timed]}
    return cases, list(cases).index(timed)


def _is_plain(array: np.ndarray) -> bool:
    """Tell whether an array is neither poisoned nor all zeros, which may be faster or slower than numbers are."""
    return bool(np.any(array) and (array.dtype.kind != "f" or np.isfinite(array).all()))


def _inputs_of_calls(
    traced: Traced,
    plain: Mapping[Call, onnx.ModelProto],
    axes: Axes,
    cases: Mapping[str, Arrays],
    opset: int,
    folder: Path,
    provider: str,
) -> dict[Call, list[Arrays]]:
    """Return what each call gets in every case, with plain primitives in all of them."""
    graph = onnx.ModelProto()
    graph.CopyFrom(traced.model)
    nodes = {node.op_type: node for node in graph.graph.node if node.domain == DOMAIN}
    names = {call: dict(zip(call.shapes, nodes[call.op].input, strict=True)) for call in plain}
    outputs = {value.name: _axes(value) for value in graph.graph.output}
    functions = [_as_function(call, model) for call, model in plain.items()]
    finished = finish(replace(traced, model=graph), axes, outputs, opset, functions)
    graph = finished.model
    constants = {each.name: each for each in graph.graph.initializer}
    there = {*outputs, *axes, *constants, *traced.weights}
    tensors = {name for of_call in names.values() for name in of_call.values()}
    graph.graph.output.extend(onnx.ValueInfoProto(name=name) for name in sorted(tensors - there))
    file = folder / "inputs_of_calls.onnx"
    write(finished, file, check=False)  # outputs without a type are fine for onnxruntime alone
    session = verify.open_session(file, provider)
    known = {name: numpy_helper.to_array(constants[name]) for name in tensors & set(constants)}
    known |= {name: traced.weights[name] for name in tensors & set(traced.weights)}
    given: dict[Call, list[Arrays]] = {call: [] for call in plain}
    for arrays in cases.values():
        values = {**known, **arrays, **verify.run_session(session, arrays)}
        for call in plain:
            given[call].append({role: values[name] for role, name in names[call].items()})
    return given


def _axes(value: onnx.ValueInfoProto) -> tuple[str | int, ...]:
    dims = value.type.tensor_type.shape.dim
    return tuple(dim.dim_value or f"{value.name}_{axis}" for axis, dim in enumerate(dims))


def _alone(call: Call) -> tuple[Traced, Axes, Axes]:
    """Return a trace of one call in plain primitives, and the axes of its inputs and outputs."""
    specs = {name: tf.TensorSpec(shape, call.dtypes[name], name=name) for name, shape in call.shapes.items()}

    def serve(tensors: Mapping[str, Any]) -> dict[str, Any]:
        outputs = call.compute(tensors)
        return dict(zip(call.outputs, outputs, strict=True))

    function = tf.function(serve, input_signature=[specs], autograph=False).get_concrete_function()
    traced = trace(function, [])
    graph = traced.model.graph
    named = {value.name: _axes(value) for value in (*graph.input, *graph.output)}
    return traced, {name: named[name] for name in call.shapes}, {name: named[name] for name in call.outputs}


def _as_function(call: Call, model: onnx.ModelProto) -> onnx.FunctionProto:
    """Return the model of a call as its ONNX function."""
    constants = [onnx.helper.make_node("Constant", [], [each.name], value=each) for each in model.graph.initializer]
    nodes = [*constants, *model.graph.node]
    return onnx.helper.make_function(DOMAIN, call.op, list(call.shapes), list(call.outputs), nodes, model.opset_import)


def _lowered(plain: onnx.ModelProto, call: Call, lowering: str, opset: int) -> onnx.ModelProto:
    """Return the model of a call with its body in a lowering."""
    node = onnx.helper.make_node(call.op, list(call.shapes), list(call.outputs), domain=DOMAIN)
    graph = onnx.helper.make_graph([node], call.op, plain.graph.input, plain.graph.output)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)])
    model.ir_version = onnx.helper.find_min_ir_version_for(model.opset_import)
    return with_functions(model, [function_of(call, lowering, opset)])


def _choice(files: Mapping[str, Path], inputs: Sequence[tuple[str, Arrays]], timed: int, options: Options) -> Choice:
    """Return the fastest of the models that load, run, and agree with plain primitives in every case."""
    sessions: dict[str, Any] = {}
    expected: list[Arrays] = []
    for name, file in files.items():
        try:
            session = verify.open_session(file, options.provider, threads=usable_cpus())
            outputs = [verify.run_session(session, arrays) for _, arrays in inputs]
        except (BundleError, ExportError):
            if name == PORTABLE:
                raise
            continue
        if name == PORTABLE:
            expected = outputs
        if _agree(inputs, expected, outputs, options.tolerance):
            sessions[name] = session
    times = _times(sessions, inputs[timed][1])
    best = min(times, key=lambda name: times[name])
    return Choice(best if times[best] < MARGIN * times[PORTABLE] else PORTABLE, times)


def _agree(
    inputs: Sequence[tuple[str, Arrays]],
    expected: Sequence[Arrays],
    actual: Sequence[Arrays],
    tolerance: Mapping[str, float],
) -> bool:
    # what rounding does is not known here
    tolerance = {key: max(value, ROUGH[key]) for key, value in tolerance.items()}
    cases = [verify.Case(name, arrays, outputs) for (name, arrays), outputs in zip(inputs, expected, strict=True)]
    return all(row.passed for row in compared(cases, actual, tolerance))


def _times(sessions: Mapping[str, Any], arrays: Arrays) -> dict[str, float]:
    """Return the median milliseconds of each session, run in turns.

    In bursts, the first run of which finds the caches as another session left them and does not count.
    """
    taken: dict[str, list[float]] = {name: [] for name in sessions}
    end = time.perf_counter() + SECONDS
    for burst in range(MOST_BURSTS):
        if burst >= FEWEST_BURSTS and time.perf_counter() > end:
            break
        for name, session in sessions.items():
            for run in range(RUNS + 1):
                start = time.perf_counter()
                session.run(None, arrays)
                if run:
                    taken[name].append(time.perf_counter() - start)
    return {name: statistics.median(seconds) * 1e3 for name, seconds in taken.items()}
