"""Recurrent decoders with attention as one ONNX file: one `Loop`, named axes, and outputs equal to Keras."""

import keras
import numpy as np
import pytest
from attention_cell_cases import CELLS, Dm, Dx, build_cell, draw_inputs
from unchecked_export import UncheckedExport

from keras_attn_export import export_model

# Keras runs each golden case, which is slow for many numbers of steps, so that one model alone has a dynamic number
STEPS = {"bahdanau": None, "luong": 2, "location": 2, "heads": 2}


def build_recurrent_model(name):
    rnn = build_cell(name)
    inputs, memory = keras.Input((STEPS[name], Dx), name="inputs"), keras.Input((None, Dm), name="memory")
    lengths, input_lens = (keras.Input((), dtype="int32", name=name) for name in ("valid_lens", "input_lens"))
    (outputs, *states), weights = rnn(inputs, memory, lengths, input_lens=input_lens, return_attention_scores=True)
    results = {"outputs": outputs, "weights": weights, "state": states[0]}
    return keras.Model([inputs, memory, lengths, input_lens], results)


def draw_samples(batch=4, steps=2, memory_length=5, seed=0):
    inputs, memory = draw_inputs(seed, batch, steps, memory_length)
    rng = np.random.default_rng(seed)
    valid_lens = rng.integers(0, memory_length + 1, batch).astype("int32")
    input_lens = rng.integers(0, steps + 1, batch).astype("int32")
    return {"inputs": inputs, "memory": memory, "valid_lens": valid_lens, "input_lens": input_lens}


@pytest.fixture(scope="module", params=CELLS)
def exported_decoder(request, tmp_path_factory):
    """Name of the cell, traced model and ONNX file."""
    traced = UncheckedExport(build_recurrent_model(request.param))
    return request.param, traced, traced.write(tmp_path_factory.mktemp("recurrent"))


@pytest.mark.slow
@pytest.mark.parametrize("name", CELLS)
def test_recurrent_decoder_exports_with_named_axes(name, tmp_path):
    bundle = export_model(build_recurrent_model(name), tmp_path / "bundle", sample_inputs=draw_samples())
    assert bundle.report.passed
    shapes, steps = {spec["name"]: spec["shape"] for spec in bundle.manifest["outputs"]}, STEPS[name] or "inputs_length"
    assert shapes["weights"] == ["batch", *([2] if name == "heads" else []), steps, "memory_length"]
    assert shapes["outputs"] == ["batch", steps, build_cell(name).cell.output_size]


def assert_outputs_close(outputs, expected):
    for name, array in expected.items():
        np.testing.assert_allclose(outputs[name], array, rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [(1, 2, 3), (3, 7, 6), (9, 4, 1)])
def test_other_sizes_equal_keras(exported_decoder, sizes):
    name, traced, file = exported_decoder
    batch, steps, memory_length = sizes
    inputs = draw_samples(batch, STEPS[name] or steps, memory_length, seed=1)
    assert_outputs_close(file.run(inputs), traced.compute_expected(inputs))


@pytest.mark.slow
def test_nan_in_padding_does_not_reach_outputs(exported_decoder):
    _, traced, file = exported_decoder
    inputs = draw_samples(seed=2) | {"valid_lens": np.int32([2, 5, 0, 3])}
    is_padding = np.arange(5)[:, None] >= inputs["valid_lens"][:, None, None]
    outputs = file.run(inputs | {"memory": np.where(is_padding, np.float32(np.nan), inputs["memory"])})
    assert_outputs_close(outputs, traced.compute_expected(inputs))


@pytest.mark.slow
def test_recurrence_is_one_loop(exported_decoder):
    assert [node.op_type for node in exported_decoder[2].traced.model.graph.node].count("Loop") == 1
