"""Every operator gives in the file what Keras gives, at every kind of value, or the table says what becomes of it."""

import numpy as np
import onnx
import pytest

from . import ENTRIES
from .running import NOT_TAKEN, Apart, Outcome, outcomes

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
def test_gives_what_keras_gives(number):
    assert not [line for outcome in outcomes(CHUNKS[number]) for line in otherwise(outcome)]


def test_what_was_wrong_once():
    sample = [entry for entry in ENTRIES if entry.operator in SAMPLE]
    assert {entry.operator for entry in sample} == {*SAMPLE}
    assert not [line for outcome in outcomes(sample) for line in otherwise(outcome)]


def test_a_row_says_what_keras_does_not_take():
    assert all(NOT_TAKEN not in entry.refused for entry in ENTRIES), "list the dtypes that Keras takes"


@pytest.mark.slow
def test_a_file_may_end_the_process_that_runs_it():
    sides = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.INT32, [1]) for name in "xyz"]
    node = onnx.helper.make_node("Div", ["x", "y"], ["z"])
    graph = onnx.helper.make_graph([node], "quotient", sides[:2], sides[2:])
    imports = [onnx.helper.make_opsetid("", 18)]
    model = onnx.helper.make_model(graph, opset_imports=imports, ir_version=8).SerializeToString()
    one = np.int32([-1])
    with Apart() as run:
        assert run(model, {"finite": (np.int32([-(2**31)]), one)}) == {"finite": "ends the process"}
        assert run(model, {"finite": (np.int32([4]), one)}) == {"finite": [-4]}
