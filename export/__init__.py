"""Export of Keras models to ONNX, checked against Keras.

`export_model` writes a bundle: a folder with a SavedModel, an ONNX file, and golden cases (inputs with the outputs of
Keras). `load_bundle` opens it for inference, `verify_bundle` compares the ONNX file with the golden cases again on
another machine or runtime, and `predict` runs it on tables. Only `export_model`, and `verify_bundle` with samples, load
Keras and its backend.
"""

# Names are imported on first use: the `keras-attn` command must handle signals before NumPy and `typing` are loaded.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._batch.predict import Predictions, predict
    from ._bundle.bundle import Bundle, load_bundle
    from ._bundle.verify_bundle import verify_bundle
    from ._errors import BundleError, ExportError, InputError, ProviderError, UnsupportedModelError
    from ._export.export_model import export_model
    from ._format.parity_report import ParityError, ParityReport

__all__ = [
    "Bundle",
    "BundleError",
    "ExportError",
    "InputError",
    "ParityError",
    "ParityReport",
    "Predictions",
    "ProviderError",
    "UnsupportedModelError",
    "export_model",
    "load_bundle",
    "predict",
    "verify_bundle",
]

_MODULES = {
    "Bundle": "_bundle.bundle",
    "ParityError": "_format.parity_report",
    "ParityReport": "_format.parity_report",
    "Predictions": "_batch.predict",
    "export_model": "_export.export_model",
    "load_bundle": "_bundle.bundle",
    "predict": "_batch.predict",
    "verify_bundle": "_bundle.verify_bundle",
}
# Shown in the error for a removed name.
_REPLACEMENTS = {
    "convert_bundle": 'Keras\'s own `model.export("model.tflite", format="litert")`',
    "sign_bundle": "`model_signing sign key` on the folder (docs/security.md)",
}


def __getattr__(name: str) -> object:
    if name in _REPLACEMENTS:
        raise AttributeError(f"`{name}` was removed: use {_REPLACEMENTS[name]}.")
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(f".{_MODULES.get(name, '_errors')}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
