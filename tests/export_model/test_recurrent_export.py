"""Recurrent decoders with attention as one ONNX file: the loop is a Loop, and the proof passes."""

import keras
import numpy as np
import pytest
from attention_cell_cases import CELLS, Dm, Dx, build_cell, draw_inputs
from unchecked_export import UncheckedExport

from keras_attn_export import export_model

STEPS = {"bahdanau": None, "luong": 2, "location": 2, "heads": 2}  # a proof of many sizes runs Keras for each of them


def model_of(name):
    rnn = build_cell(name)
    inputs, memory = keras.Input((STEPS[name], Dx), name="inputs"), keras.Input((None, Dm), name="memory")
    lengths, input_lens = (keras.Input((), dtype="int32", name=n) for n in ("valid_lens", "input_lens"))
    (outputs, *states), weights = rnn(inputs, memory, lengths, input_lens=input_lens, return_attention_scores=True)
    named = {"outputs": outputs, "weights": weights, "state": states[0]}
    return keras.Model([inputs, memory, lengths, input_lens], named)


def samples(batch=4, steps=2, places=5, seed=0):
    inputs, memory = draw_inputs(seed, batch, steps, places)
    random = np.random.default_rng(seed)
    lengths = {"valid_lens": random.integers(0, places + 1, batch), "input_lens": random.integers(0, steps + 1, batch)}
    return {"inputs": inputs, "memory": memory, **{n: each.astype("int32") for n, each in lengths.items()}}


@pytest.fixture(scope="module", params=CELLS)
def written(request, tmp_path_factory):
    traced = UncheckedExport(model_of(request.param))
    return request.param, traced, traced.write(tmp_path_factory.mktemp("recurrent"))


@pytest.mark.slow
@pytest.mark.parametrize("name", CELLS)
def test_recurrent_decoder_exports_with_named_axes(name, tmp_path):
    bundle = export_model(model_of(name), tmp_path / "bundle", sample_inputs=samples())
    assert bundle.report.passed
    shapes, steps = {spec["name"]: spec["shape"] for spec in bundle.manifest["outputs"]}, STEPS[name] or "inputs_length"
    assert shapes["weights"] == ["batch", *([2] if name == "heads" else []), steps, "memory_length"]
    assert shapes["outputs"] == ["batch", steps, build_cell(name).cell.output_size]


def assert_same(found, expected):
    for output, array in expected.items():
        np.testing.assert_allclose(found[output], array, rtol=1e-4, atol=1e-5, err_msg=output)


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [(1, 2, 3), (3, 7, 6), (9, 4, 1)])
def test_other_sizes_equal_keras(written, sizes):
    name, traced, file = written
    batch, steps, places = sizes
    inputs = samples(batch, STEPS[name] or steps, places, seed=1)
    assert_same(file.run(inputs), traced.expected(inputs))


@pytest.mark.slow
def test_nan_in_padding_does_not_reach_outputs(written):
    _, traced, file = written
    inputs = samples(seed=2) | {"valid_lens": np.int32([2, 5, 0, 3])}
    padded = np.arange(5)[:, None] >= inputs["valid_lens"][:, None, None]
    found = file.run(inputs | {"memory": np.where(padded, np.float32(np.nan), inputs["memory"])})
    assert_same(found, traced.expected(inputs))


@pytest.mark.slow
def test_recurrence_is_one_loop(written):
    assert [node.op_type for node in written[2].finished.model.graph.node].count("Loop") == 1
