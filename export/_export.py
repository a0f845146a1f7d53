"""The export, step by step: model, signature, golden cases, SavedModel, ONNX, parity, bundle."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import _verify
from ._bundle import REPORT, SAVED_MODEL, Bundle, load_bundle, seal
from ._errors import UnsupportedModelError
from ._options import PORTABLE, Options, check_options, lowest_onnxruntime
from ._parity import ParityReport, ParityRow, checked_tolerance, compared
from ._progress import Progress, shown_progress
from ._staging import staged_folder

if TYPE_CHECKING:
    import keras

    from ._attention import Traced
    from ._cases import Cases
    from ._signature import Signature


def export_model(
    model: keras.Model | str | Path,
    path: str | Path,
    *,
    sample_inputs: Mapping[str, Any] | None = None,
    opset: int | None = None,
    lowering: str = "portable",
    precision: str = "float32",
    provider: str = "cpu",
    tolerance: float | tuple[float, float] | None = None,
    overwrite: bool = False,
    progress: bool | Progress | None = None,
    safe_mode: bool = True,
) -> Bundle:
    """Export a Keras model to a bundle that is proven equal to it, or write nothing and say why.

    The SavedModel is run in a fresh process without Keras, the ONNX file in onnxruntime, and both are compared with
    what Keras gives, over several batch sizes and lengths.

    Args:
        model: A Keras model of any kind, or the path of a `.keras` file.
        path: The folder to write.
        sample_inputs: Arrays by input name; for a subclassed model by the argument names of its `call`, which are
            required. `None` draws inputs from what they feed.
        opset: ONNX opset, 18 to 24; `None` for the lowest that will do, which is 24 for `"fused"`, else 18.
        lowering: How the attention layers of `keras_attn` are written: `"portable"`, plain ONNX ops; `"fused"`, the
            ONNX op `Attention` for scaled dot products; `"ragged"`, over the keys that take part, in blocks; or
            `"auto"`, for each layer the fastest on `sample_inputs` with this provider. A layer that a lowering has no
            form for is written in plain ops; the manifest says how each is.
        precision: `"float32"`; `"float16"`, with softmax, statistics and whatever else needs it in float32; or
            `"int8"`, matrix products with int8 weights. Inputs and outputs keep their types. The float32 file is
            proven first, then the converted one, against the same outputs of Keras.
        provider: Where parity is checked, and where `"auto"` measures: `"cpu"` or `"cuda"`.
        tolerance: Largest relative difference, or (relative, absolute); `None` for (1e-5, 1e-6), in float16
            (1e-2, 1e-3), in int8 (1e-1, 1e-2). An output passes that is within either. Relative differences are
            against the largest magnitude of the output in that case.
        overwrite: Replace a bundle that is there; otherwise one that is there is an error.
        safe_mode: Whether a `.keras` file may hold no code; see `keras.saving.load_model`.
        progress: `None` shows steps on a terminal, `False` never; or a function that is called with each step's name.

    Returns:
        The bundle, loaded from disk.

    Raises:
        UnsupportedModelError: The model or an op in it cannot be exported.
        InputError: Samples do not fit or are needed.
        ParityError: An output differs.
        ProviderError: The provider is absent.
        BundleError: The place cannot be written, or a bundle is there.
        ExportError: An argument is wrong.
    """
    check_options(opset, lowering, precision, provider)
    tolerances = checked_tolerance(tolerance, precision)
    _check_model(model)
    target = Path(path)
    with shown_progress(progress) as step:
        step("Checking onnxruntime and the place to write")
        _verify.check_provider(provider)
        with staged_folder(target, overwrite=overwrite) as folder:
            step("Loading TensorFlow and Keras")
            options = Options(opset, lowering, precision, provider, tolerances)
            _write_bundle(folder, _load(model, safe_mode), sample_inputs, options, step)
            step("Putting the bundle in place")
        return load_bundle(target)


def _check_model(model: object) -> None:
    """Refuse what is no model without loading TensorFlow."""
    if isinstance(model, str | Path):
        file = Path(model)
        if not file.is_file():
            raise UnsupportedModelError(f"There is no model file at {file}.")
        if file.suffix != ".keras":
            raise UnsupportedModelError(f"{file} is not a `.keras` file. Save the model with `model.save('x.keras')`.")
    elif "keras" not in sys.modules or not isinstance(model, sys.modules["keras"].Model):
        received = type(model).__name__
        raise UnsupportedModelError(
            f"`model` must be a keras.Model or the path of a `.keras` file. Received: {received}."
        )


def _load(model: keras.Model | str | Path, safe_mode: bool) -> keras.Model:
    import keras

    import keras_attn  # noqa: F401 - registers the layers, so that files which hold them load

    from ._signature import first_line

    if isinstance(model, keras.Model):
        return model
    try:
        return keras.saving.load_model(model, compile=False, safe_mode=safe_mode)
    except Exception as error:
        # whatever is wrong with a stranger's file: zip, JSON, HDF5, an unknown or unsafe layer
        raise UnsupportedModelError(f"Keras cannot load {model}: {first_line(error)}") from error


def _write_bundle(
    folder: Path, model: keras.Model, samples: Mapping[str, Any] | None, options: Options, step: Progress
) -> None:
    from . import _attention, _cases, _float32, _onnx_file, _saved_model, _signature

    given = model = _signature.with_input(model, samples)
    if _float32.half_policies(given):
        step("Cloning the model to float32")
        model = _float32.float32_clone(given, samples)
    step("Running Keras on the golden cases")
    signature = _signature.model_signature(model, samples)
    golden = _cases.golden_cases(model, signature, samples)
    signature = replace(signature, inputs=tuple(golden.dynamic(spec) for spec in signature.inputs))
    (folder / _verify.CASES).parent.mkdir()
    _verify.save_cases(folder / _verify.CASES, golden.cases)

    step("Writing the SavedModel")
    saved_model = folder / SAVED_MODEL
    _saved_model.write_saved_model(model, signature, saved_model)
    with _saved_model.SavedModelRun(saved_model, folder / _verify.CASES, folder.with_name("results.npz")) as fresh:
        exact = options.tolerance if options.precision == "float32" else checked_tolerance(None)

        def written(lowering: str) -> tuple[Traced, int, dict[str, tuple[str | int, ...]], tuple[ParityRow, ...]]:
            asked = replace(options, lowering=lowering, tolerance=exact)
            scratch = folder.with_name(f"traced_{lowering}")
            traced = _attention.traced_model(model, signature, golden, asked, saved_model, scratch, step)
            opset = traced.opset(options.opset)
            outputs = {name: golden.output_axes(name, traced.outputs[name]) for name in signature.outputs}
            functions = traced.functions(opset)
            onnx_model = _onnx_file.finish(traced.model, golden.axes, outputs, opset, traced.weights, functions)
            _onnx_file.write(onnx_model, folder / _verify.MODEL, traced.weights)
            step("Running onnxruntime on the golden cases")
            actual = _verify.run_cases(folder / _verify.MODEL, golden.cases, options.provider)
            return traced, opset, outputs, compared(golden.cases, actual, exact)

        traced, opset, outputs, rows = written(options.lowering)
        if options.lowering == "auto" and not all(row.passed for row in rows):
            step("What was fastest does not match in every case: tracing plain operators")
            traced, opset, outputs, rows = written(PORTABLE)
        step("Waiting for the SavedModel in a fresh process")
        saved_model_rows = compared(golden.cases, fresh.outputs(), exact)
    clone = None if model is given else _float32.distance(given, samples, golden.cases)
    report = ParityReport(options.provider, rows, saved_model_rows, golden.refused, clone)
    report.raise_if_failed()
    if options.precision != "float32":
        from . import _precision

        report = _precision.converted(folder, report, golden.cases, options.precision, options.tolerance, step)
    (folder / REPORT).write_text(report.to_json() + "\n", encoding="utf-8")
    seal(folder, _manifest(model, signature, golden, traced, outputs, replace(options, opset=opset)))


def _manifest(
    model: keras.Model,
    signature: Signature,
    golden: Cases,
    traced: Traced,
    outputs: Mapping[str, tuple[str | int, ...]],
    options: Options,
) -> dict[str, Any]:
    from importlib.metadata import version

    import onnxruntime

    from keras_attn import AttentionPooling, MaskedSoftmax

    first = golden.cases[0][2]
    told = traced.layers()
    layers = [layer for layer in model._flatten_layers() if isinstance(layer, AttentionPooling | MaskedSoftmax)]
    packages = ("keras-attn", "tensorflow", "keras", "tf2onnx", "onnx", "numpy")
    assert options.opset is not None
    return {
        "model": model.name,
        "inputs": [{"name": s.name, "dtype": s.dtype, "shape": list(golden.axes[s.name])} for s in signature.inputs],
        "outputs": [{"name": n, "dtype": str(first[n].dtype), "shape": list(shape)} for n, shape in outputs.items()],
        "opset": options.opset,
        "precision": options.precision,
        "layers": [
            {
                "name": layer.path,
                "class": type(layer).__name__,
                "lowering": PORTABLE,
                "precision": options.precision,
                **told.get(id(layer), {}),
            }
            for layer in layers
        ],
        "versions": {**{name: version(name) for name in packages}, "onnxruntime": onnxruntime.__version__},
        "lowest_onnxruntime": lowest_onnxruntime(options.opset, traced.lowerings.values()),
        "parity": {"tolerance": dict(options.tolerance), "cases": len(golden.cases)},
    }
