"""Exception classes of the exporter.

ExportError
├── UnsupportedModelError   the model, or an op in it, cannot be exported
├── ParityError             what was written does not give Keras's outputs (in `_format/parity_report.py`)
├── BundleError             a bundle is missing, corrupt, altered, or of a version that cannot be read
├── ProviderError           the provider asked for is absent, or is not the one that ran
└── InputError              names, dtypes or shapes of the inputs do not fit
"""

from collections.abc import Mapping

from ._format.input_arrays import InputError
from ._format.names import BundleError, ExportError, ProviderError

__all__ = ["BundleError", "ExportError", "InputError", "ProviderError", "UnsupportedModelError", "UntraceableError"]


class UnsupportedModelError(ExportError):
    """The model, or an operator in it, cannot be exported; the message names the layer and the operator."""


class UntraceableError(Exception):
    """Some dynamic axes cannot be traced as unknown: for the export itself, which makes them static.

    Attributes:
        reasons: What TensorFlow says, by the names of the axes.
    """

    def __init__(self, reasons: Mapping[str, str]) -> None:
        """Keep the reasons."""
        super().__init__(dict(reasons))
        self.reasons = dict(reasons)
