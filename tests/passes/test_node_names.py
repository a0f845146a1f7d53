"""Names of nodes and values: derived from layers and operators, independent of counters in the process."""

import re

import numpy as np
import onnx
import tensorflow as tf
import tf2onnx
from converted_functions import ConvertedFunction
from onnx import TensorProto, helper, numpy_helper

from keras_attn_export._onnx.traced_model import TracedModel
from keras_attn_export._passes.node_names import rename

LAYERS = ("dense", "norm", "memory", "loop")


def build_and_rename(rows, constants=(), **options):
    """Return a renamed graph from `x` to `y` of nodes `name; operator inputs > outputs`."""
    nodes = []
    for row in rows:
        name, op, *inputs, _, outputs = row.split()
        nodes.append(helper.make_node(op, inputs, outputs.split(","), name.removesuffix(";")))
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "xy"]
    arrays = [numpy_helper.from_array(np.zeros([2] * name.startswith("W") * 2, "float32"), name) for name in constants]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], arrays, doc_string="tf2onnx__7")
    model = helper.make_model(graph)
    assert rename(TracedModel(model), LAYERS, **options)
    graph = model.graph
    assert graph.doc_string == ""
    return graph


def format_nodes(graph):
    return [f"{node.name}; {node.op_type} {' '.join(node.input)} > {','.join(node.output)}" for node in graph.node]


def test_nodes_of_tf2onnx_are_named_after_those_of_tensorflow():
    graph = build_and_rename(
        [
            "net/norm_1/Rsqrt; Sqrt x > net/norm_1/Rsqrt:0",
            "net/norm_1/Rsqrt__165; Reciprocal net/norm_1/Rsqrt:0 > net/norm_1/Rsqrt__165:0",
            "net/norm_1/Rsqrt__166; Reciprocal net/norm_1/Rsqrt__165:0 > net/norm_1/Rsqrt__166:0",
            "Add__9; Add net/norm_1/Rsqrt__166:0 const__3 > net/norm_1/add:0",
            "cond_frozen_96068_net/loop_1/while/Less; Less net/norm_1/add:0 Func/input/_1:0 > "
            "cond_frozen_96068_net/loop_1/while/Less:0",
            "net/loop_1/shape_Concat__4; Concat cond_frozen_96068_net/loop_1/while/Less:0 > a__1",
            "net/loop_1/out; Neg a__1 > y",
        ],
        ["const__3", "Func/input/_1:0"],
        functions=["cond_frozen_96068"],
    )
    assert format_nodes(graph) == [
        "net/norm_1/Rsqrt; Sqrt x > net/norm_1/Rsqrt:0",
        "net/norm_1/Rsqrt.Reciprocal; Reciprocal net/norm_1/Rsqrt:0 > net/norm_1/Rsqrt.Reciprocal",
        "net/norm_1/Rsqrt.Reciprocal_2; Reciprocal net/norm_1/Rsqrt.Reciprocal > net/norm_1/Rsqrt.Reciprocal_2",
        "net/norm_1/add; Add net/norm_1/Rsqrt.Reciprocal_2 net/norm_1/add.B > net/norm_1/add:0",
        "net/loop_1/while/Less; Less net/norm_1/add:0 net/loop_1/while/Less.B > net/loop_1/while/Less",
        "net/loop_1/shape_Concat; Concat net/loop_1/while/Less > net/loop_1/shape_Concat",
        "net/loop_1/out; Neg net/loop_1/shape_Concat > y",
    ]


def test_nodes_without_a_name_scope_get_that_of_an_adjacent_layer():
    """Nodes that read weights get the scope of their consumer, others that of their producer; between layers none."""
    graph = build_and_rename(
        [
            "net/dense_1/MatMul; MatMul x W > a__1",
            "Cast__2; Cast a__1 > b__2",
            "LSTM__3; LSTM b__2 W__8 W__9 > c__3,d__4",
            "Squeeze__4; Squeeze c__3 axes__5 > e__6",
            "net/memory_1/transpose; Transpose e__6 > f__7",
            "Sum__8; Sum a__1 f__7 > g__9",
            "net/norm_1/out; Add f__7 g__9 > h__10",
            "net/dense_2/out; Add g__9 h__10 > y",
        ],
        ["W", "W__8", "W__9", "axes__5"],
    )
    assert format_nodes(graph) == [
        "net/dense_1/MatMul; MatMul x W > net/dense_1/MatMul",
        "net/dense_1/Cast; Cast net/dense_1/MatMul > net/dense_1/Cast",
        "net/memory_1/LSTM; LSTM net/dense_1/Cast net/memory_1/LSTM.W net/memory_1/LSTM.R > "
        "net/memory_1/LSTM,net/memory_1/LSTM.1",
        "net/memory_1/Squeeze; Squeeze net/memory_1/LSTM net/memory_1/Squeeze.axes > net/memory_1/Squeeze",
        "net/memory_1/transpose; Transpose net/memory_1/Squeeze > net/memory_1/transpose",
        "Sum; Sum net/dense_1/MatMul net/memory_1/transpose > Sum",
        "net/norm_1/out; Add net/memory_1/transpose Sum > net/norm_1/out",
        "net/dense_2/out; Add Sum net/norm_1/out > y",
    ]


def trace_function(name_counter):
    """Return the ONNX model of a function with equal sizes and constants, traced from a state of the name counter."""
    tf2onnx.utils.INTERNAL_NAME = name_counter
    x = np.zeros((2, 3, 4), "float32")

    def function(x):
        sizes, doubled_sizes = tf.shape(x), tf.shape(x * 2)
        y = tf.reshape(x, (sizes[0], sizes[1], 2, 2)) + tf.reshape(x * 2, (doubled_sizes[0], doubled_sizes[1], 2, 2))
        return y + tf.cast(sizes[1], "float32") + tf.cast(doubled_sizes[1], "float32")

    return ConvertedFunction(function, x=x).model


def test_file_is_independent_of_the_name_counter():
    """Names order equal nodes, of which the first stays, so numbers in names have one length, and are removed later."""
    first, second = trace_function(1), trace_function(85)
    assert first.SerializeToString() == second.SerializeToString()
    assert len(str(tf2onnx.utils.INTERNAL_NAME)) == 10
    assert not re.findall(r"[^ ]*(?:__\d|_frozen_)[^ ]*", onnx.printer.to_text(first))
