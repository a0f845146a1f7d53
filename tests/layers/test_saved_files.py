"""Saved models: masks and biases as inputs, and files that an earlier version of the package wrote.

Commit c1aed7d wrote `saved/` on TensorFlow: every public layer, a state and both decoders, with inputs and outputs.
Files of a later version need new names: these files never change.
"""

from pathlib import Path

import keras
import numpy as np
import pytest
from layer_contract import save_and_load, to_numpy
from tolerances import assert_close, assert_identical

import keras_attn
from keras_attn import (
    AdditiveAttention,
    DotProductAttention,
    LocationSensitiveAttention,
    MaskedSoftmax,
    MultiHeadAttention,
    masked_softmax,
)

RANDOM = np.random.default_rng(0)
X, SCORES = RANDOM.normal(size=(2, 6, 8)).astype("float32"), RANDOM.normal(size=(2, 3, 6)).astype("float32")
PAIRS, IDS, LENGTHS = RANDOM.random((6, 6)) < 0.7, np.array([[5] * 3 + [2] * 3] * 2, "int32"), np.array([4, 0], "int32")
MODELS = {  # arguments; a function of them
    "window": ([X], lambda x: DotProductAttention()(x, x, x, window=(2, None))),
    "constant mask": ([X], lambda x: DotProductAttention()(x, x, x, attention_mask=PAIRS)),
    "segments": ([X, IDS], lambda x, ids: DotProductAttention()(x, x, x, segment_ids=(ids, ids), use_causal_mask=True)),
    "bias": (
        [X, RANDOM.normal(size=(2, 1, 6, 6)).astype("float32")],
        lambda x, bias: MultiHeadAttention(AdditiveAttention(8, seed=1), 2)(x, x, x, score_bias=bias),
    ),
    "previous weights": (
        [X, np.abs(SCORES[:, 0])],
        lambda x, weights: LocationSensitiveAttention(8, 3, 4, cumulative=True)(x, x, x, previous_weights=weights),
    ),
    "softmax layer": ([SCORES, LENGTHS], lambda scores, lengths: MaskedSoftmax()(scores, lengths)),
    "softmax function": ([SCORES, LENGTHS], lambda scores, lengths: masked_softmax(scores, lengths)),
}


@pytest.mark.parametrize(("arrays", "call"), MODELS.values(), ids=MODELS)
def test_model_with_masks_and_biases_is_saved_and_loaded(arrays, call, tmp_path):
    inputs = [keras.Input((*(None for _ in a.shape[1:-1]), *a.shape[1:][-1:]), dtype=a.dtype.name) for a in arrays]
    model = keras.Model(inputs, call(*inputs))
    expected = to_numpy(model(arrays))
    assert_identical(to_numpy(save_and_load(model, tmp_path)(arrays)), expected)
    changed_arrays = [arrays[0], *(0 * array for array in arrays[1:])]
    assert len(arrays) == 1 or not np.allclose(to_numpy(model(changed_arrays)), expected)


SAVED_FOLDER = Path(__file__).parent / "saved"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["all_layers", "greedy", "beam"])
def test_old_file_returns_its_recorded_outputs(name, tmp_path):
    arrays = dict(np.load(SAVED_FOLDER / "expected.npz"))
    names = ["queries", "keys", "values", "lengths"]
    inputs = [arrays[name] for name in names] if name == "all_layers" else {"ids": arrays["ids"]}
    model = keras.saving.load_model(SAVED_FOLDER / f"{name}.keras")
    for loaded in (model, save_and_load(model, tmp_path)):
        for output, tensor in loaded(inputs).items():
            assert_equal = assert_identical if output in ("tokens", "lengths") else assert_close
            assert_equal(to_numpy(tensor), arrays[f"{name}/{output}"])
        assert len(loaded.operations) == len(model.operations)


def test_old_file_contains_every_public_layer():
    model = keras.saving.load_model(SAVED_FOLDER / "all_layers.keras")
    classes = {type(layer) for layer in model._flatten_layers()} | {type(model.get_layer("heads").process_heads)}
    public_objects = {getattr(keras_attn, name) for name in keras_attn.__all__} - {keras_attn.AttentionPooling}
    assert {value for value in public_objects if isinstance(value, type)} <= classes
