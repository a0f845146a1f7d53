"""Many operators in one traced function, and what onnxruntime makes of each at every kind of value.

A function of some thirty operators is converted once and taken apart into a model for each, so that what one cannot
run leaves the others alone. What cannot be converted is found by halves.
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
from .deviations import deviation
from .grids import EMPTY, FINITE, INFINITE, KINDS, NAN
from .session_worker import ran
from .table import Entry

Converter = Callable[[Callable[..., Any], Mapping[str, tf.TensorSpec]], onnx.ModelProto]
Runner = Callable[[bytes, Mapping[str, tuple[np.ndarray, ...]]], dict[str, Any]]
TOGETHER = 32  # operators in a function
NOT_TAKEN = "Keras takes none"
SAID_OF = {FINITE: "rounding", INFINITE: "infinity", NAN: "NaN", EMPTY: "an axis of 0"}  # in the table of deviations


@dataclass
class Outcome:
    """What came of an entry in a dtype.

    Attributes:
        kinds: For each kind that Keras takes, nothing where the file gives the same, else what it gives.
        refused: What the export said, if it refused.
        model: The operator's own model.
    """

    entry: Entry
    dtype: str
    kinds: dict[str, str] = field(default_factory=dict)
    refused: str = ""
    model: onnx.ModelProto | None = None

    @property
    def name(self) -> str:
        return f"{self.entry.name}, {self.dtype}"

    def reason(self, kind: str) -> str:
        """Why the file may differ for a kind of value, by its operators; nothing if that is written down nowhere."""
        operators = {node.op_type for node in iter_nodes(self.model.graph)} if self.model else ()
        found = deviation(operators, SAID_OF[kind])
        return found.why if found else ""


@dataclass
class _Case:
    outcome: Outcome
    given: dict[str, tuple[np.ndarray, ...]]  # by kind
    expected: dict[str, list[np.ndarray]]


def outcomes(
    entries: Sequence[Entry], converted: Converter | None = None, run: Runner | None = None, together: int = TOGETHER
) -> list[Outcome]:
    """Run entries in all of their dtypes, converted by ours or otherwise; what Keras itself does not take says so."""
    with np.errstate(all="ignore"):  # Keras computes some numbers by NumPy
        cases = [_case(entry, dtype) for entry in entries for dtype in entry.dtypes]
        taken = [case for case in cases if FINITE in case.expected]
        for start in range(0, len(taken), together):
            _run(taken[start : start + together], converted or ours, run or ran)
    return [case.outcome for case in cases]


class Apart:
    """Runs models in a process of its own, which a file may end; a context, at whose end it ends."""

    _process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "Apart":
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            process, self._process = self._process, None
            with suppress(OSError):
                process.communicate()

    def __call__(self, model: bytes, given: Mapping[str, tuple[np.ndarray, ...]]) -> dict[str, Any]:
        """Return what came, as `session_worker.ran` does."""
        if self._process is None:
            command = [sys.executable, session_worker.__file__]
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        process = self._process
        assert process.stdin
        assert process.stdout
        try:
            pickle.dump((model, given), process.stdin)
            process.stdin.flush()
            found: dict[str, Any] = pickle.load(process.stdout)
        except (EOFError, OSError):
            self.__exit__()
            return dict.fromkeys(given, "ends the process")
        return found


def ours(function: Any, specs: Mapping[str, tf.TensorSpec]) -> onnx.ModelProto:
    """Convert as an export does."""

    def stateless(given: Any) -> Any:
        with discard_updates():  # of seed generators, which `RandomHue` advances in inference too
            return function(given)

    named = tf.function(stateless, input_signature=[specs], autograph=False)
    outer = tf.function(lambda given: named(given), input_signature=[specs], autograph=False)
    found = convert_to_onnx(_concrete(outer), ())
    model: onnx.ModelProto = add_weights(found.model, found.weights)
    return model


def keras_own(function: Any, specs: Mapping[str, tf.TensorSpec]) -> onnx.ModelProto:
    """Convert as `Model.export(format="onnx")` does, `keras/src/export/onnx.py`."""
    traced = tf.function(function, input_signature=[specs], autograph=False)
    _concrete(traced)
    try:
        patch_tf2onnx()
        with patch("tf2onnx.optimizer.optimize_graph", _optimized):
            model: onnx.ModelProto = tf2onnx.convert.from_function(traced, [specs])[0]
    except Exception as error:
        raise ExportError(f"does not convert: {type(error).__name__}: {error}") from error
    return model


def _optimized(graph: Any, catch_errors: bool = True, optimizers: Any = None) -> Any:
    """Optimize as tf2onnx does, which goes on where an optimizer fails, with a copy before all and not before each."""
    whole = deepcopy(graph)
    try:
        return optimize_graph(graph, False, optimizers)
    except Exception:  # noqa: BLE001 - whatever an optimizer meets
        return optimize_graph(whole, True, optimizers)


def _concrete(function: Any) -> Any:
    try:
        return function.get_concrete_function()
    except Exception as error:
        raise ExportError(f"cannot be traced: {type(error).__name__}: {error}") from error


def _case(entry: Entry, dtype: str) -> _Case:
    """What Keras gives, for each kind that it takes."""
    case = _Case(Outcome(entry, dtype), {}, {})
    for kind in KINDS:
        given = entry.given(kind, dtype)
        if given is None:
            continue
        try:
            found = entry.function(*(tf.constant(array) for array in given))
            case.expected[kind] = [np.asarray(each) for each in _flat(found)]
            case.given[kind] = given
        except Exception as error:  # noqa: BLE001 - Keras and TensorFlow raise what they like
            if kind == FINITE:
                case.outcome.refused = f"{NOT_TAKEN}: {type(error).__name__}: {error}"
    return case


def _flat(found: Any) -> list[Any]:
    return [each for each in keras.tree.flatten(found) if each is not None]


def _run(cases: Sequence[_Case], converted: Converter, run: Runner) -> None:
    """Convert the cases together, or, where that is refused, each half of them; then run each."""
    try:
        models = _models(cases, converted)
    except ExportError as error:
        if len(cases) > 1:
            _run(cases[: len(cases) // 2], converted, run)
            _run(cases[len(cases) // 2 :], converted, run)
        else:
            cases[0].outcome.refused = str(error)
        return
    for case, model in zip(cases, models, strict=True):
        case.outcome.model = model
        case.outcome.kinds.update(_differences(case, model, run))


def _models(cases: Sequence[_Case], converted: Converter) -> list[onnx.ModelProto]:
    """The model of each case, out of one that has all."""
    specs = {
        f"in{number}_{place}": tf.TensorSpec(
            array.shape if case.outcome.entry.known else [None] * array.ndim, array.dtype, f"in{number}_{place}"
        )
        for number, case in enumerate(cases)
        for place, array in enumerate(case.given[FINITE])
    }

    def all_of(given: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        outputs = {}
        for number, case in enumerate(cases):
            inputs = [given[f"in{number}_{place}"] for place in range(len(case.given[FINITE]))]
            with tf.name_scope(f"op{number}"):
                found = _flat(case.outcome.entry.function(*inputs))
            outputs |= {f"out{number}_{place}": tf.identity(each) for place, each in enumerate(found)}
        return outputs

    model = converted(all_of, specs)
    return [
        _alone(model, f"in{number}_", [f"out{number}_{place}" for place in range(len(case.expected[FINITE]))])
        for number, case in enumerate(cases)
    ]


def _alone(model: onnx.ModelProto, prefix: str, outputs: Sequence[str]) -> onnx.ModelProto:
    """The model of one case; `onnx.utils.Extractor` does not see what branches and bodies read."""
    graph, read, nodes = model.graph, {*outputs}, []
    for node in reversed(graph.node):
        if not read.isdisjoint(node.output):
            read.update(iter_input_names(node))
            nodes.append(node)
    kept = onnx.helper.make_graph(
        nodes[::-1],
        "one",
        [each for each in graph.input if each.name.startswith(prefix)],
        [each for name in outputs for each in graph.output if each.name == name],
        [each for each in graph.initializer if each.name in read],
    )
    imports = {"opset_imports": model.opset_import, "functions": model.functions, "ir_version": model.ir_version}
    return onnx.helper.make_model(kept, **imports)


def _differences(case: _Case, model: onnx.ModelProto, run: Runner) -> Iterator[tuple[str, str]]:
    """Yield each kind with what is wrong there."""
    limit = case.outcome.entry.limit * (1e3 if case.outcome.dtype == "float16" else 1)
    for kind, found in run(model.SerializeToString(), case.given).items():
        if isinstance(found, str):
            yield kind, found
        else:
            both = zip(found, case.expected[kind], strict=True)
            yield kind, "; ".join(filter(None, (_difference(got, wanted, limit) for got, wanted in both)))


def _difference(found: np.ndarray, expected: np.ndarray, limit: float) -> str:
    """What differs, in a few words: dtype, shape, or the first numbers that do."""
    if found.dtype != expected.dtype or found.shape != expected.shape:
        return f"{found.dtype}{found.shape} for {expected.dtype}{expected.shape}"
    if np.issubdtype(expected.dtype, np.floating):
        a, b = found.astype(np.float64), expected.astype(np.float64)
        tiny = np.finfo(np.float32).tiny  # what is smaller TensorFlow takes for zero
        with np.errstate(all="ignore"):
            scale = np.maximum(np.abs(b), 1e-3)
            same = (a == b) | (np.isnan(a) & np.isnan(b)) | (np.abs(a - b) <= limit * scale) | (np.abs(a - b) < tiny)
    else:
        same = found == expected
    if np.all(same):
        return ""
    places = np.argwhere(~same)
    shown = ", ".join(f"{found[tuple(at)]} for {expected[tuple(at)]} at {at.tolist()}" for at in places[:3])
    return f"{len(places)} of {same.size} differ: {shown}"
