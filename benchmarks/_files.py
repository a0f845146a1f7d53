"""A Keras model's ways into ONNX files, each as a contestant; and the contestant itself, a file in onnxruntime."""

import contextlib
import io
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from _contestant import Arrays, Build, Contestant, Runner
from onnx import helper

from keras_attn_export import BundleError, ExportError, ParityError, export_model
from keras_attn_export._format.interruptible_session import check_provider, open_session
from keras_attn_export._signature.keras_messages import first_line

SESSION = "_files.session"
THEIRS = "Keras's layer, Keras's exporter"
OURS = "ours"
PORTABLE = 'ours, lowering="portable"'


def session(spec: dict[str, Any]) -> Build:
    """An ONNX file in onnxruntime."""
    check_provider("cpu")  # imports onnxruntime, whose memory is not the model's

    def build(inputs: Arrays) -> Runner:
        session = open_session(Path(spec["options"]["model"]), "cpu", threads=spec["threads"])
        run = _run(session, inputs)
        return Runner(run, run)

    return build


def _run(session: Any, inputs: Arrays) -> Callable[[], list[np.ndarray]]:
    read = {each.name for each in session.get_inputs()}
    return partial(session.run, None, {name: array for name, array in inputs.items() if name in read})


def of_keras(label: str, model: Any, file: Path, *, optional: bool = False) -> Contestant:
    """Write the file that Keras's own exporter writes."""
    import keras

    model(keras.tree.map_structure(_ones, model.input))  # Keras refuses to export a model that was never called
    try:
        model.export(file, format="onnx", verbose=False)
    except Exception as error:
        if not optional:
            raise
        return Contestant(label, SESSION, unavailable=f"{type(error).__name__}: {first_line(error)}")
    return Contestant(label, SESSION, {"model": str(file)}, optional=optional)


def _ones(spec: Any) -> np.ndarray:
    return np.ones([2 if axis is None else axis for axis in spec.shape], spec.dtype)


def of_ours(label: str, model: Any, folder: Path, **arguments: Any) -> Contestant:
    """Write the file of a bundle; where this version cannot, return a contestant that says so."""
    try:
        bundle = export_model(model, folder, progress=False, **arguments)
    except (BundleError, ParityError):
        raise  # a wrong file is no missing one, nor is a folder that is taken
    except ExportError as error:
        return Contestant(label, SESSION, unavailable=str(error))
    return Contestant(label, SESSION, {"model": str(bundle.path / "model.onnx")})


def mended(file: Contestant) -> Contestant:
    """Write `Erfc`, which ONNX does not have and Keras's exporter writes for GELU, as one less `Erf`."""
    if file.unavailable:
        return file
    model = onnx.load(file.options["model"])
    if any(node.op_type == "Erfc" for node in model.graph.node):
        nodes = []
        for node in model.graph.node:
            if node.op_type != "Erfc":
                nodes.append(node)
                continue
            (result,) = node.output
            nodes.append(helper.make_node("Erf", node.input, [f"{result}/erf"], f"{node.name}/erf"))
            nodes.append(helper.make_node("Sub", ["one_of_erfc", f"{result}/erf"], [result], f"{node.name}/sub"))
        del model.graph.node[:]
        model.graph.node.extend(nodes)
        model.graph.initializer.append(helper.make_tensor("one_of_erfc", onnx.TensorProto.FLOAT, [], [1.0]))
        onnx.save(model, file.options["model"])
    return file


def optimized(label: str, file: Contestant, heads: int = 0, width: int = 0, model_type: str = "bert") -> Contestant:
    """What a careful user makes of a file with the optimizer for Transformers that comes with onnxruntime."""

    def write(written: Path) -> None:
        from onnxruntime.transformers import optimizer

        model = optimizer.optimize_model(file.options["model"], model_type, num_heads=heads, hidden_size=width)
        model.save_model_to_file(str(written))

    return _made_of(label, file, write, "optimized")


def slimmed(label: str, file: Contestant) -> Contestant:
    """What onnxslim makes of a file, where it is installed."""

    def write(written: Path) -> None:
        import onnxslim

        with contextlib.redirect_stdout(io.StringIO()):  # a table of operators
            onnxslim.slim(file.options["model"], str(written))

    return _made_of(label, file, write, "slimmed")


def _made_of(label: str, file: Contestant, write: Callable[[Path], None], suffix: str) -> Contestant:
    if file.unavailable:
        return Contestant(label, SESSION, unavailable="there is no such file")
    written = Path(file.options["model"]).with_suffix(f".{suffix}.onnx")
    try:
        write(written)
    except Exception as error:  # noqa: BLE001 - whatever it is, the tables say it
        return Contestant(label, SESSION, unavailable=f"{type(error).__name__}: {first_line(error)}")
    return Contestant(label, SESSION, {"model": str(written)}, optional=True)
