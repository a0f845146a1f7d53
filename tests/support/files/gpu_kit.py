"""Script: write bundles for scripts/replay_bundles.py: `scripts/write-bundles FOLDER [LAYER-FORM...]`.

The form `cpu` is that of an export for CPUs, all others are those of an export for CUDA; all are verified on the CPU.
Timed models have two more forms: `large`, and the ONNX file that Keras's own exporter writes for Keras's own layers.
Without names every layer is written in every form.
"""

import contextlib
import shutil
import sys
from pathlib import Path
from unittest.mock import patch

import decoding
import keras
import numpy as np
from _files import THEIRS, write_keras_file
from _models import KerasMultiHead, add_feed_forward, build_ours, build_theirs
from _plans import Plan
from fast_exports import WorkerRun
from layer_contract import CASES, VARIANTS

from keras_attn import DotProductAttention, MultiHeadAttention
from keras_attn.decoding import greedy
from keras_attn_export import export_model
from keras_attn_export._export import export_model as export
from keras_attn_export._lowerings.forms import adaptive_gpu
from keras_attn_export._options import Options

FORMS = {  # lowering, precision, provider
    "portable": ("portable", "float32", "cuda"),
    "portable_float16": ("portable", "float16", "cuda"),
    "fused": ("fused", "float32", "cuda"),
    "adaptive": ("adaptive", "float32", "cuda"),
    "cpu": ("adaptive", "float32", "cpu"),
}
LARGE = "large"  # the form of `adaptive` for large sizes, at all sizes
KERAS = "keras"  # the file of Keras's own exporter
LAYERS = {case.name: (case.make, case.Dq, case.Dk) for case in (*CASES, *VARIANTS)} | {
    "heads": (lambda: MultiHeadAttention(DotProductAttention(), 4, 8, num_kv_heads=2), 6, 7),
}
TIMED = {
    "timed_additive": Plan("additive", 256),
    "timed_wide_additive": Plan("additive", 512),
    "timed_dot": Plan("dot", 64),
    "timed_weights": Plan("dot", 64, returns_weights=True),
    "timed_causal": Plan("dot", 64, length_kind="", causal=True),
    "timed_heads": Plan("multi-head", 512, 8),
    "timed_causal_heads": Plan("multi-head", 512, 8, length_kind="", causal=True),
    "timed_transformer": Plan("block", 512, 8),
    "timed_answer": None,
}
DECODER_FORMS = {"portable", "adaptive"}  # the decoder is compared with a loop in Python
TRANSFORMER_BLOCKS = 4


def build_model(name):
    """Build a timed model, or a layer in three calls: padding, causal mask, padding and attention mask with weights."""
    keras.utils.set_random_seed(0)
    if name == "timed_answer":
        encoder, step, state = decoding._build_translator()
        return greedy(encoder, step, state, start=decoding.START, end=None, max_length=decoding.LONG_STEPS)
    if name in TIMED:
        return round_weights(build_transformer(TIMED[name]) if name == "timed_transformer" else build_ours(TIMED[name]))
    make, *sizes = LAYERS[name]
    layer, sequences = make(), [keras.Input((None, size)) for size in (*sizes, sizes[1])]
    lengths, mask = keras.Input((), dtype="int32"), keras.Input((None, None), dtype="bool")
    padded, causal = layer(*sequences, lengths), layer(*sequences, use_causal_mask=True)
    masked = layer(*sequences, lengths, attention_mask=mask, return_attention_scores=True)
    return keras.Model([*sequences, lengths, mask], [padded, causal, *masked])


def build_transformer(plan, build_attention=lambda plan: MultiHeadAttention(DotProductAttention(), plan.H)):
    """Build an encoder of a Transformer."""
    keras.utils.set_random_seed(0)
    x = start = keras.Input((None, plan.D), name="inputs")
    lengths = keras.Input((), dtype="int32", name="valid_lens")
    for _ in range(TRANSFORMER_BLOCKS):
        x = add_feed_forward(x, build_attention(plan)(x, x, x, lengths))
    return keras.Model([start, lengths], x)


def round_weights(model):
    """Round the weights to multiples of 1/128, so that the files can be compressed."""
    for variable in model.variables:
        if variable.shape != ():
            variable.assign(np.round(variable * 128) / 128)
    return model


def build_keras_model(name):
    """Build the timed model from Keras's own layers, with equal weights."""
    plan = TIMED[name]
    if name != "timed_transformer":
        return round_weights(build_theirs(plan))
    model = build_transformer(plan, lambda plan: KerasMultiHead(plan.H))
    arrays = [array for array in build_transformer(plan).get_weights() if array.shape != ()]
    for variable, array in zip(model.weights, arrays, strict=True):
        variable.assign(array.reshape(variable.shape))
    return round_weights(model)


def write_form(folder, name):
    """Write the bundle `LAYER-FORM`, and return a status."""
    layer, _, form = name.rpartition("-")
    if form == KERAS:
        (folder / name).mkdir(parents=True)
        write_keras_file(THEIRS, build_keras_model(layer), folder / name / "model.onnx")
        return "written"
    lowering, precision, provider = FORMS["adaptive" if form == LARGE else form]
    options = {"lowering": lowering, "precision": precision, "progress": False}
    if layer == "timed_answer":  # the exporter cannot infer that the mask of a GRU comes from lengths
        options["sample_inputs"] = {"valid_lens": np.array([2, 5, 3], "int32")}
    with contextlib.ExitStack() as patches:
        patches.enter_context(patch.object(Options, "attention_target", Options(provider=provider).attention_target))
        if form == LARGE:
            patches.enter_context(patch.object(adaptive_gpu, "UNBLOCKED_LIMITS", adaptive_gpu.ALWAYS_BLOCKED))
        bundle = export_model(build_model(layer), folder / name, **options)
    if any(lowering in entry["lowering"] for entry in bundle.manifest["layers"]):
        return "written"
    shutil.rmtree(bundle.path)
    return "has no such form"


def list_all_names():
    names = (f"{layer}-{form}" for layer in (*LAYERS, *TIMED) for form in FORMS)
    yield from (name for name in names if "answer" not in name or name.rpartition("-")[2] in DECODER_FORMS)
    yield from (f"{layer}-{form}" for layer, plan in TIMED.items() if plan for form in (LARGE, KERAS))


if __name__ == "__main__":
    export.SavedModelRun = WorkerRun  # one process for all SavedModels, which are not tested
    folder, *names = Path(sys.argv[1]), *sys.argv[2:]
    for name in names or list_all_names():
        print(name, "exists" if (folder / name).exists() else write_form(folder, name), flush=True)
