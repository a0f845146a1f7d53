"""Script: export models on the backend of KERAS_BACKEND: `python other_backend_worker.py hang|export_all FOLDER`.

A process has one backend, so tests of JAX and torch start this script. It writes its results to FOLDER/results.json.
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
from export_models import build_dict_inputs_and_outputs

from keras_attn_export import ExportError, export_model
from keras_attn_export._format.cases import load_cases
from keras_attn_export._format.names import CASES_FILE
from keras_attn_export._options import Options
from keras_attn_export._rounding.reference import build_reference

FOLDER = Path(sys.argv[2])
SEED = 20141  # as in conftest.py


@keras.saving.register_keras_serializable("tests")
class ScriptLayer(keras.layers.Layer):
    """Layer of a script, which no other process can import."""

    def call(self, x):
        return x


def describe_export_error(model):
    """Return class, message, numbers of failed rows and remaining files of a failed export, or None."""
    folder = FOLDER / "failed"
    folder.mkdir(exist_ok=True)
    try:
        export_model(model, folder / "bundle")
    except ExportError as error:
        report = getattr(error, "report", None)
        return {
            "class": type(error).__name__,
            "message": str(error),
            "num_failed_rows": {
                part: sum(not row.passed for row in getattr(report, part))
                for part in ("rows", "saved_model_rows")
                if report
            },
            "files": sorted(os.listdir(folder)),
        }
    return None


def save_arrays(name, inputs, outputs):
    np.savez(FOLDER / f"{name}_inputs.npz", **inputs)
    outputs = {name: keras.ops.convert_to_numpy(output) for name, output in outputs.items()}
    np.savez(FOLDER / f"{name}_outputs.npz", **outputs)


def export_all_models():
    """Export models that must succeed and models that must fail; return the results."""
    model, inputs = models.build_trained_model(), models.draw_trained_model_inputs()
    logger, handler = logging.getLogger("keras_attn_export"), logging.handlers.BufferingHandler(1000)
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    bundle = export_model(model, FOLDER / "trained")
    logger.setLevel(logging.NOTSET)
    save_arrays("trained", inputs, model(list(inputs.values()), training=False))
    equal_outputs = []
    for _, arrays, expected, _ in load_cases(bundle.path / CASES_FILE):
        outputs = model([arrays[name] for name in inputs], training=False)
        equal_outputs += [
            bool(np.array_equal(keras.ops.convert_to_numpy(outputs[name]), array)) for name, array in expected.items()
        ]

    subclass, samples = models.build_halving_model()
    export_model(subclass, FOLDER / "subclass", sample_inputs=samples, lowering="portable", precision="float16")
    arrays = {"queries": samples["queries"], **{f"memory_{name}": array for name, array in samples["memory"].items()}}
    save_arrays("subclass", arrays, subclass(samples["queries"], memory=samples["memory"], training=False))

    keras.config.set_dtype_policy("mixed_float16")
    float16_model = build_dict_inputs_and_outputs()
    keras.config.set_dtype_policy("float32")
    export_model(float16_model, FOLDER / "half")
    loop_model, samples = models.build_while_loop_model(), {"x": np.ones((2, 6, 5), "float32")}
    export_model(loop_model, FOLDER / "looping", sample_inputs=samples)

    return {
        "golden outputs equal": equal_outputs,
        "logged": [record.getMessage() for record in handler.buffer],
        "without a size": describe_export_error(models.build_while_loop_model()),
        "in the script": describe_export_error(models.build_layer_model(ScriptLayer())),
        "not on TensorFlow": describe_export_error(models.build_layer_model(models.OtherBackendOnly())),
        "fatal": describe_export_error(models.build_layer_model(models.Fatal())),
        "changed": find_changed_variables(models.build_augmentation_model()),
        "shifted": export_shifted_model("dense"),
    }


def find_changed_variables(model):
    """Export a model, and return the paths of the variables that the export changes."""
    before = [keras.ops.convert_to_numpy(variable).copy() for variable in model.variables]
    export_model(model, FOLDER / "augmented")
    after = map(keras.ops.convert_to_numpy, model.variables)
    pairs = zip(model.variables, before, after, strict=True)
    return [variable.path for variable, old_value, new_value in pairs if not np.array_equal(old_value, new_value)]


def export_shifted_model(source):
    """Return the error of an export of a model whose backends differ by three times the rounding limit."""
    _, reference = build_reference(shifted_models.build_shifted_model(source, 0.0, 3), Options(), lambda _: None)
    limit = max(float(case.rounding_limits["y"].max()) for case in reference.golden_cases.cases)
    return describe_export_error(shifted_models.build_shifted_model(source, 3 * limit, 3))


def hang():
    """Start an export, and wait as soon as its TensorFlow process begins to load TensorFlow."""

    def wait_at(step):
        if step.startswith("Loading TensorFlow"):
            (FOLDER / "hangs").touch()
            time.sleep(600)

    (FOLDER / "stopped").mkdir()
    model = models.build_layer_model(keras.layers.Dense(models.U))
    export_model(model, FOLDER / "stopped" / "bundle", progress=wait_at)


keras.utils.set_random_seed(SEED)
# Keras warns of a softmax over one key, and JAX of 64-bit integers that it computes with 32 bits.
warnings.simplefilter("ignore")
if sys.argv[1] == "hang":
    hang()
else:
    (FOLDER / "results.json").write_text(json.dumps(export_all_models(), indent=1))
