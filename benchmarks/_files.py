"""Contestants that run an ONNX file in onnxruntime, and the exporters and optimizers that write such files."""

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
from keras_attn_export._signature.keras_messages import shorten_message

SESSION = "_files.build_session"
THEIRS = "Keras's layer, Keras's exporter"
OURS = "ours"
PORTABLE = 'ours, lowering="portable"'


def build_session(spec: dict[str, Any]) -> Build:
    """Open an ONNX file in onnxruntime."""
    check_provider("cpu")  # imports onnxruntime before the memory of the model is measured

    def build(inputs: Arrays) -> Runner:
        session = open_session(Path(spec["options"]["model"]), "cpu", threads=spec["threads"])
        run = _make_run(session, inputs)
        return Runner(run, run)

    return build


def _make_run(session: Any, inputs: Arrays) -> Callable[[], list[np.ndarray]]:
    names = {port.name for port in session.get_inputs()}
    return partial(session.run, None, {name: array for name, array in inputs.items() if name in names})


def write_keras_file(label: str, model: Any, file: Path, *, optional: bool = False) -> Contestant:
    """Write a file with Keras's own exporter."""
    import keras

    model(keras.tree.map_structure(_make_ones, model.input))  # Keras refuses to export a model that was never called
    try:
        model.export(file, format="onnx", verbose=False)
    except Exception as error:
        if not optional:
            raise
        return Contestant(label, SESSION, unavailable=f"{type(error).__name__}: {shorten_message(error)}")
    return Contestant(label, SESSION, {"model": str(file)}, optional=optional)


def _make_ones(spec: Any) -> np.ndarray:
    return np.ones([2 if axis is None else axis for axis in spec.shape], spec.dtype)


def write_bundle(label: str, model: Any, folder: Path, **arguments: Any) -> Contestant:
    """Write a bundle; if the model is unsupported, return a contestant with the reason."""
    try:
        bundle = export_model(model, folder, progress=False, **arguments)
    except (BundleError, ParityError):
        raise  # a wrong file, or a folder that exists, is an error of the benchmark
    except ExportError as error:
        return Contestant(label, SESSION, unavailable=str(error))
    return Contestant(label, SESSION, {"model": str(bundle.path / "model.onnx")})


def replace_erfc(file: Contestant) -> Contestant:
    """Replace `Erfc`, which Keras's exporter writes for GELU but ONNX lacks, by `1 - Erf`."""
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


def optimize_file(label: str, file: Contestant, heads: int = 0, width: int = 0, model_type: str = "bert") -> Contestant:
    """Optimize a file with onnxruntime's optimizer for Transformers."""

    def write(path: Path) -> None:
        from onnxruntime.transformers import optimizer

        model = optimizer.optimize_model(file.options["model"], model_type, num_heads=heads, hidden_size=width)
        model.save_model_to_file(str(path))

    return _derive_file(label, file, write, "optimized")


def slim_file(label: str, file: Contestant) -> Contestant:
    """Optimize a file with onnxslim, if installed."""

    def write(path: Path) -> None:
        import onnxslim

        with contextlib.redirect_stdout(io.StringIO()):  # onnxslim prints a table of operators
            onnxslim.slim(file.options["model"], str(path))

    return _derive_file(label, file, write, "slimmed")


def _derive_file(label: str, file: Contestant, write: Callable[[Path], None], suffix: str) -> Contestant:
    if file.unavailable:
        return Contestant(label, SESSION, unavailable="the exporter wrote no file")
    path = Path(file.options["model"]).with_suffix(f".{suffix}.onnx")
    try:
        write(path)
    except Exception as error:  # noqa: BLE001 - the tables list the error of an optimizer
        return Contestant(label, SESSION, unavailable=f"{type(error).__name__}: {shorten_message(error)}")
    return Contestant(label, SESSION, {"model": str(path)}, optional=True)
