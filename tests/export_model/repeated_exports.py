"""Script: export small models for `test_same_files.py`: `python repeated_exports.py FOLDER [--reversed]`.

The SavedModels are not run, since their outputs are not compared here.
"""

import os
import sys
from pathlib import Path

os.environ |= {"KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3"}

import all_attention_models
import attention_loop_models
import export_models
import keras
import text_models
from keras import layers

from keras_attn import AdditiveAttention, AttentionCell, AttentionRNN
from keras_attn_export import export_model
from keras_attn_export._export import export_model as export
from keras_attn_export._format.cases import load_cases
from keras_attn_export._onnx import external_data


class StubSavedModelRun:
    """Stand-in for `SavedModelRun` that returns the golden outputs of Keras."""

    def begin(self, saved_model, cases, results):
        self._cases = cases

    def outputs(self):
        return [case.outputs for case in load_cases(self._cases)]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


def build_wide_model():
    x = keras.Input((32,), name="x")
    return keras.Model(x, layers.Dense(40)(layers.Dense(33)(x)), name="wide")


def build_decoder():
    x, memory = keras.Input((None, 3), name="x"), keras.Input((None, 5), name="memory")
    valid_lens = keras.Input((), dtype="int32", name="valid_lens")
    cell = AttentionCell(layers.GRUCell(6), AdditiveAttention(4))
    return keras.Model([x, memory, valid_lens], AttentionRNN(cell, return_sequences=True)(x, memory, valid_lens))


EXPORTS = {
    "adaptive": (export_models.build_gelu_norm_dropout_conv, {}),
    "portable": (export_models.build_gelu_norm_dropout_conv, {"lowering": "portable"}),
    "float16": (all_attention_models.build_transformer_block, {"precision": "float16"}),
    "int8": (all_attention_models.build_transformer_block, {"precision": "int8"}),
    "external weights": (build_wide_model, {}),
    "recurrent": (export_models.build_implicit_mask_and_encoders, {}),
    "decoder": (build_decoder, {}),
    "loops": (lambda: attention_loop_models.build_loop_model(attention_loop_models.BufferLoop), {}),
    "lookup": (text_models.build_lookup_model, {}),
    "convolutions": (all_attention_models.build_convolutions, {}),
    "subclassed": (export_models.TwoArguments, {"sample_inputs": export_models.draw_two_argument_samples()}),
}

if __name__ == "__main__":
    export.SavedModelRun = StubSavedModelRun
    max_embedded_bytes = external_data.MAX_EMBEDDED_WEIGHT_BYTES
    folder, is_reversed = Path(sys.argv[1]), sys.argv[2:] == ["--reversed"]
    for name in sorted(EXPORTS, reverse=is_reversed):
        keras.backend.clear_session()  # or names of layers depend on earlier exports
        keras.utils.set_random_seed(1)
        build, options = EXPORTS[name]
        external_data.MAX_EMBEDDED_WEIGHT_BYTES = 0 if name == "external weights" else max_embedded_bytes
        export_model(build(), folder / name, progress=False, **options)
