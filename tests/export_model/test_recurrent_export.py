"""Recurrent decoders with attention as one ONNX file: the loop is a Loop, and the proof passes."""

import keras
import numpy as np
import onnx
import pytest
from recurrent_cases import CELLS, Dm, Dx, arrays, inputs_of, made

from keras_attn_export import export_model

STEPS = {"bahdanau": None, "luong": 2, "location": 2, "heads": 2}  # a proof of many sizes runs Keras for each of them


def model_of(name):
    rnn = made(name)
    inputs, memory = keras.Input((STEPS[name], Dx), name="inputs"), keras.Input((None, Dm), name="memory")
    lengths, input_lens = (keras.Input((), dtype="int32", name=n) for n in ("valid_lens", "input_lens"))
    (outputs, *states), weights = rnn(inputs, memory, lengths, input_lens=input_lens, return_attention_scores=True)
    named = {"outputs": outputs, "weights": weights, "state": states[0]}
    return keras.Model([inputs, memory, lengths, input_lens], named)


def samples(batch=4, steps=2, places=5, seed=0):
    inputs, memory = inputs_of(seed, batch, steps, places)
    random = np.random.default_rng(seed)
    lengths = {"valid_lens": random.integers(0, places + 1, batch), "input_lens": random.integers(0, steps + 1, batch)}
    return {"inputs": inputs, "memory": memory, **{n: each.astype("int32") for n, each in lengths.items()}}


IN_TURN = ("bahdanau", "location")
OF_EACH = [pytest.param(name, marks=[] if name in IN_TURN else pytest.mark.out_of_turn) for name in CELLS]


@pytest.fixture(scope="module", params=OF_EACH)
def exported(request, tmp_path_factory):
    model = model_of(request.param)
    path = tmp_path_factory.mktemp("recurrent") / "bundle"
    return request.param, model, export_model(model, path, sample_inputs=samples())


def test_the_proof_passes(exported):
    _, _, bundle = exported
    assert bundle.report.passed


def test_axes_are_named_after_both_sides(exported):
    name, _, bundle = exported
    shapes = {output["name"]: output["shape"] for output in bundle.manifest["outputs"]}
    heads = [2] if name == "heads" else []
    assert shapes["weights"] == ["batch", *heads, STEPS[name] or "inputs_length", "memory_length"]
    assert shapes["outputs"][-1] == made(name).cell.output_size


@pytest.mark.parametrize("sizes", [(1, 2, 3), (3, 7, 6), (9, 4, 1)])
def test_other_sizes_give_what_keras_gives(exported, sizes):
    name, model, bundle = exported
    batch, steps, places = sizes
    inputs = samples(batch, STEPS[name] or steps, places, seed=1)
    found, expected = bundle.run(inputs), arrays(model(inputs))
    for output, array in expected.items():
        np.testing.assert_allclose(found[output], array, rtol=1e-4, atol=1e-5, err_msg=output)


def test_nan_in_padding_stays_out(exported):
    _, model, bundle = exported
    inputs = samples(seed=2) | {"valid_lens": np.int32([2, 5, 0, 3])}
    expected = arrays(model(inputs))
    padded = np.arange(5)[:, None] >= inputs["valid_lens"][:, None, None]
    found = bundle.run(inputs | {"memory": np.where(padded, np.float32(np.nan), inputs["memory"])})
    for output, array in expected.items():
        np.testing.assert_allclose(found[output], array, rtol=1e-4, atol=1e-5, err_msg=output)


def test_the_loop_is_one_operator(exported):
    _, _, bundle = exported
    graph = onnx.load(bundle.path / "model.onnx").graph
    assert [node.op_type for node in graph.node].count("Loop") == 1
