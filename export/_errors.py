"""Exception classes of the exporter, in a hierarchy below `ExportError`.

ExportError
├── UnsupportedModelError   the model, or an operator in it, cannot be exported
├── ParityError             outputs of an exported file differ from Keras (in `_format/parity_report.py`)
├── BundleError             a bundle is missing, corrupt, altered, or has an unknown version
├── ProviderError           the requested provider is absent, or onnxruntime used another one
└── InputError              names, dtypes or shapes of inputs do not match the model
"""

from collections.abc import Mapping

from ._format.input_arrays import InputError
from ._format.names import BundleError, ExportError, ProviderError

__all__ = ["BundleError", "ExportError", "InputError", "ProviderError", "UnsupportedModelError", "UntraceableError"]


class UnsupportedModelError(ExportError):
    """Error for a model or operator that cannot be exported; the message names the layer and the operator."""


class UntraceableError(Exception):
    """Signal, within an export, that TensorFlow cannot trace some axes with an unknown size.

    The export starts again with these axes static.

    Attributes:
        reasons: The message of TensorFlow for each axis, by axis name.
    """

    def __init__(self, reasons: Mapping[str, str]) -> None:
        """Store the reasons."""
        super().__init__(dict(reasons))
        self.reasons = dict(reasons)
