"""Cells with attention in files: quantized, with LoRA, and read by a process that imports no more than it must."""

import subprocess
import sys

import keras
import numpy as np
import pytest
from contract_cases import randomise
from keras import layers
from recurrent_cases import CELLS, UNITS, Dm, Dx, arrays, functional, inputs_of, model_inputs
from tolerances import assert_identical

from keras_attn import AdditiveAttention
from keras_attn._attention_cell import AttentionCell
from keras_attn._attention_rnn import AttentionRNN


def a_model(**options):
    cell = AttentionCell(layers.GRUCell(UNITS), AdditiveAttention(8), when="after", **options)
    x, m = keras.Input((None, Dx)), keras.Input((None, Dm))
    model = keras.Model([x, m], AttentionRNN(cell, name="decode")(x, m))
    randomise(model)
    return model


def quantized(model):
    model.quantize("int8")


def with_lora(model):
    cell = model.get_layer("decode").cell
    for dense in (cell.attention.W_q, cell.attention.W_k, *([] if cell.W_c is None else [cell.W_c])):
        dense.enable_lora(2)
        dense.lora_kernel_b.assign(np.ones(dense.lora_kernel_b.shape))


@pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize` method:UserWarning")  # Keras, of its InputLayer
@pytest.mark.parametrize("change", [quantized, with_lora])
@pytest.mark.parametrize("size", [None, 8])
def test_what_kernels_became_is_saved(change, size, tmp_path):
    model = a_model(attention_size=size)
    before = arrays(model(inputs_of()))
    change(model)
    expected = arrays(model(inputs_of()))
    assert np.any(expected != before)
    for trip in range(2):
        model.save(tmp_path / f"{trip}.keras")
        model = keras.saving.load_model(tmp_path / f"{trip}.keras")
        assert_identical(arrays(model(inputs_of())), expected)
    if change is quantized and size:
        assert model.get_layer("decode").cell.W_c.quantization_mode == "int8"


@pytest.mark.out_of_turn
def test_a_fresh_process_that_imports_only_keras_and_keras_attn(tmp_path):
    for name in CELLS:
        model = functional(name)
        randomise(model.get_layer("decode"))
        model.save(tmp_path / f"{name}.keras")
        results = {key: arrays(tensor) for key, tensor in model(model_inputs()).items()}
        np.savez(tmp_path / f"{name}.npz", *model_inputs(), **results)
    script = f"""
import keras, keras_attn
import numpy as np
for name in {[*CELLS]!r}:
    model = keras.saving.load_model(name + ".keras")
    data = np.load(name + ".npz")
    result = model([data[f"arr_{{i}}"] for i in range(4)])
    for output in ("outputs", "weights"):
        assert np.array_equal(keras.ops.convert_to_numpy(result[output]), data[output]), (name, output)
    print(name)
"""
    run = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.split() == [*CELLS]
