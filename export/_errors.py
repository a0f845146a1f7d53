"""The errors of the exporter.

ExportError
├── UnsupportedModelError   the model, or an op in it, cannot be exported
├── ParityError             what was written does not give Keras's outputs
├── BundleError             a bundle is missing, corrupt, altered, or of a version that cannot be read
├── ProviderError           the provider asked for is absent, or is not the one that ran
└── InputError              names, dtypes or shapes of the inputs do not fit
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._verify import BundleError, ExportError, ProviderError

if TYPE_CHECKING:
    from ._parity import ParityReport

__all__ = ["BundleError", "ExportError", "InputError", "ParityError", "ProviderError", "UnsupportedModelError"]


class UnsupportedModelError(ExportError):
    """The model, or an op in it, cannot be exported; the message names the layer and the op."""


class InputError(ExportError):
    """Input names, dtypes or shapes do not fit the model."""


class ParityError(ExportError):
    """Outputs differ from Keras's. `report` holds every row that was compared."""

    def __init__(self, message: str, report: ParityReport) -> None:
        """Keep the report beside the message."""
        super().__init__(message)
        self.report = report
