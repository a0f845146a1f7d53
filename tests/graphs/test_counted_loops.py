"""A loop with a number of steps asks for nothing else where nothing else can end it."""

import keras
import numpy as np
import pytest
from onnx import parser
from traced_functions import Converted
from traced_models import changed

from keras_attn_export._graphs.counted_loops import drop_conditions
from keras_attn_export._graphs.edits import drop_unread
from keras_attn_export._graphs.walk import graphs_in

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


def dropped(*lines, lengths=(0, 1, 3, 8)):
    """The operators of the body afterwards, where lines of the model are others."""
    text = COUNTED
    for line, other in lines:
        assert text.count(line) == 1
        text = text.replace(line, other)

    def drop(model):
        drop_conditions(model.graph)
        drop_unread(model.graph)

    inputs = [{"length": np.array(length, "int32"), "x": np.array(0.4, "float32")} for length in lengths]
    (loop,) = [node for node in changed(parser.parse_model(text), drop, *inputs).graph.node if node.op_type == "Loop"]
    return [node.op_type for node in next(graphs_in(loop)).node]


def test_condition_that_repeats_the_trip_count_is_dropped():
    assert sorted(dropped()) == ["Add", "Add", "Identity"]
    # of a counter before its step
    assert "Less" not in dropped(("counter = Cast <to = 1> (later)", "counter = Cast <to = 1> (time)"))


@pytest.mark.parametrize(("line", "other"), ENDS.values(), ids=ENDS)
def test_condition_that_may_end_a_loop_early_stays(line, other):
    assert "Cast" in dropped((line, other))


NO_COUNT = ("count = Cast <to = 7> (length)", "")


def test_loop_without_a_trip_count_keeps_its_condition():
    assert dropped(("(count, yes, zero, x)", "(, yes, zero, x)"), NO_COUNT, lengths=[1]).count("Less") == 2


@pytest.mark.parametrize(("end", "stays"), [(3, False), (2, True)])
def test_constant_trip_count_is_compared_by_value(end, stays):
    constants = ("int32 one = {1}", f"int32 one = {{1}}, int64 count = {{3}}, float three = {{{end}}}")
    ops = dropped(constants, NO_COUNT, ("end_again)", "three)"), ("number, end)", "number, three)"))
    assert ("Less" in ops) == stays


def test_recurrent_layers_have_no_condition():
    layer, rng = keras.layers.GRU(4, return_sequences=True), np.random.default_rng(0)
    x, mask = rng.normal(size=(2, 5, 3)).astype("float32"), np.array([[True] * 5, [True] * 3 + [False] * 2])
    layer(x)
    layer.supports_jit = False
    converted = Converted(lambda x, mask: layer(x, mask=mask), x=x, mask=mask)
    (loop,) = [node for node in converted.model.graph.node if node.op_type == "Loop"]
    assert "Less" not in {node.op_type for node in next(graphs_in(loop)).node}
    converted.assert_same()
    converted.assert_same(x=x[:, :1], mask=mask[:, :1])
