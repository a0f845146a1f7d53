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
HEADS = {"queries": f"float[b, q, {H}, {D}]", "keys": f"float[b, k, {H}, {D}]", "values": f"float[b, k, {H}, {DV}]"}
HEADS_FIRST = {
    "queries": f"float[b, {H}, q, {D}]",
    "keys": f"float[b, {H}, k, {D}]",
    "values": f"float[b, {H}, k, {DV}]",
}
GROUPS = {"queries": f"float[b, q, 2, 3, {D}]", "keys": f"float[b, k, 2, {D}]", "values": f"float[b, k, 2, {DV}]"}
ONE_HEAD = {"queries": f"float[b, q, {D}]", "keys": f"float[b, k, {D}]", "values": f"float[b, k, {DV}]"}
PRODUCTS = """
    heads_of_queries = Transpose <perm = [0, 2, 1, 3]> (queries)
    heads_of_keys = Transpose <perm = [0, 2, 3, 1]> (keys)
    heads_of_values = Transpose <perm = [0, 2, 1, 3]> (values)
    products = MatMul (heads_of_queries, heads_of_keys)
"""
OUTPUTS = """
    pooled = MatMul (weights, heads_of_values)
    y = Transpose <perm = [0, 2, 1, 3]> (pooled)
"""
GROUP_PRODUCTS = """
    axis = Constant <value = int64[1] {2}> ()
    groups_of_queries = Transpose <perm = [0, 2, 3, 1, 4]> (queries)
    heads_of_keys = Transpose <perm = [0, 2, 3, 1]> (keys)
    shared_keys = Unsqueeze (heads_of_keys, axis)
    products = MatMul (groups_of_queries, shared_keys)
    heads_of_values = Transpose <perm = [0, 2, 1, 3]> (values)
    shared_values = Unsqueeze (heads_of_values, axis)
"""
GROUP_OUTPUTS = """
    pooled = MatMul (weights, shared_values)
    y = Transpose <perm = [0, 3, 1, 2, 4]> (pooled)
"""
ONE_HEAD_PRODUCTS = "transposed = Transpose <perm = [0, 2, 1]> (keys) \n products = MatMul (queries, transposed)"
TRANSPOSED_KEYS = "transposed = Transpose <perm = [0, 1, 3, 2]> (keys) \n products = MatMul (queries, transposed)"
POOLED = "y = MatMul (weights, values)"
SCALED = "scores = Mul (scale, products)"
WEIGHTS = "weights = Softmax <axis = -1> (scores)"
MASKED = "scores = Mul (scale, products) \n masked = Where (mask, scores, low)"
BIASED = "scores = Mul (scale, products) \n sum = Add (scores, bias) \n masked = Where (mask, sum, low)"
SCALED_BIAS = "half = Mul (products, scale) \n sum = Add (half, bias) \n scores = Div (sum, scale)"
MEAN = "weights = Softmax (masked)"
ZEROS = "softmax = Softmax (masked) \n weights = Where (mask, softmax, zero)"
MATCHES = {  # inputs and nodes
    "multiplied": (HEADS, [PRODUCTS, SCALED, WEIGHTS, OUTPUTS]),
    "divided": (HEADS, [PRODUCTS, "scores = Div (products, scale)", WEIGHTS, OUTPUTS]),
    "unscaled": (HEADS, [PRODUCTS, "weights = Softmax (products)", OUTPUTS]),
    "keys by queries": (
        HEADS_FIRST,
        [
            "transposed = Transpose <perm = [0, 1, 3, 2]> (queries) \n products = MatMul (keys, transposed)",
            "scaled = Mul (scale, products) \n scores = Transpose <perm = [0, 1, 3, 2]> (scaled)",
            WEIGHTS,
            POOLED,
        ],
    ),
    "heads first": (HEADS_FIRST, [TRANSPOSED_KEYS, SCALED, WEIGHTS, POOLED]),
    "one head": (ONE_HEAD, [ONE_HEAD_PRODUCTS, SCALED, WEIGHTS, POOLED]),
    "one head, masked": (ONE_HEAD | {"mask": "bool[q, k]"}, [ONE_HEAD_PRODUCTS, MASKED, ZEROS, POOLED]),
    "heads in groups": (GROUPS, [GROUP_PRODUCTS, SCALED, WEIGHTS, GROUP_OUTPUTS]),
    "masked groups": (GROUPS | {"mask": "bool[b, 1, 1, q, k]"}, [GROUP_PRODUCTS, MASKED, ZEROS, GROUP_OUTPUTS]),
    "groups with a shared mask": (GROUPS | {"mask": "bool[q, k]"}, [GROUP_PRODUCTS, MASKED, MEAN, GROUP_OUTPUTS]),
    "heads that share one of keys": (
        HEADS | {"keys": f"float[b, k, 1, {D}]", "values": f"float[b, k, 1, {DV}]"},
        [PRODUCTS, SCALED, WEIGHTS, OUTPUTS],
    ),
    "bias": (
        HEADS | {"bias": f"float[{H}, q, k]"},
        [PRODUCTS, SCALED, "sum = Add (bias, scores)", "weights = Softmax (sum)", OUTPUTS],
    ),
    "a scaled bias": (HEADS | {"bias": f"float[{H}, 1, k]"}, [PRODUCTS, SCALED_BIAS, WEIGHTS, OUTPUTS]),
    "means if fully masked": (HEADS | {"mask": "bool[b, 1, q, k]"}, [PRODUCTS, MASKED, MEAN, OUTPUTS]),
    "zeros if fully masked": (HEADS | {"mask": "bool[b, 1, 1, k]"}, [PRODUCTS, MASKED, ZEROS, OUTPUTS]),
    "bias, means if fully masked": (
        HEADS | {"mask": "bool[b, 1, q, k]", "bias": f"float[1, {H}, 1, k]"},
        [PRODUCTS, BIASED, MEAN, OUTPUTS],
    ),
    "bias, zeros if fully masked": (
        HEADS | {"mask": f"bool[b, {H}, q, k]", "bias": "float[q, k]"},
        [PRODUCTS, BIASED, ZEROS, OUTPUTS],
    ),
}
MASK = {"mask": "bool[q, k]"}
NEAR_MISSES = {
    "weights with another consumer": (
        HEADS,
        [PRODUCTS, SCALED, WEIGHTS, OUTPUTS, "more = Relu (weights)", "y2 = Add (more, one)"],
    ),
    "a fill value of one": (HEADS | MASK, [PRODUCTS, MASKED.replace("low", "one"), MEAN, OUTPUTS]),
    "infinity": (HEADS | MASK, [PRODUCTS, MASKED.replace("low", "infinity"), MEAN, OUTPUTS]),
    "only weights masked": (HEADS | MASK, [PRODUCTS, "masked = Mul (scale, products)", ZEROS, OUTPUTS]),
    "ones in place of weights": (HEADS | MASK, [PRODUCTS, MASKED, ZEROS.replace("zero", "one"), OUTPUTS]),
    "another mask": (HEADS | MASK, [PRODUCTS, "other = Not (mask)", MASKED.replace("(mask", "(other"), ZEROS, OUTPUTS]),
    "query scales": (
        HEADS | {"scales": "float[q, 1]"},
        [PRODUCTS, "scores = Mul (products, scales)", WEIGHTS, OUTPUTS],
    ),
    "divided by the products": (HEADS, [PRODUCTS, "scores = Div (one, products)", WEIGHTS, OUTPUTS]),
    "a negative scale": (HEADS, [PRODUCTS, "scores = Mul (products, low)", WEIGHTS, OUTPUTS]),
    "a softmax over queries": (HEADS, [PRODUCTS, SCALED, WEIGHTS.replace("-1", "2"), OUTPUTS]),
    "keys of one example": (
        HEADS | {"keys": f"float[1, k, {H}, {D}]", "queries": f"float[2, q, {H}, {D}]"},
        [PRODUCTS, SCALED, WEIGHTS, OUTPUTS],
    ),
    "groups that differ in their bias": (
        GROUPS | {"bias": "float[2, 1, q, k]"},
        [GROUP_PRODUCTS, SCALED, "sum = Add (scores, bias)", "weights = Softmax (sum)", GROUP_OUTPUTS],
    ),
    "a dynamic number of heads": (HEADS | {"keys": f"float[b, k, h, {D}]"}, [PRODUCTS, SCALED, WEIGHTS, OUTPUTS]),
    "no softmax": (HEADS, [PRODUCTS, "weights = Relu (products)", OUTPUTS]),
}


def build_model(input_types, nodes):
    """Return a model and random inputs; the first query is fully masked."""
    inputs = ", ".join(f"{tensor_type} {name}" for name, tensor_type in input_types.items())
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
    for name, tensor_type in input_types.items():
        dtype, _, shape = tensor_type.partition("[")
        dims = [int(sizes.get(axis, axis)) for axis in shape[:-1].split(", ")]
        arrays[name] = rng.standard_normal(dims).astype("float32") if dtype == "float" else rng.random(dims) < 0.6
    if "mask" in arrays:
        arrays["mask"][..., 0, :] = False
    return model, arrays


def get_axes(values):
    shapes = {value.name: value.type.tensor_type.shape.dim for value in values}
    return {name: tuple(dim.dim_param or dim.dim_value for dim in dims) for name, dims in shapes.items()}


@pytest.mark.parametrize(("input_types", "nodes"), MATCHES.values(), ids=MATCHES)
def test_matched_attention_is_lowered_with_equal_outputs(input_types, nodes):
    model, arrays = build_model(input_types, nodes)
    replaced, (call,) = replace_attention_patterns(TracedModel(model), 3, {})
    functions = [build_lowered_function(call, "fused", FUSED_OPSET)]
    axes = get_axes(model.graph.input), get_axes(model.graph.output)
    finished = finalize(replaced, *axes, FUSED_OPSET, functions).model
    assert (call.op_type, call.layer) == ("dot_product_3", "model/block_1")
    assert {"Softmax", "MatMul"}.isdisjoint(node.op_type for node in finished.graph.node)
    output, expected = run_model(finished, **arrays)["y"], run_model(model, **arrays)["y"]
    np.testing.assert_allclose(output, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("input_types", "nodes"), NEAR_MISSES.values(), ids=NEAR_MISSES)
def test_other_products_and_softmaxes_stay_and_the_reason_is_logged(input_types, nodes, caplog):
    model, arrays = build_model(input_types, nodes)
    run_model(model, **arrays)  # the model is valid
    traced = TracedModel(model)
    with caplog.at_level(logging.DEBUG, "keras_attn_export"):
        assert replace_attention_patterns(traced, 0, {}) == (traced, [])
    assert len(caplog.messages) == any(node.op_type == "Softmax" for node in model.graph.node)


def test_near_miss_logs_the_node_and_the_reason(caplog):
    model, _ = build_model(*NEAR_MISSES["a negative scale"])
    with caplog.at_level(logging.DEBUG, "keras_attn_export"):
        replace_attention_patterns(TracedModel(model), 0, {})
    (message,) = caplog.messages
    assert "block_1/MatMul_6 is not replaced: its scores do not match the pattern" in message
