"""The choices an export offers, and whether a value is one of them. Cheap: checked before TensorFlow is loaded."""

from __future__ import annotations

from ._errors import ExportError
from ._verify import PROVIDERS

LOWERINGS = ("portable", "fused", "ragged", "auto")
PRECISIONS = ("float32", "float16", "int8")
TRACED_OPSET = 18  # the highest that tf2onnx 1.17 writes, and the default
OPSETS = range(TRACED_OPSET, 25)

# The first onnxruntime release, of 1.15 and later, that loads exported models of each opset and gives Keras's outputs.
# Measured with the last patch of every minor release on models with attention, recurrent layers and convolutions.
LOWEST_ONNXRUNTIME = {18: "1.15", 19: "1.16", 20: "1.17", 21: "1.18", 22: "1.21", 23: "1.23", 24: "1.24"}


def check_options(opset: int | None, lowering: str, precision: str, provider: str) -> int:
    """Check the options of `export_model` and return the opset to write.

    Raises:
        ExportError: A value is unknown, or not available in this version.
    """
    for name, value, known, ready in (
        ("lowering", lowering, LOWERINGS, LOWERINGS[:1]),
        ("precision", precision, PRECISIONS, PRECISIONS),
        ("provider", provider, tuple(PROVIDERS), tuple(PROVIDERS)),
    ):
        if value not in known:
            raise ExportError(f"`{name}` must be one of {known}. Received: {value!r}.")
        if value not in ready:
            raise ExportError(f"`{name}={value!r}` is not available in this version; use {ready[0]!r}.")
    if opset is None:
        return TRACED_OPSET
    if isinstance(opset, bool) or not isinstance(opset, int) or opset not in OPSETS:
        raise ExportError(f"`opset` must be an integer from {OPSETS[0]} to {OPSETS[-1]}. Received: {opset!r}.")
    return opset
