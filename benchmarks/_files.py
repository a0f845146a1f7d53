"""A Keras model's ways into ONNX files, each as a contestant; and the contestant itself, a file in onnxruntime."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from _contestant import Arrays, Build, Contestant, Runner

from keras_attn_export import ExportError, ParityError, export_model
from keras_attn_export._standalone import verify

SESSION = "_files.session"
THEIRS = "Keras's layer, Keras's exporter"
STOCK = "our layer, Keras's exporter"
OURS = "ours"
PORTABLE = 'ours, lowering="portable"'


def session(spec: dict[str, Any]) -> Build:
    """An ONNX file in onnxruntime."""
    verify.check_provider("cpu")  # imports onnxruntime, whose memory is not the model's

    def build(inputs: Arrays) -> Runner:
        session = verify.open_session(Path(spec["options"]["model"]), "cpu", threads=spec["threads"])
        read = {each.name for each in session.get_inputs()}
        run = partial(session.run, None, {name: array for name, array in inputs.items() if name in read})
        return Runner(run, run)

    return build


def of_keras(label: str, model: Any, file: Path, *, optional: bool = False) -> Contestant:
    """Write the file that Keras's own exporter writes."""
    import keras

    model(keras.tree.map_structure(_ones, model.input))  # Keras refuses to export a model that was never called
    model.export(file, format="onnx", verbose=False)
    return Contestant(label, SESSION, {"model": str(file)}, optional=optional)


def _ones(spec: Any) -> np.ndarray:
    return np.ones([2 if axis is None else axis for axis in spec.shape], spec.dtype)


def of_ours(label: str, model: Any, folder: Path, **arguments: Any) -> Contestant:
    """Write the file of a bundle; where this version cannot, return a contestant that says so."""
    try:
        bundle = export_model(model, folder, progress=False, **arguments)
    except ParityError:
        raise  # a wrong file is no missing one
    except ExportError as error:
        return Contestant(label, SESSION, unavailable=str(error))
    return Contestant(label, SESSION, {"model": str(bundle.path / "model.onnx")})


def optimized(label: str, file: Contestant, heads: int, width: int) -> Contestant:
    """What a careful user makes of a file with the optimizer for Transformers that comes with onnxruntime."""
    from onnxruntime.transformers import optimizer

    written = Path(file.options["model"]).with_suffix(".optimized.onnx")
    try:
        model = optimizer.optimize_model(file.options["model"], "bert", num_heads=heads, hidden_size=width)
        model.save_model_to_file(str(written))
    except Exception as error:  # noqa: BLE001 - whatever it is, the tables say it
        return Contestant(label, SESSION, unavailable=f"{type(error).__name__}: {error}")
    return Contestant(label, SESSION, {"model": str(written)}, optional=True)
