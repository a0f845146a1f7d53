"""Export Keras models to ONNX, and check the files against Keras on cases that are stored with them.

Importing this package loads neither TensorFlow nor Keras; `export_model` loads them when it is called. NumPy is loaded
with the first name that is used, because the command must handle signals before any import that takes a while.
"""

TYPE_CHECKING = False  # as in `typing`, which takes a while to import
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
_REPLACEMENTS = {  # of removed names
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
