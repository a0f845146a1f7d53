"""Cells with attention in files: quantized, and with LoRA."""

import keras
import numpy as np
import pytest
from contract_cases import randomise
from keras import layers
from recurrent_cases import UNITS, Dm, Dx, arrays, inputs_of
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
    for dense in (cell.attention.W_q, cell.attention.W_k, cell.W_c):
        dense.enable_lora(2)
        dense.lora_kernel_b.assign(np.ones(dense.lora_kernel_b.shape))


@pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize` method:UserWarning")  # Keras, of its InputLayer
@pytest.mark.parametrize("change", [quantized, with_lora])
def test_what_kernels_became_is_saved(change, tmp_path):
    model = a_model(attention_size=8)
    before = arrays(model(inputs_of()))
    change(model)
    expected = arrays(model(inputs_of()))
    assert np.any(expected != before)
    for trip in range(2):
        model.save(tmp_path / f"{trip}.keras")
        model = keras.saving.load_model(tmp_path / f"{trip}.keras")
        assert_identical(arrays(model(inputs_of())), expected)
    if change is quantized:
        assert model.get_layer("decode").cell.W_c.quantization_mode == "int8"
