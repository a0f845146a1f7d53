"""Every operator has a row, and gives in the file what Keras gives at every kind of value, or what its row says.

Operators of TensorFlow are those that tf2onnx or the table of ours maps, in rows of functions of TensorFlow itself:
custom layers call those, with arguments that Keras does not have.
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

from . import ENTRIES
from .grids import FINITE
from .running import NOT_TAKEN, Apart, Outcome, outcomes
from .table import Entry

CHUNK = 24  # entries in a test
CHUNKS = [ENTRIES[start : start + CHUNK] for start in range(0, len(ENTRIES), CHUNK)]
# One of each that was wrong once, and what they have in common.
SAMPLE = ("keras.ops.one_hot", "keras.ops.floor_divide", "keras.ops.mod", "keras.ops.cumprod")


def otherwise(outcome: Outcome) -> list[str]:
    """What came of an entry that its row does not say."""
    entry = outcome.entry
    if outcome.refused:
        expected = entry.refused and entry.refused in outcome.refused
        return [] if expected else [f"{outcome.name}: {outcome.refused}"]
    if entry.refused:
        return [f"{outcome.name} is refused no more"]
    differs = {kind: found for kind, found in outcome.kinds.items() if bool(found) != (kind in entry.deviates)}
    said = [f"{outcome.name}, {kind}: {found or 'deviates no more'}" for kind, found in differs.items()]
    reasons = {kind: outcome.reason(kind) for kind in entry.deviates}
    return said + [f"{outcome.name}, {kind}: no reason is written down" for kind, why in reasons.items() if not why]


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(CHUNKS)))  # a new row must not rename those behind it
def test_operators_equal_keras_or_deviate_as_listed(number):
    assert not [line for outcome in outcomes(CHUNKS[number]) for line in otherwise(outcome)]


def test_operators_that_were_wrong_equal_keras():
    sample = [entry for entry in ENTRIES if entry.operator in SAMPLE]
    assert {entry.operator for entry in sample} == {*SAMPLE}
    assert not [line for outcome in outcomes(sample) for line in otherwise(outcome)]


def test_rows_list_dtypes_that_keras_accepts():
    assert all(NOT_TAKEN not in entry.refused for entry in ENTRIES), "list the dtypes that Keras takes"


@pytest.mark.slow
def test_file_that_ends_its_process_is_reported():
    sides = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.INT32, [1]) for name in "xyz"]
    node = onnx.helper.make_node("Div", ["x", "y"], ["z"])
    graph = onnx.helper.make_graph([node], "quotient", sides[:2], sides[2:])
    imports = [onnx.helper.make_opsetid("", 18)]
    model = onnx.helper.make_model(graph, opset_imports=imports, ir_version=8).SerializeToString()
    one = np.int32([-1])
    with Apart() as run:
        assert run(model, {"finite": (np.int32([-(2**31)]), one)}) == {"finite": "ends the process"}
        assert run(model, {"finite": (np.int32([4]), one)}) == {"finite": [-4]}


NO_NUMBERS = {
    "keras.ops": "convert_to_numpy custom_gradient dtype is_tensor jvp ndim vectorize",
    "keras.layers": "FlaxLayer InputLayer InputSpec JaxLayer Layer Pipeline StackedRNNCells TFSMLayer Wrapper "
    "TorchModuleWrapper",
}  # what belongs to Python or to another framework, and bases
FOR_BOXES = "MaxNumBoundingBoxes"  # a layer of labels
OF_STRINGS = "HashedCrossing Hashing StringLookup TextVectorization"


def public() -> Iterator[tuple[Callable[..., object], str]]:
    """Each function and layer with a public name; one that has two has one row."""
    for module in (ops, ops.image, ops.linalg, ops.nn, ops.numpy):
        for name, function in vars(module).items():
            if not name.startswith("_") and not inspect.ismodule(function):
                yield function, f"{module.__name__}.{name}"
    for name, layer in vars(layers).items():
        if inspect.isclass(layer):
            yield layer, f"keras.layers.{name}"


def test_every_operator_has_a_row():
    left = {f"{module}.{name}" for module, names in NO_NUMBERS.items() for name in names.split()}
    left |= {f"keras.layers.{name}" for name in (FOR_BOXES, *OF_STRINGS.split())}
    found = {name for name in {entry.operator for entry in ENTRIES} if name.startswith("keras.")}
    rows = {reduce(getattr, name.split(".")[1:], __import__("keras")) for name in found | left}
    assert not {name for function, name in public() if function not in rows}
    assert not found & left, "a row, and a reason for none"


OF_TENSORFLOW = {
    "draws: such a model is refused before": "Multinomial RandomShuffle RandomStandardNormal RandomUniform "
    "RandomUniformInt SampleDistortedBoundingBox SampleDistortedBoundingBoxV2",
    "of strings: tests/operators/test_string_operators.py": "AsString DecodeRaw RaggedBincount ReduceJoin SparseCross "
    "StaticRegexReplace StringJoin StringLower StringNGrams StringSplit StringSplitV2 StringStrip "
    "StringToHashBucketFast StringToHashBucketStrong StringToNumber StringUpper UnicodeDecode UnicodeEncode",
    "gives a model its data": "FIFOQueueV2 IteratorGetNext IteratorV2 QueueDequeueManyV2 QueueDequeueUpToV2 "
    "QueueDequeueV2",
    "outside of the function": "HashTableV2",
    "of GPUs": "CudnnRNN",
    "TensorFlow 2 makes none": "PlaceholderV2 RaggedTensorFromVariant RaggedTensorToVariant TensorListResize",
    "in rows of Keras": "Bitcast XlaDynamicUpdateSlice",
}


SOMETIMES = {
    # calls of functions, and tables: an export in this process maps them
    *("PartitionedCall", "StatefulPartitionedCall", "MutableHashTableV2"),
    *("RegexSplitWithOffsets", "SentencepieceOp", "SentencepieceTokenizeOp", "WordpieceTokenizeWithOffsets"),
    *("CaseFoldUTF8", "NormalizeUTF8", "FastWordpieceTokenizeWithOffsets"),
}  # the others, of strings, are there where tensorflow-text is installed


def traced(entry: Entry) -> set[str]:
    """The operators that a row's function is traced to, those of loops and branches too."""
    given = entry.given(FINITE, entry.dtypes[0])
    specs = [tf.TensorSpec(each.shape if entry.known else [None] * each.ndim, each.dtype) for each in given]
    function = tf.function(lambda *given: entry.function(*given), autograph=False)
    graph = function.get_concrete_function(*specs).graph.as_graph_def()
    return {node.op for nodes in (graph.node, *(each.node_def for each in graph.library.function)) for node in nodes}


@pytest.mark.slow
def test_every_operator_of_tensorflow_that_is_mapped_has_a_row():
    mapped = {name for opsets in handler.tf_op.get_opsets().values() for opset in opsets for name in opset}
    mapped = {name for name in mapped | {each.name for each in HANDLERS} if op_def_registry.get(name) is not None}
    found = set().union(*(traced(entry) for entry in ENTRIES if entry.operator.startswith(("tf.", "tensorflow."))))
    left = {name for names in OF_TENSORFLOW.values() for name in names.split()}
    assert mapped - found - SOMETIMES == left
