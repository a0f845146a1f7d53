"""Rotary position embeddings: an exact match becomes one operator of onnxruntime, similar graphs stay unchanged."""

import logging

import numpy as np
import onnx
import pytest
from traced_models import run_model

from keras_attn_export._onnx.traced_model import TracedModel
from keras_attn_export._passes.rewrite_rules import ONNXRUNTIME_RULES, apply_rules

HEADS, SIZE = 3, 8
HALVES = "first, second = Split <axis = -1, num_outputs = 2> (x) \n negative = Neg (second)"
PARTS = HALVES.replace("<axis = -1, num_outputs = 2> (x)", "<axis = -1> (x, parts)")
STACKED = """
    stacked_first = Unsqueeze (first, three)
    stacked_second = Unsqueeze (negative, three)
    stack = Concat <axis = -2> (stacked_second, stacked_first)
    turned = Reshape (stack, shape)
"""
JOINED = "turned = Concat <axis = 3> (negative, first)"
STACKED_ANGLES = """
    angle = Unsqueeze (angles, two)
    pairs = Concat <axis = 2> (angle, angle)
    both = Reshape (pairs, shape_of_angles)
    all = Unsqueeze (both, two)
"""
JOINED_ANGLES = "both = Concat <axis = -1> (angles, angles) \n all = Unsqueeze (both, two)"
SUM = "cosines = Cos (all) \n sines = Sin (all) \n a = Mul (x, cosines) \n b = Mul (turned, sines) \n y = Add (a, b)"
SWAPPED_SUM = SUM.replace("Mul (x, cosines)", "Mul (cosines, x)").replace("Add (a, b)", "Add (b, a)")
MATCHES = {
    "as keras_hub writes it": [HALVES, STACKED, STACKED_ANGLES, SUM],
    "joined": [HALVES, JOINED, JOINED_ANGLES, SUM],
    "in another order": [HALVES, JOINED, STACKED_ANGLES, SWAPPED_SUM],
}
NEAR_MISSES = {
    "the halves as they are": [HALVES, JOINED.replace("negative, first", "first, negative"), JOINED_ANGLES, SUM],
    "nothing is negative": [HALVES, JOINED.replace("negative", "second"), JOINED_ANGLES, SUM],
    "other angles": [HALVES, JOINED, JOINED_ANGLES, "more = Neg (all)", SUM.replace("Sin (all)", "Sin (more)")],
    "parts that are no halves": [PARTS, JOINED, JOINED_ANGLES, SUM],
    "halves of another axis": [HALVES.replace("-1", "2"), JOINED.replace("3", "2"), JOINED_ANGLES, SUM],
    "another tensor is turned": [HALVES.replace("(x)", "(z)"), "z = Neg (x)", JOINED, JOINED_ANGLES, SUM],
    "the rotated tensor has one more axis": [
        HALVES,
        JOINED.replace("turned", "flat"),
        "turned = Unsqueeze (flat, zero)",
        JOINED_ANGLES,
        SUM.replace("y = Add (a, b)", "more = Add (a, b) \n y = Squeeze (more, zero)"),
    ],
    "a difference": [HALVES, JOINED, JOINED_ANGLES, SUM.replace("Add", "Sub")],
}


def build_rotation(lines):
    heads = 2 * HEADS if "halves of another axis" in lines else HEADS
    lines = sorted(lines, key=lambda line: not line.startswith("z ="))
    model = onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["": 18]>\n'
        f"rotated (float[b, t, {heads}, {SIZE}] x, float[1, t, {SIZE // 2}] angles) => (float[b, t, {heads}, {SIZE}] y)"
        "<int64[1] zero = {0}, int64[1] two = {2}, int64[1] three = {3}, "
        f"int64[4] shape = {{0, 0, {heads}, {SIZE}}}, "
        f"int64[3] shape_of_angles = {{1, -1, {SIZE}}}, int64[2] parts = {{2, {SIZE - 2}}}>"
        "{" + "\n".join(lines) + "}"
    )
    for number, node in enumerate(model.graph.node):
        node.name = f"{node.op_type}_{number}"
    return model


def simplify(model):
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    apply_rules(TracedModel(changed), ONNXRUNTIME_RULES)
    return changed


@pytest.mark.parametrize("lines", MATCHES.values(), ids=MATCHES)
def test_rotary_embedding_is_one_operator_of_onnxruntime(lines):
    model, rng = build_rotation(lines), np.random.default_rng(0)
    changed = simplify(model)
    onnx.checker.check_model(changed)
    assert {node.op_type for node in changed.graph.node} == {"Reshape", "Cos", "Sin", "RotaryEmbedding"}
    for batch, length in ((2, 5), (1, 1), (2, 0), (0, 3)):
        x = rng.standard_normal((batch, length, HEADS, SIZE)).astype("float32")
        angles = rng.uniform(-100, 100, (1, length, SIZE // 2)).astype("float32")
        if x.size > SIZE * HEADS:
            x[0, 0, 0, :3] = np.inf, np.nan, 1e38
        feeds = {"x": x, "angles": angles}
        output, expected = run_model(changed, **feeds)["y"], run_model(model, **feeds)["y"]
        np.testing.assert_allclose(output, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("lines", NEAR_MISSES.values(), ids=NEAR_MISSES)
def test_similar_rotations_stay_unchanged(lines):
    model = build_rotation(lines)
    heads = model.graph.input[0].type.tensor_type.shape.dim[2].dim_value
    run_model(model, x=np.ones((2, 4, heads, SIZE), "float32"), angles=np.ones((1, 4, SIZE // 2), "float32"))
    assert simplify(model) == model


def test_near_miss_logs_rule_and_reason(caplog):
    with caplog.at_level(logging.DEBUG, "keras_attn_export"):
        simplify(build_rotation(NEAR_MISSES["parts that are no halves"]))
    assert caplog.messages == [
        "Rule rotary position embedding: no match at node Add_9: the rotated tensors are not the halves of x"
    ]
