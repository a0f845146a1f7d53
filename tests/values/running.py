"""Comparison of Keras with the exported file, for many operators and every kind of value.

One traced function contains some thirty operators. It is converted once, and the graph is split into one model for each
operator, so that an operator that onnxruntime cannot run does not affect the others. If the conversion fails, each half
of the operators is converted alone, until the operator that cannot be converted is alone in its function.
"""

import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import keras
import numpy as np
import onnx
import tensorflow as tf
import tf2onnx
from keras.src.export.tf2onnx_lib import patch_tf2onnx
from tf2onnx.optimizer import optimize_graph

from keras_attn_export import ExportError
from keras_attn_export._onnx.external_data import add_weights
from keras_attn_export._onnx.traversal import iter_input_names, iter_nodes
from keras_attn_export._private_api.keras_internals import discard_updates
from keras_attn_export._tracing.to_onnx import convert_to_onnx

from . import session_worker
from .deviations import find_deviation
from .grids import EMPTY_AXIS, FINITE_VALUES, INFINITIES, KINDS, NAN
from .session_worker import run_model
from .table import OperatorCase

Converter = Callable[[Callable[..., Any], Mapping[str, tf.TensorSpec]], onnx.ModelProto]
Runner = Callable[[bytes, Mapping[str, tuple[np.ndarray, ...]]], dict[str, Any]]
OPERATORS_PER_FUNCTION = 32
REJECTED_BY_KERAS = "Keras does not accept the inputs"
DEVIATION_KINDS = {FINITE_VALUES: "rounding", INFINITIES: "infinity", NAN: "NaN", EMPTY_AXIS: "an axis of 0"}


@dataclass
class Result:
    """Result of an operator case in one dtype.

    Attributes:
        differences: For each kind of value that Keras accepts, the difference from Keras; empty if there is none.
        refusal: Message of the export, if it refused the operator.
        model: ONNX model of the operator alone.
    """

    case: OperatorCase
    dtype: str
    differences: dict[str, str] = field(default_factory=dict)
    refusal: str = ""
    model: onnx.ModelProto | None = None

    @property
    def name(self) -> str:
        return f"{self.case.name}, {self.dtype}"

    def find_reason(self, kind: str) -> str:
        """Return the documented reason for a difference at a kind of value, or an empty string."""
        operators = {node.op_type for node in iter_nodes(self.model.graph)} if self.model else ()
        deviation = find_deviation(operators, DEVIATION_KINDS[kind])
        return deviation.reason if deviation else ""


@dataclass
class _KerasRun:
    result: Result
    inputs: dict[str, tuple[np.ndarray, ...]]  # by kind of value, as the outputs
    outputs: dict[str, list[np.ndarray]]


def run_cases(
    cases: Sequence[OperatorCase],
    convert: Converter | None = None,
    run: Runner | None = None,
    operators_per_function: int = OPERATORS_PER_FUNCTION,
) -> list[Result]:
    """Run the cases in all of their dtypes; inputs that Keras rejects are reported as a refusal."""
    with np.errstate(all="ignore"):  # Keras computes some numbers by NumPy
        keras_runs = [_run_keras(case, dtype) for case in cases for dtype in case.dtypes]
        accepted_runs = [keras_run for keras_run in keras_runs if FINITE_VALUES in keras_run.outputs]
        for start in range(0, len(accepted_runs), operators_per_function):
            stop = start + operators_per_function
            _compare(accepted_runs[start:stop], convert or convert_as_export, run or run_model)
    return [keras_run.result for keras_run in keras_runs]


class IsolatedRunner:
    """Context that runs models in a separate process, which is started again if a file terminates it."""

    _process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "IsolatedRunner":
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            process, self._process = self._process, None
            with suppress(OSError):
                process.communicate()

    def __call__(self, model: bytes, inputs: Mapping[str, tuple[np.ndarray, ...]]) -> dict[str, Any]:
        """Return the results of `session_worker.run_model`."""
        if self._process is None:
            command = [sys.executable, session_worker.__file__]
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        process = self._process
        assert process.stdin
        assert process.stdout
        try:
            pickle.dump((model, inputs), process.stdin)
            process.stdin.flush()
            results: dict[str, Any] = pickle.load(process.stdout)
        except (EOFError, OSError):
            self.__exit__()
            return dict.fromkeys(inputs, "ends the process")
        return results


def convert_as_export(function: Any, specs: Mapping[str, tf.TensorSpec]) -> onnx.ModelProto:
    """Convert a function as `export_model` does."""

    def call_without_updates(inputs: Any) -> Any:
        with discard_updates():  # of seed generators, which `RandomHue` advances in inference too
            return function(inputs)

    inner_function = tf.function(call_without_updates, input_signature=[specs], autograph=False)
    outer_function = tf.function(lambda inputs: inner_function(inputs), input_signature=[specs], autograph=False)
    conversion = convert_to_onnx(_trace(outer_function), ())
    model: onnx.ModelProto = add_weights(conversion.model, conversion.weights)
    return model


def convert_as_keras(function: Any, specs: Mapping[str, tf.TensorSpec]) -> onnx.ModelProto:
    """Convert a function as `Model.export(format="onnx")` does, `keras/src/export/onnx.py`."""
    tf_function = tf.function(function, input_signature=[specs], autograph=False)
    _trace(tf_function)
    try:
        patch_tf2onnx()
        with patch("tf2onnx.optimizer.optimize_graph", _optimize_with_one_copy):
            model: onnx.ModelProto = tf2onnx.convert.from_function(tf_function, [specs])[0]
    except Exception as error:
        raise ExportError(f"does not convert: {type(error).__name__}: {error}") from error
    return model


def _optimize_with_one_copy(graph: Any, catch_errors: bool = True, optimizers: Any = None) -> Any:
    """Optimize as tf2onnx does, but with one copy of the graph instead of a copy before each optimizer."""
    graph_copy = deepcopy(graph)
    try:
        return optimize_graph(graph, False, optimizers)
    except Exception:  # noqa: BLE001 - optimizers raise errors of any class
        return optimize_graph(graph_copy, True, optimizers)  # skips the optimizers that raise


def _trace(function: Any) -> Any:
    try:
        return function.get_concrete_function()
    except Exception as error:
        raise ExportError(f"cannot be traced: {type(error).__name__}: {error}") from error


def _run_keras(case: OperatorCase, dtype: str) -> _KerasRun:
    """Return the inputs and Keras's outputs for each kind of value that Keras accepts."""
    keras_run = _KerasRun(Result(case, dtype), {}, {})
    for kind in KINDS:
        inputs = case.make_inputs(kind, dtype)
        if inputs is None:
            continue
        try:
            outputs = case.function(*(tf.constant(array) for array in inputs))
            keras_run.outputs[kind] = [np.asarray(output) for output in _flatten(outputs)]
            keras_run.inputs[kind] = inputs
        except Exception as error:  # noqa: BLE001 - errors of Keras and TensorFlow have no common class
            if kind == FINITE_VALUES:
                keras_run.result.refusal = f"{REJECTED_BY_KERAS}: {type(error).__name__}: {error}"
    return keras_run


def _flatten(outputs: Any) -> list[Any]:
    return [output for output in keras.tree.flatten(outputs) if output is not None]


def _compare(keras_runs: Sequence[_KerasRun], convert: Converter, run: Runner) -> None:
    """Convert the operators in one function, or each half of them if that is refused; compare the models with Keras."""
    try:
        models = _convert_to_models(keras_runs, convert)
    except ExportError as error:
        if len(keras_runs) > 1:
            _compare(keras_runs[: len(keras_runs) // 2], convert, run)
            _compare(keras_runs[len(keras_runs) // 2 :], convert, run)
        else:
            keras_runs[0].result.refusal = str(error)
        return
    for keras_run, model in zip(keras_runs, models, strict=True):
        keras_run.result.model = model
        keras_run.result.differences.update(_iter_differences(keras_run, model, run))


def _convert_to_models(keras_runs: Sequence[_KerasRun], convert: Converter) -> list[onnx.ModelProto]:
    """Return one model for each operator, extracted from the model of all."""
    specs = {
        f"in{number}_{i}": tf.TensorSpec(
            array.shape if keras_run.result.case.is_static else [None] * array.ndim, array.dtype, f"in{number}_{i}"
        )
        for number, keras_run in enumerate(keras_runs)
        for i, array in enumerate(keras_run.inputs[FINITE_VALUES])
    }

    def call_all(inputs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        outputs = {}
        for number, keras_run in enumerate(keras_runs):
            arguments = [inputs[f"in{number}_{i}"] for i in range(len(keras_run.inputs[FINITE_VALUES]))]
            with tf.name_scope(f"op{number}"):
                results = _flatten(keras_run.result.case.function(*arguments))
            outputs |= {f"out{number}_{i}": tf.identity(result) for i, result in enumerate(results)}
        return outputs

    model = convert(call_all, specs)
    counts = [len(keras_run.outputs[FINITE_VALUES]) for keras_run in keras_runs]
    return [
        _extract_model(model, f"in{number}_", [f"out{number}_{i}" for i in range(count)])
        for number, count in enumerate(counts)
    ]


def _extract_model(model: onnx.ModelProto, prefix: str, outputs: Sequence[str]) -> onnx.ModelProto:
    """Return the model of some outputs. `onnx.utils.Extractor` omits tensors that only branches and loop bodies use."""
    names, nodes = {*outputs}, []
    for node in reversed(model.graph.node):
        if not names.isdisjoint(node.output):
            names.update(iter_input_names(node))
            nodes.append(node)
    graph = onnx.helper.make_graph(
        nodes[::-1],
        "one",
        [value for value in model.graph.input if value.name.startswith(prefix)],
        [value for name in outputs for value in model.graph.output if value.name == name],
        [tensor for tensor in model.graph.initializer if tensor.name in names],
    )
    imports = {"opset_imports": model.opset_import, "functions": model.functions, "ir_version": model.ir_version}
    return onnx.helper.make_model(graph, **imports)


def _iter_differences(keras_run: _KerasRun, model: onnx.ModelProto, run: Runner) -> Iterator[tuple[str, str]]:
    """Yield each kind of value with the difference between the model and Keras."""
    limit = keras_run.result.case.limit * (1e3 if keras_run.result.dtype == "float16" else 1)
    for kind, outputs in run(model.SerializeToString(), keras_run.inputs).items():
        if isinstance(outputs, str):
            yield kind, outputs  # the message of an error
        else:
            pairs = zip(outputs, keras_run.outputs[kind], strict=True)
            yield kind, "; ".join(filter(None, (_describe_difference(*pair, limit) for pair in pairs)))


def _describe_difference(actual: np.ndarray, expected: np.ndarray, limit: float) -> str:
    """Return the difference of dtype, shape or the first numbers; an empty string if the arrays are equal."""
    if actual.dtype != expected.dtype or actual.shape != expected.shape:
        return f"{actual.dtype}{actual.shape} for {expected.dtype}{expected.shape}"
    if np.issubdtype(expected.dtype, np.floating):
        a, b = actual.astype(np.float64), expected.astype(np.float64)
        smallest_normal = np.finfo(np.float32).tiny  # TensorFlow flushes smaller numbers to zero
        with np.errstate(all="ignore"):
            error, scale = np.abs(a - b), np.maximum(np.abs(b), 1e-3)
            is_equal = (a == b) | (np.isnan(a) & np.isnan(b)) | (error <= limit * scale) | (error < smallest_normal)
    else:
        is_equal = actual == expected
    if np.all(is_equal):
        return ""
    indices = np.argwhere(~is_equal)
    examples = ", ".join(
        f"{actual[tuple(index)]} for {expected[tuple(index)]} at {index.tolist()}" for index in indices[:3]
    )
    return f"{len(indices)} of {is_equal.size} differ: {examples}"
