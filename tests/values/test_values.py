"""Operators at special values: each has a case, and its file equals Keras or deviates as the case lists.

The operators of TensorFlow are those that tf2onnx or `keras_attn_export` converts. Custom layers call them with
arguments that Keras does not have, so their cases are functions of TensorFlow itself.
"""

import inspect
from collections.abc import Callable, Iterator
from functools import reduce

import numpy as np
import onnx
import pytest
import tensorflow as tf
from keras import layers, ops
from tensorflow.python.framework import op_def_registry
from tf2onnx import handler

from keras_attn_export._operators.table import HANDLERS

from . import OPERATOR_CASES
from .grids import FINITE_VALUES
from .running import REJECTED_BY_KERAS, IsolatedRunner, Result, run_cases
from .table import OperatorCase

CASES_PER_TEST = 24
CHUNKS = [OPERATOR_CASES[start : start + CASES_PER_TEST] for start in range(0, len(OPERATOR_CASES), CASES_PER_TEST)]
# One operator for each error of earlier versions, since the test of all operators is slow.
CORRECTED_OPERATORS = ("keras.ops.one_hot", "keras.ops.floor_divide", "keras.ops.mod", "keras.ops.cumprod")


def list_unexpected(result: Result) -> list[str]:
    """Return a line for each refusal or difference that the case does not list, and for each that it lists in vain."""
    case = result.case
    if result.refusal:
        is_expected = case.refusal and case.refusal in result.refusal
        return [] if is_expected else [f"{result.name}: {result.refusal}"]
    if case.refusal:
        return [f"{result.name} is no longer refused"]
    differences = {kind: text for kind, text in result.differences.items() if bool(text) != (kind in case.deviations)}
    lines = [f"{result.name}, {kind}: {text or 'no longer deviates'}" for kind, text in differences.items()]
    unexplained_kinds = [kind for kind in case.deviations if not result.find_reason(kind)]
    return lines + [f"{result.name}, {kind}: deviations.py has no reason" for kind in unexplained_kinds]


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(CHUNKS)))  # by number: a new case must not rename the tests after it
def test_operators_equal_keras_or_deviate_as_listed(number):
    assert not [line for result in run_cases(CHUNKS[number]) for line in list_unexpected(result)]


def test_corrected_operators_equal_keras():
    cases = [case for case in OPERATOR_CASES if case.operator in CORRECTED_OPERATORS]
    assert {case.operator for case in cases} == {*CORRECTED_OPERATORS}
    assert not [line for result in run_cases(cases) for line in list_unexpected(result)]


def test_cases_list_dtypes_that_keras_accepts():
    assert all(REJECTED_BY_KERAS not in case.refusal for case in OPERATOR_CASES), "list the dtypes that Keras accepts"


@pytest.mark.slow
def test_file_that_terminates_its_process_is_reported():
    values = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.INT32, [1]) for name in "xyz"]
    node = onnx.helper.make_node("Div", ["x", "y"], ["z"])
    graph = onnx.helper.make_graph([node], "quotient", values[:2], values[2:])
    imports = [onnx.helper.make_opsetid("", 18)]
    model = onnx.helper.make_model(graph, opset_imports=imports, ir_version=8).SerializeToString()
    divisor = np.int32([-1])
    with IsolatedRunner() as run:
        assert run(model, {"finite": (np.int32([-(2**31)]), divisor)}) == {"finite": "ends the process"}
        assert run(model, {"finite": (np.int32([4]), divisor)}) == {"finite": [-4]}


# Functions of Python or of another framework, and base classes.
NAMES_WITHOUT_OUTPUTS = {
    "keras.ops": "convert_to_numpy custom_gradient dtype is_tensor jvp ndim vectorize",
    "keras.layers": "FlaxLayer InputLayer InputSpec JaxLayer Layer Pipeline StackedRNNCells TFSMLayer Wrapper "
    "TorchModuleWrapper",
}
LABEL_LAYERS = "MaxNumBoundingBoxes"
STRING_LAYERS = "HashedCrossing Hashing StringLookup TextVectorization"


def iter_public_names() -> Iterator[tuple[Callable[..., object], str]]:
    """Yield each public function and layer with its name; a function with two names twice."""
    for module in (ops, ops.image, ops.linalg, ops.nn, ops.numpy):
        for name, function in vars(module).items():
            if not name.startswith("_") and not inspect.ismodule(function):
                yield function, f"{module.__name__}.{name}"
    for name, layer in vars(layers).items():
        if inspect.isclass(layer):
            yield layer, f"keras.layers.{name}"


def test_every_operator_has_a_case():
    exempt_names = {f"{module}.{name}" for module, names in NAMES_WITHOUT_OUTPUTS.items() for name in names.split()}
    exempt_names |= {f"keras.layers.{name}" for name in (LABEL_LAYERS, *STRING_LAYERS.split())}
    covered_names = {case.operator for case in OPERATOR_CASES if case.operator.startswith("keras.")}
    functions = {reduce(getattr, name.split(".")[1:], __import__("keras")) for name in covered_names | exempt_names}
    assert not {name for function, name in iter_public_names() if function not in functions}
    assert not covered_names & exempt_names, "exempt operators with a case"


EXEMPT_TENSORFLOW_OPERATORS = {
    "draws random numbers: the export refuses the model earlier": "Multinomial RandomShuffle RandomStandardNormal "
    "RandomUniform RandomUniformInt SampleDistortedBoundingBox SampleDistortedBoundingBoxV2",
    "strings: tests/operators/test_string_operators.py": "AsString DecodeRaw RaggedBincount ReduceJoin SparseCross "
    "StaticRegexReplace StringJoin StringLower StringNGrams StringSplit StringSplitV2 StringStrip "
    "StringToHashBucketFast StringToHashBucketStrong StringToNumber StringUpper UnicodeDecode UnicodeEncode",
    "reads the data of a training": "FIFOQueueV2 IteratorGetNext IteratorV2 QueueDequeueManyV2 QueueDequeueUpToV2 "
    "QueueDequeueV2",
    "outside of the function": "HashTableV2",
    "GPUs only": "CudnnRNN",
    "not created by TensorFlow 2": "PlaceholderV2 RaggedTensorFromVariant RaggedTensorToVariant TensorListResize",
    "in cases of Keras": "Bitcast XlaDynamicUpdateSlice",
}


# Calls of functions, and tables, are mapped if an export ran in this process; string operators if tensorflow-text is
# installed.
OPTIONAL_OPERATORS = {
    *("PartitionedCall", "StatefulPartitionedCall", "MutableHashTableV2"),
    *("RegexSplitWithOffsets", "SentencepieceOp", "SentencepieceTokenizeOp", "WordpieceTokenizeWithOffsets"),
    *("CaseFoldUTF8", "NormalizeUTF8", "FastWordpieceTokenizeWithOffsets"),
}


def list_traced_operators(case: OperatorCase) -> set[str]:
    """Return the TensorFlow operators of a case's function, with those in loops and branches."""
    inputs = case.make_inputs(FINITE_VALUES, case.dtypes[0])
    specs = [tf.TensorSpec(array.shape if case.is_static else [None] * array.ndim, array.dtype) for array in inputs]
    function = tf.function(lambda *inputs: case.function(*inputs), autograph=False)
    graph = function.get_concrete_function(*specs).graph.as_graph_def()
    bodies = (graph.node, *(body.node_def for body in graph.library.function))
    return {node.op for nodes in bodies for node in nodes}


@pytest.mark.slow
def test_every_mapped_operator_of_tensorflow_has_a_case():
    mapped_operators = {name for opsets in handler.tf_op.get_opsets().values() for opset in opsets for name in opset}
    mapped_operators |= {row.name for row in HANDLERS}
    mapped_operators = {name for name in mapped_operators if op_def_registry.get(name) is not None}
    cases = [case for case in OPERATOR_CASES if case.operator.startswith(("tf.", "tensorflow."))]
    traced_operators = set().union(*(list_traced_operators(case) for case in cases))
    exempt_names = {name for names in EXEMPT_TENSORFLOW_OPERATORS.values() for name in names.split()}
    assert mapped_operators - traced_operators - OPTIONAL_OPERATORS == exempt_names
