"""Export models on the backend of KERAS_BACKEND: `python other_backend_worker.py WHAT FOLDER`.

A process has one backend, so the tests of other backends start this one. What came of it is in FOLDER/found.json.
"""

import json
import logging.handlers
import os
import sys
import time
import warnings
from pathlib import Path

import keras
import numpy as np
import other_backend_models as models
import shifted_models
from export_models import dict_inputs_and_outputs

from keras_attn_export import ExportError, export_model
from keras_attn_export._format.cases import load_cases
from keras_attn_export._format.names import CASES
from keras_attn_export._options import Options
from keras_attn_export._rounding.reference import build_reference

FOLDER = Path(sys.argv[2])
SEED = 20141  # as in conftest.py


@keras.saving.register_keras_serializable("tests")
class InTheScript(keras.layers.Layer):
    """A layer that no other process can import."""

    def call(self, x):
        return x


def error_of(model):
    place = FOLDER / "failed"
    place.mkdir(exist_ok=True)
    try:
        export_model(model, place / "bundle")
    except ExportError as error:
        report = getattr(error, "report", None)
        return {
            "class": type(error).__name__,
            "message": str(error),
            "failed": {
                part: sum(not row.passed for row in getattr(report, part))
                for part in ("rows", "saved_model_rows")
                if report
            },
            "left": sorted(os.listdir(place)),
        }
    return None


def keep(name, inputs, outputs):
    np.savez(FOLDER / f"{name}_inputs.npz", **inputs)
    outputs = {name: keras.ops.convert_to_numpy(each) for name, each in outputs.items()}
    np.savez(FOLDER / f"{name}_outputs.npz", **outputs)


def everything():
    """Export a trained model, a subclass with options, one in half precision, and all that must fail."""
    model, inputs = models.build_trained_model(), models.draw_trained_model_inputs()
    logger, handler = logging.getLogger("keras_attn_export"), logging.handlers.BufferingHandler(1000)
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    bundle = export_model(model, FOLDER / "trained")
    logger.setLevel(logging.NOTSET)
    keep("trained", inputs, model(list(inputs.values()), training=False))
    golden_is_ours = []
    for _, arrays, expected, _ in load_cases(bundle.path / CASES):
        again = model([arrays[name] for name in inputs], training=False)
        golden_is_ours += [
            bool(np.array_equal(keras.ops.convert_to_numpy(again[name]), array)) for name, array in expected.items()
        ]

    subclass, samples = models.build_scaled_model()
    export_model(subclass, FOLDER / "subclass", sample_inputs=samples, lowering="portable", precision="float16")
    flat = {"queries": samples["queries"], **{f"memory_{name}": each for name, each in samples["memory"].items()}}
    keep("subclass", flat, subclass(samples["queries"], memory=samples["memory"], training=False))

    keras.config.set_dtype_policy("mixed_float16")
    half = dict_inputs_and_outputs()
    keras.config.set_dtype_policy("float32")
    export_model(half, FOLDER / "half")
    export_model(
        models.build_while_loop_model(), FOLDER / "looping", sample_inputs={"x": np.ones((2, 6, 5), "float32")}
    )

    return {
        "golden is ours": golden_is_ours,
        "logged": [record.getMessage() for record in handler.buffer],
        "without a size": error_of(models.build_while_loop_model()),
        "in the script": error_of(models.build_layer_model(InTheScript())),
        "not on TensorFlow": error_of(models.build_layer_model(models.OtherBackendOnly())),
        "fatal": error_of(models.build_layer_model(models.Fatal())),
        "changed": changed_by_export(models.build_augmentation_model()),
        "shifted": shifted("dense"),
    }


def changed_by_export(model):
    """Return the variables that an export changes."""
    before = [keras.ops.convert_to_numpy(variable).copy() for variable in model.variables]
    export_model(model, FOLDER / "augmented")
    now = map(keras.ops.convert_to_numpy, model.variables)
    pairs = zip(model.variables, before, now, strict=True)
    return [variable.path for variable, old, new in pairs if not np.array_equal(old, new)]


def shifted(source):
    """Return what comes of a difference of three limits between this backend and TensorFlow."""
    _, reference = build_reference(shifted_models.build_shifted_model(source, 0.0, 3), Options(), lambda _: None)
    limit = max(float(case.rounding["y"].max()) for case in reference.golden.cases)
    return error_of(shifted_models.build_shifted_model(source, 3 * limit, 3))


def hang():
    """Export until TensorFlow is loaded in the other process, and wait there."""

    def step(name):
        if name.startswith("Loading TensorFlow"):
            (FOLDER / "hangs").touch()
            time.sleep(600)

    (FOLDER / "stopped").mkdir()
    model = models.build_layer_model(keras.layers.Dense(models.U))
    export_model(model, FOLDER / "stopped" / "bundle", progress=step)


keras.utils.set_random_seed(SEED)
warnings.simplefilter("ignore")  # Keras warns of a softmax over one key, JAX of integers it has 32 bits for
if sys.argv[1] == "hang":
    hang()
else:
    (FOLDER / "found.json").write_text(json.dumps(everything(), indent=1))
