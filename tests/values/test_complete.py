"""All of `keras.ops` and `keras.layers`, and what is mapped of TensorFlow, has a row, or stands here with the reason.

Operators of TensorFlow are those that tf2onnx or the table of ours maps, in rows of functions of TensorFlow itself:
custom layers call those, with arguments that Keras does not have.
"""

import inspect
from collections.abc import Callable, Iterator
from functools import reduce

import pytest
import tensorflow as tf
from keras import layers, ops
from tensorflow.python.framework import op_def_registry
from tf2onnx import handler

from keras_attn_export._operators.table import OPERATORS

from . import ENTRIES
from .grids import FINITE
from .table import Entry

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
    mapped = {name for name in mapped | {each.name for each in OPERATORS} if op_def_registry.get(name) is not None}
    found = set().union(*(traced(entry) for entry in ENTRIES if entry.operator.startswith(("tf.", "tensorflow."))))
    left = {name for names in OF_TENSORFLOW.values() for name in names.split()}
    assert mapped - found - SOMETIMES == left
