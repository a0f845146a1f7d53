"""Writes bundles for scripts/replay_bundles.py: `python tests/support/write_bundles.py FOLDER [LAYER-FORM...]`.

A form is as an export on a machine with CUDA or, `cpu`, one without it writes it; each is proven on the CPU. Where no
names are given every layer has every form. PYTHONPATH=tests must be set.
"""

import shutil
import sys
from pathlib import Path
from unittest.mock import patch

import keras
from cheap_exports import WorkerRun
from contract_cases import CASES, VARIANTS

from keras_attn import AdditiveAttention, DotProductAttention, MultiHeadAttention
from keras_attn_export import export_model
from keras_attn_export._export import export
from keras_attn_export._lowerings import lower

FORMS = {  # lowering, precision, provider
    "portable": ("portable", "float32", "cuda"),
    "portable_float16": ("portable", "float16", "cuda"),
    "fused": ("fused", "float32", "cuda"),
    "adaptive": ("adaptive", "float32", "cuda"),
    "cpu": ("adaptive", "float32", "cpu"),
}
LAYERS = {case.name: (case.make, case.Dq, case.Dk) for case in (*CASES, *VARIANTS)} | {
    "heads": (lambda: MultiHeadAttention(DotProductAttention(), 4, 8, num_kv_heads=2), 6, 7),
    "timed_additive": (lambda: AdditiveAttention(256, query_block_size=None), 128, 128),
    "timed_dot": (DotProductAttention, 64, 64),
    "timed_heads": (lambda: MultiHeadAttention(DotProductAttention(), 8, 64), 512, 512),
}


def model_of(name):
    """One layer with padding and, unless it is to be timed, causal and with a mask of pairs and its weights too."""
    make, *sizes = LAYERS[name]
    layer, sequences = make(), [keras.Input((None, size)) for size in (*sizes, sizes[1])]
    lengths, mask = keras.Input((), dtype="int32"), keras.Input((None, None), dtype="bool")
    padded, causal = layer(*sequences, lengths), layer(*sequences, use_causal_mask=True)
    if name.startswith("timed"):
        return keras.Model([*sequences, lengths], padded)
    masked = layer(*sequences, lengths, attention_mask=mask, return_attention_scores=True)
    return keras.Model([*sequences, lengths, mask], [padded, causal, *masked])


def write(folder, name):
    (layer, _, form), lowered = name.rpartition("-"), lower._lowered
    lowering, precision, provider = FORMS[form]
    options = {"lowering": lowering, "precision": precision, "progress": False}
    with patch.object(lower, "_lowered", lambda *given: lowered(*given[:3], provider)):
        bundle = export_model(model_of(layer), folder / name, **options)
    if any(lowering in each["lowering"] for each in bundle.manifest["layers"]):
        return "written"
    shutil.rmtree(bundle.path)
    return "has no such form"


if __name__ == "__main__":
    export.SavedModelRun = WorkerRun  # one process for all SavedModels, which are no matter here
    folder, *names = Path(sys.argv[1]), *sys.argv[2:]
    for name in names or [f"{layer}-{form}" for layer in LAYERS for form in FORMS]:
        print(name, "is there" if (folder / name).exists() else write(folder, name), flush=True)
