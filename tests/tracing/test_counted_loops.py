"""A loop with a number of steps asks for nothing else where nothing else can end it."""

import keras
import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import parser
from traced_functions import Converted

from keras_attn_export._tracing.counted_loops import drop_conditions
from keras_attn_export._tracing.nodes import drop_unread, graphs_in

# as tf2onnx writes a recurrent layer: the number of the step and a counter of its own, against the length as floats
COUNTED = """
<ir_version: 8, opset_import: ["" : 18]>
counted (int32 length, float x) => (float y)
<int32 zero = {0}, int32 one = {1}, bool yes = {1}>
{
    count = Cast <to = 7> (length)
    last, y = Loop <body = step (int64 i, bool go, int32 time, float a) => (bool go_on, int32 later, float b)
    {
        b = Add (a, a)
        later = Add (time, one)
        number = Cast <to = 1> (i)
        end = Cast <to = 1> (length)
        first = Less (number, end)
        counter = Cast <to = 1> (later)
        end_again = Cast <to = 1> (length)
        second = Less (counter, end_again)
        go_on = And (first, second)
    }> (count, yes, zero, x)
}
"""
ENDS = {
    "something else": ("go_on = And (first, second)", "third = Less (b, end) go_on = And (first, third)"),
    "either": ("go_on = And (first, second)", "go_on = Or (first, second)"),
    "another length": ("second = Less (counter, end_again)", "half = Mul (end, x) second = Less (counter, half)"),
    "another comparison": ("second = Less (counter, end_again)", "second = LessOrEqual (counter, end_again)"),
    "a counter of twos": ("later = Add (time, one)", "two = Add (one, one) later = Add (time, two)"),
    "a counter that doubles": ("later = Add (time, one)", "later = Add (time, time)"),
    "a counter from one": ("(count, yes, zero, x)", "(count, yes, one, x)"),
}


def run(model, length, x=1.0):
    onnx.checker.check_model(model, full_check=True)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"length": np.array(length, "int32"), "x": np.array(x, "float32")})


def dropped(text):
    """The model afterwards, and the operators of its body."""
    model = parser.parse_model(text)
    drop_conditions(model.graph)
    drop_unread(model.graph)
    (loop,) = [node for node in model.graph.node if node.op_type == "Loop"]
    return model, [node.op_type for node in next(graphs_in(loop)).node]


@pytest.mark.parametrize("length", [0, 1, 4])
def test_only_the_number_of_steps_ends_it(length):
    model, ops = dropped(COUNTED)
    assert sorted(ops) == ["Add", "Add", "Identity"]
    assert run(model, length) == run(parser.parse_model(COUNTED), length) == [2.0**length]


@pytest.mark.parametrize("name", ["later", "time"])
def test_a_counter_before_or_after_its_step(name):
    assert (
        "Less"
        not in dropped(COUNTED.replace("counter = Cast <to = 1> (later)", f"counter = Cast <to = 1> ({name})"))[1]
    )


@pytest.mark.parametrize(("line", "other"), ENDS.values(), ids=ENDS)
def test_what_may_end_it_before_stays(line, other):
    assert COUNTED.count(line) == 1
    text = COUNTED.replace(line, other)
    model, ops = dropped(text)
    assert "Cast" in ops
    for length in (0, 3, 8):
        assert run(model, length, 0.4) == run(parser.parse_model(text), length, 0.4)


def test_a_loop_without_a_number_of_steps_is_left():
    _, ops = dropped(
        COUNTED.replace("(count, yes, zero, x)", "(, yes, zero, x)").replace("count = Cast <to = 7> (length)", "")
    )
    assert ops.count("Less") == 2


def test_a_constant_number_of_steps():
    text = COUNTED.replace("int32 one = {1}", "int32 one = {1}, int64 count = {3}, float three = {3}")
    text = (
        text.replace("count = Cast <to = 7> (length)", "")
        .replace("end_again)", "three)")
        .replace("number, end)", "number, three)")
    )
    model, ops = dropped(text)
    assert "Less" not in ops
    assert run(model, 7) == [8.0]
    other = dropped(text.replace("float three = {3}", "float three = {2}"))
    assert "Less" in other[1]
    assert run(other[0], 7) == [4.0]


def test_recurrent_layers_of_keras_count_their_steps():
    layer, rng = keras.layers.GRU(4, return_sequences=True), np.random.default_rng(0)
    x, mask = rng.normal(size=(2, 5, 3)).astype("float32"), np.array([[True] * 5, [True] * 3 + [False] * 2])
    layer(x)
    layer.supports_jit = False
    converted = Converted(lambda x, mask: layer(x, mask=mask), x=x, mask=mask)
    (loop,) = [node for node in converted.model.graph.node if node.op_type == "Loop"]
    assert "Less" not in {node.op_type for node in next(graphs_in(loop)).node}
    converted.assert_same()
    converted.assert_same(x=x[:, :1], mask=mask[:, :1])
