"""Attention patterns of other packages: matched in a graph and lowered with equal outputs."""

import logging

import numpy as np
import onnx
import pytest
from traced_models import run_model

from keras_attn_export._lowerings.lowering_choice import build_lowered_function
from keras_attn_export._onnx.traced_model import TracedModel
from keras_attn_export._onnxruntime_releases import FUSED_OPSET
from keras_attn_export._passes.finalize import finalize
from keras_attn_export._tracing.attention_pattern import replace_attention_patterns

B, H, TQ, TK, D, DV = 2, 3, 4, 5, 6, 7
HEADS = {
    "queries": f"float[b, q, {H}, {D}]",
    "keys": f"float[b, k, {H}, {D}]",
    "values": f"float[b, k, {H}, {DV}]",
}
HEADS_FIRST = {
    "queries": f"float[b, {H}, q, {D}]",
    "keys": f"float[b, {H}, k, {D}]",
    "values": f"float[b, {H}, k, {DV}]",
}
GROUPS = {"queries": f"float[b, q, 2, 3, {D}]", "keys": f"float[b, k, 2, {D}]", "values": f"float[b, k, 2, {DV}]"}
ONE_HEAD = {"queries": f"float[b, q, {D}]", "keys": f"float[b, k, {D}]", "values": f"float[b, k, {DV}]"}
BEGIN = """
    heads_of_queries = Transpose <perm = [0, 2, 1, 3]> (queries)
    heads_of_keys = Transpose <perm = [0, 2, 3, 1]> (keys)
    heads_of_values = Transpose <perm = [0, 2, 1, 3]> (values)
    products = MatMul (heads_of_queries, heads_of_keys)
"""
END = """
    pooled = MatMul (weights, heads_of_values)
    y = Transpose <perm = [0, 2, 1, 3]> (pooled)
"""
IN_GROUPS = """
    axis = Constant <value = int64[1] {2}> ()
    groups_of_queries = Transpose <perm = [0, 2, 3, 1, 4]> (queries)
    heads_of_keys = Transpose <perm = [0, 2, 3, 1]> (keys)
    shared_keys = Unsqueeze (heads_of_keys, axis)
    products = MatMul (groups_of_queries, shared_keys)
    heads_of_values = Transpose <perm = [0, 2, 1, 3]> (values)
    shared_values = Unsqueeze (heads_of_values, axis)
"""
END_OF_GROUPS = """
    pooled = MatMul (weights, shared_values)
    y = Transpose <perm = [0, 3, 1, 2, 4]> (pooled)
"""
OF_ONE = "turned = Transpose <perm = [0, 2, 1]> (keys) \n products = MatMul (queries, turned)"
OF_FIRST = "turned = Transpose <perm = [0, 1, 3, 2]> (keys) \n products = MatMul (queries, turned)"
POOLED = "y = MatMul (weights, values)"
SCALED = "scores = Mul (scale, products)"
WEIGHTS = "weights = Softmax <axis = -1> (scores)"
KEPT = "scores = Mul (scale, products) \n kept = Where (mask, scores, low)"
BIASED = "scores = Mul (scale, products) \n sum = Add (scores, bias) \n kept = Where (mask, sum, low)"
MEAN = "weights = Softmax (kept)"
ZEROS = "softmax = Softmax (kept) \n weights = Where (mask, softmax, zero)"
FOUND = {  # inputs, and nodes
    "multiplied": (HEADS, [BEGIN, SCALED, WEIGHTS, END]),
    "divided": (HEADS, [BEGIN, "scores = Div (products, scale)", WEIGHTS, END]),
    "as they are": (HEADS, [BEGIN, "weights = Softmax (products)", END]),
    "keys by queries": (
        HEADS_FIRST,
        [
            "turned = Transpose <perm = [0, 1, 3, 2]> (queries)",
            "products = MatMul (keys, turned)",
            "scaled = Mul (scale, products)",
            "scores = Transpose <perm = [0, 1, 3, 2]> (scaled)",
            WEIGHTS,
            POOLED,
        ],
    ),
    "heads first": (HEADS_FIRST, [OF_FIRST, SCALED, WEIGHTS, POOLED]),
    "one head": (ONE_HEAD, [OF_ONE, SCALED, WEIGHTS, POOLED]),
    "one head, masked": (ONE_HEAD | {"mask": "bool[q, k]"}, [OF_ONE, KEPT, ZEROS, POOLED]),
    "heads in groups": (GROUPS, [IN_GROUPS, SCALED, WEIGHTS, END_OF_GROUPS]),
    "heads in groups, masked": (GROUPS | {"mask": "bool[b, 1, 1, q, k]"}, [IN_GROUPS, KEPT, ZEROS, END_OF_GROUPS]),
    "heads in groups, a mask of pairs": (GROUPS | {"mask": "bool[q, k]"}, [IN_GROUPS, KEPT, MEAN, END_OF_GROUPS]),
    "heads that share one of keys": (
        HEADS | {"keys": f"float[b, k, 1, {D}]", "values": f"float[b, k, 1, {DV}]"},
        [BEGIN, SCALED, WEIGHTS, END],
    ),
    "bias": (
        HEADS | {"bias": f"float[{H}, q, k]"},
        [BEGIN, SCALED, "sum = Add (bias, scores)", "weights = Softmax (sum)", END],
    ),
    "a bias that is scaled too": (
        HEADS | {"bias": f"float[{H}, 1, k]"},
        [BEGIN, "half = Mul (products, scale)", "sum = Add (half, bias)", "scores = Div (sum, scale)", WEIGHTS, END],
    ),
    "the mean without keys": (HEADS | {"mask": "bool[b, 1, q, k]"}, [BEGIN, KEPT, MEAN, END]),
    "zeros without keys": (HEADS | {"mask": "bool[b, 1, 1, k]"}, [BEGIN, KEPT, ZEROS, END]),
    "bias, the mean without keys": (
        HEADS | {"mask": "bool[b, 1, q, k]", "bias": f"float[1, {H}, 1, k]"},
        [BEGIN, BIASED, MEAN, END],
    ),
    "bias, zeros without keys": (
        HEADS | {"mask": f"bool[b, {H}, q, k]", "bias": "float[q, k]"},
        [BEGIN, BIASED, ZEROS, END],
    ),
}
MASK = {"mask": "bool[q, k]"}
LEFT = {
    "weights are read elsewhere": (
        HEADS,
        [BEGIN, SCALED, WEIGHTS, END, "more = Relu (weights)", "y2 = Add (more, one)"],
    ),
    "a number that a score may be": (HEADS | MASK, [BEGIN, KEPT.replace("low", "one"), MEAN, END]),
    "infinity": (HEADS | MASK, [BEGIN, KEPT.replace("low", "infinity"), MEAN, END]),
    "weights masked alone": (HEADS | MASK, [BEGIN, "kept = Mul (scale, products)", ZEROS, END]),
    "ones in place of weights": (HEADS | MASK, [BEGIN, KEPT, ZEROS.replace("zero", "one"), END]),
    "another mask": (HEADS | MASK, [BEGIN, "other = Not (mask)", KEPT.replace("mask", "other"), ZEROS, END]),
    "a scale of each query": (
        HEADS | {"scales": "float[q, 1]"},
        [BEGIN, "scores = Mul (products, scales)", WEIGHTS, END],
    ),
    "divided by the products": (HEADS, [BEGIN, "scores = Div (one, products)", WEIGHTS, END]),
    "a negative scale": (HEADS, [BEGIN, "scores = Mul (products, low)", WEIGHTS, END]),
    "over the queries": (HEADS, [BEGIN, SCALED, WEIGHTS.replace("-1", "2"), END]),
    "keys of one example": (
        HEADS | {"keys": f"float[1, k, {H}, {D}]", "queries": f"float[2, q, {H}, {D}]"},
        [BEGIN, SCALED, WEIGHTS, END],
    ),
    "groups that differ in their bias": (
        GROUPS | {"bias": "float[2, 1, q, k]"},
        [IN_GROUPS, SCALED, "sum = Add (scores, bias)", "weights = Softmax (sum)", END_OF_GROUPS],
    ),
    "heads that are not known": (HEADS | {"keys": f"float[b, k, h, {D}]"}, [BEGIN, SCALED, WEIGHTS, END]),
    "no softmax": (HEADS, [BEGIN, "weights = Relu (products)", END]),
}


def model_of(input_types, nodes):
    """Return the model and random inputs, some of whose queries see no key."""
    inputs = ", ".join(f"{kind} {name}" for name, kind in input_types.items())
    output = "y2" if "y2" in nodes[-1] else "y"
    axes = ", ".join("abcd"[: input_types["queries"].count(",") + 1])
    model = onnx.parser.parse_model(
        f'<ir_version: 9, opset_import: ["": 18]>\nhand ({inputs}) => (float[{axes}] {output})\n'
        "<float low = {-1e9}, float zero = {0}, float scale = {0.5}, float one = {1}, float infinity = {-inf}>"
        "{" + "\n".join(nodes) + "}"
    )
    for number, node in enumerate(model.graph.node):
        node.name = f"StatefulPartitionedCall/model/block_1/{node.op_type}_{number}"
    rng, sizes, arrays = np.random.default_rng(0), {"b": B, "q": TQ, "k": TK, "h": H}, {}
    for name, kind in input_types.items():
        dtype, _, shape = kind.partition("[")
        size = [int(sizes.get(axis, axis)) for axis in shape[:-1].split(", ")]
        arrays[name] = rng.standard_normal(size).astype("float32") if dtype == "float" else rng.random(size) < 0.6
    if "mask" in arrays:
        arrays["mask"][..., 0, :] = False
    return model, arrays


def axes_of(values):
    return {v.name: tuple(dim.dim_param or dim.dim_value for dim in v.type.tensor_type.shape.dim) for v in values}


@pytest.mark.parametrize(("input_types", "nodes"), FOUND.values(), ids=FOUND)
def test_written_attention_is_lowered_with_equal_outputs(input_types, nodes):
    model, arrays = model_of(input_types, nodes)
    replaced, (call,) = replace_attention_patterns(TracedModel(model), 3, {})
    functions = [build_lowered_function(call, "fused", FUSED_OPSET)]
    axes = axes_of(model.graph.input), axes_of(model.graph.output)
    finished = finalize(replaced, *axes, FUSED_OPSET, functions).model
    assert (call.op_type, call.layer) == ("dot_product_3", "model/block_1")
    assert {"Softmax", "MatMul"}.isdisjoint(node.op_type for node in finished.graph.node)
    np.testing.assert_allclose(
        run_model(finished, **arrays)["y"], run_model(model, **arrays)["y"], rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize(("input_types", "nodes"), LEFT.values(), ids=LEFT)
def test_other_products_and_softmaxes_stay_and_the_reason_is_logged(input_types, nodes, caplog):
    model, arrays = model_of(input_types, nodes)
    run_model(model, **arrays)  # it is a model
    traced = TracedModel(model)
    with caplog.at_level(logging.DEBUG, "keras_attn_export"):
        assert replace_attention_patterns(traced, 0, {}) == (traced, [])
    assert len(caplog.messages) == any(node.op_type == "Softmax" for node in model.graph.node)


def test_near_miss_logs_the_node_and_the_reason(caplog):
    model, _ = model_of(*LEFT["a negative scale"])
    with caplog.at_level(logging.DEBUG, "keras_attn_export"):
        replace_attention_patterns(TracedModel(model), 0, {})
    (message,) = caplog.messages
    assert "block_1/MatMul_6 is not replaced: its scores do not match the pattern" in message
