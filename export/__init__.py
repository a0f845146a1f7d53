"""Export Keras models to ONNX with a proof, travelling with the file, that the numbers match.

Importing this package loads neither TensorFlow nor Keras; `export_model` does when it is called.
"""

from ._batch.predict import Predictions, predict
from ._bundle.parity import ParityError, ParityReport
from ._bundle.signing import sign_bundle
from ._errors import BundleError, ExportError, InputError, ProviderError, UnsupportedModelError
from ._export.convert_bundle import convert_bundle
from ._export.export import export_model
from ._export.verify_bundle import verify_bundle
from ._loaded_bundle import Bundle, load_bundle

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
    "convert_bundle",
    "export_model",
    "load_bundle",
    "predict",
    "sign_bundle",
    "verify_bundle",
]
