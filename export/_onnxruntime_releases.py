"""Lowest onnxruntime release of each export option."""

import re
from collections.abc import Iterable

from ._errors import ExportError
from ._format.files import older_onnxruntime
from ._lowering_names import ADAPTIVE, BATCHED, PORTABLE, asked_by

FUSED_OPSET = 24

# The first onnxruntime release, of 1.15 and later, that loads exported models of each opset and gives Keras's outputs.
# Measured with the last patch of every minor release on models with attention, recurrent layers and convolutions.
LOWEST_ONNXRUNTIME = {18: "1.15", 19: "1.16", 20: "1.17", 21: "1.18", 22: "1.21", 23: "1.23", 24: "1.24"}
# 1.15 crashes on additive scores in blocks, 1.16 to 1.18 give returned weights a wrong shape; with lengths, the op
# `Attention` of 1.24 gives other numbers.
LOWEST_FOR_LOWERING = {ADAPTIVE: "1.19", BATCHED: "1.19", "fused": "1.25"}
# The first that was seen to have kernels for CUDA of all operators of opset 24; in May 2026 it lacked some (27742).
LOWEST_FOR_FUSED_ON_CUDA = "1.31"
RELEASE_PATTERN = re.compile(r"[0-9]{1,4}(\.[0-9]{1,4}){1,2}")


def lowest_onnxruntime(opset: int, lowerings: Iterable[str]) -> str:
    """Return the first onnxruntime release that runs models of an opset with attention in these lowerings."""
    used = {*lowerings}
    if ADAPTIVE in used and opset >= FUSED_OPSET:
        used.add("fused")  # one of the forms it decides between
    cuda_releases = [LOWEST_FOR_FUSED_ON_CUDA] if BATCHED in used and opset >= FUSED_OPSET else []
    releases = [LOWEST_ONNXRUNTIME[opset], *(LOWEST_FOR_LOWERING[each] for each in used if each in LOWEST_FOR_LOWERING)]
    releases += cuda_releases
    return max(releases, key=release_of)


def release_of(version: str) -> tuple[int, ...]:
    """Return the minor release of a version, to be compared."""
    return tuple(map(int, version.split(".")[:2]))


def runs_here(opset: int, lowerings: Iterable[str]) -> bool:
    """Tell whether the installed onnxruntime is one that runs models of an opset with attention in these lowerings."""
    return older_onnxruntime(lowest_onnxruntime(opset, lowerings)) is None


def check_onnxruntime(opset: int, lowerings: Iterable[str]) -> None:
    """Check that the installed onnxruntime, on which an export is checked, is new enough.

    Raises:
        ExportError: It is too old, and would refuse them or give other numbers.
    """
    used = set(lowerings) - {PORTABLE}
    lowest = lowest_onnxruntime(opset, used)
    if installed := older_onnxruntime(lowest):
        features = " and ".join([f"opset {opset}", *(f"`lowering={each!r}`" for each in sorted(map(asked_by, used)))])
        raise ExportError(
            f"An ONNX file of {features} needs onnxruntime {lowest} or newer. Received: onnxruntime {installed}. "
            "Upgrade onnxruntime, leave `opset` out, or use `lowering='portable'`."
        )
