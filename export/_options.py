"""The choices an export offers, and whether a value is one of them. Cheap: checked before TensorFlow is loaded."""

from __future__ import annotations

import numbers
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ._errors import ExportError, InputError
from ._standalone.verify import PROVIDERS, older_onnxruntime

PORTABLE = "portable"
ADAPTIVE = "adaptive"
LOWERINGS = (ADAPTIVE, PORTABLE, "fused")
REPLACED = ("ragged", "batched", "auto")  # `adaptive` takes their place
BATCHED = "batched"  # the form of `adaptive` for devices such as GPUs
PRECISIONS = ("float32", "float16", "int8")
TRACED_OPSET = 18  # the highest that tf2onnx 1.17 writes, and the default
OPSETS = range(TRACED_OPSET, 25)
FUSED_OPSET = 24

# The first onnxruntime release, of 1.15 and later, that loads exported models of each opset and gives Keras's outputs.
# Measured with the last patch of every minor release on models with attention, recurrent layers and convolutions.
LOWEST_ONNXRUNTIME = {18: "1.15", 19: "1.16", 20: "1.17", 21: "1.18", 22: "1.21", 23: "1.23", 24: "1.24"}
# 1.15 crashes on additive scores in blocks, 1.16 to 1.18 give returned weights a wrong shape; with lengths, the op
# `Attention` of 1.24 gives other numbers.
LOWEST_FOR_LOWERING = {ADAPTIVE: "1.19", BATCHED: "1.19", "fused": "1.25"}


@dataclass(frozen=True)
class Options:
    """What was asked of an export; see `export_model`. An opset of `None` is the lowest that will do."""

    opset: int | None
    lowering: str
    precision: str
    provider: str
    tolerance: Mapping[str, float]
    strict: bool = False
    static_axes: Mapping[str, int] = field(default_factory=dict)


def asked_by(form: str) -> str:
    """Return the lowering that is asked for where attention gets a form."""
    return ADAPTIVE if form == BATCHED else form


def instead(lowering: object) -> str:
    """Return the sentence that names what to use for a lowering that `adaptive` replaces; nothing for others."""
    return " Use 'adaptive', which chooses by sizes and provider." if lowering in REPLACED else ""


def lowest_onnxruntime(opset: int, lowerings: Iterable[str]) -> str:
    """Return the first onnxruntime release that runs models of an opset with attention in these lowerings."""
    used = {*lowerings}
    if ADAPTIVE in used and opset >= FUSED_OPSET:
        used.add("fused")  # one of the forms it decides between
    releases = [LOWEST_ONNXRUNTIME[opset], *(LOWEST_FOR_LOWERING[each] for each in used if each in LOWEST_FOR_LOWERING)]
    return max(releases, key=lambda release: tuple(map(int, release.split("."))))


def runs_here(opset: int, lowerings: Iterable[str]) -> bool:
    """Tell whether the installed onnxruntime is one that runs models of an opset with attention in these lowerings."""
    return older_onnxruntime(lowest_onnxruntime(opset, lowerings)) is None


def check_onnxruntime(opset: int, lowerings: Iterable[str]) -> None:
    """Check that the installed onnxruntime, on which an export is proven, is new enough.

    Raises:
        ExportError: It is too old, and would refuse them or give other numbers.
    """
    used = set(lowerings) - {PORTABLE}
    lowest = lowest_onnxruntime(opset, used)
    if found := older_onnxruntime(lowest):
        what = " and ".join([f"opset {opset}", *(f"`lowering={each!r}`" for each in sorted(map(asked_by, used)))])
        raise ExportError(
            f"An ONNX file of {what} needs onnxruntime {lowest} or newer. Received: onnxruntime {found}. "
            "Upgrade onnxruntime, leave `opset` out, or use `lowering='portable'`."
        )


def checked_static_axes(static_axes: Mapping[str, int] | None) -> dict[str, int]:
    """Return the `static_axes` of `export_model`; whether the model has such axes is seen later.

    Raises:
        InputError: They are no mapping from names to sizes of 1 or more.
    """
    given = {} if static_axes is None else static_axes
    if not isinstance(given, Mapping):
        raise InputError(f"`static_axes` must be a mapping from names to sizes. Received: {type(given).__name__}.")
    for name, size in given.items():
        whole = isinstance(size, numbers.Integral) and not isinstance(size, bool)  # NumPy's integers too
        if not isinstance(name, str) or not whole or size < 1:
            raise InputError(
                f"`static_axes` must map names of axes to integers of 1 or more. Received: {name!r}: {size!r}."
            )
    return {name: int(size) for name, size in given.items()}


def check_options(opset: int | None, lowering: str, precision: str, provider: str) -> None:
    """Check the options of `export_model`.

    Raises:
        ExportError: A value is unknown, or they do not go together.
    """
    for name, value, known in (
        ("lowering", lowering, LOWERINGS),
        ("precision", precision, PRECISIONS),
        ("provider", provider, tuple(PROVIDERS)),
    ):
        if value not in known:
            raise ExportError(f"`{name}` must be one of {known}. Received: {value!r}.{instead(value)}")
    if opset is None:
        return
    if isinstance(opset, bool) or not isinstance(opset, int) or opset not in OPSETS:
        raise ExportError(f"`opset` must be an integer from {OPSETS[0]} to {OPSETS[-1]}. Received: {opset!r}.")
    if lowering == "fused" and opset < FUSED_OPSET:
        raise ExportError(
            f"`lowering='fused'` needs opset {FUSED_OPSET}, the first whose `Attention` takes lengths. "
            f"Received: opset={opset}. Leave `opset` out, or use another lowering."
        )
