"""Models that were saved by an earlier layout of the package load, and give what they gave.

`saved/` was written by the commit c1aed7d on TensorFlow: every public layer, a state and both decoders, with inputs and
outputs. With newer files there goes a newer name: these stay as they are.
"""

from pathlib import Path

import keras
import numpy as np
import pytest
from contract_cases import as_numpy
from tolerances import assert_close, assert_identical

import keras_attn

SAVED = Path(__file__).parent / "saved"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["all_layers", "greedy", "beam"])
def test_a_file_gives_what_it_gave(name, tmp_path):
    arrays = dict(np.load(SAVED / "expected.npz"))
    names = ["queries", "keys", "values", "lengths"]
    inputs = [arrays[name] for name in names] if name == "all_layers" else {"ids": arrays["ids"]}
    model = keras.saving.load_model(SAVED / f"{name}.keras")
    model.save(tmp_path / "again.keras")
    for loaded in (model, keras.saving.load_model(tmp_path / "again.keras")):
        for output, tensor in loaded(inputs).items():
            alike = assert_identical if output in ("tokens", "lengths") else assert_close
            alike(as_numpy(tensor), arrays[f"{name}/{output}"])
        assert len(loaded.operations) == len(model.operations)


def test_every_layer_is_in_it():
    model = keras.saving.load_model(SAVED / "all_layers.keras")
    seen = {type(layer) for layer in model._flatten_layers()} | {type(model.get_layer("heads").process_heads)}
    public = {getattr(keras_attn, name) for name in keras_attn.__all__}
    layers = {each for each in public if isinstance(each, type) and each is not keras_attn.AttentionPooling}
    assert layers - seen == set()
