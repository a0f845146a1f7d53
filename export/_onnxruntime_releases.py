"""Lowest onnxruntime release for each opset and lowering."""

import re
from collections.abc import Iterable

from ._errors import ExportError
from ._format.files import find_older_onnxruntime
from ._lowering_names import ADAPTIVE, ADAPTIVE_GPU, PORTABLE, requested_lowering

FUSED_OPSET = 24

# The first onnxruntime release, of 1.15 and later, that loads exported models of each opset, with the outputs of Keras.
# Measured with the last patch of every minor release on models with attention, recurrent layers and convolutions.
LOWEST_ONNXRUNTIME = {18: "1.15", 19: "1.16", 20: "1.17", 21: "1.18", 22: "1.21", 23: "1.23", 24: "1.24"}
# 1.15 crashes on additive scores in blocks, and 1.16 to 1.18 return attention weights in a wrong shape. The operator
# `Attention` of 1.24 computes wrong outputs with lengths.
LOWEST_FOR_LOWERING = {ADAPTIVE: "1.19", ADAPTIVE_GPU: "1.19", "fused": "1.25"}
# The oldest release that was observed to have CUDA kernels for all operators of opset 24 (onnxruntime#27742).
LOWEST_FOR_FUSED_ON_CUDA = "1.31"
RELEASE_PATTERN = re.compile(r"[0-9]{1,4}(\.[0-9]{1,4}){1,2}")


def find_lowest_onnxruntime(opset: int, lowerings: Iterable[str]) -> str:
    """Return the first onnxruntime release that runs models of an opset with attention in these lowerings."""
    used_lowerings = {*lowerings}
    if ADAPTIVE in used_lowerings and opset >= FUSED_OPSET:
        used_lowerings.add("fused")  # one of the forms of `adaptive`
    releases = [LOWEST_FOR_LOWERING[lowering] for lowering in used_lowerings if lowering in LOWEST_FOR_LOWERING]
    if ADAPTIVE_GPU in used_lowerings and opset >= FUSED_OPSET:
        releases.append(LOWEST_FOR_FUSED_ON_CUDA)
    return max([LOWEST_ONNXRUNTIME[opset], *releases], key=parse_release)


def parse_release(version: str) -> tuple[int, ...]:
    """Return the minor release of a version as a tuple that can be compared, such as (1, 19)."""
    return tuple(map(int, version.split(".")[:2]))


def installed_runtime_supports(opset: int, lowerings: Iterable[str]) -> bool:
    """Return True if the installed onnxruntime runs models of an opset with attention in these lowerings."""
    return find_older_onnxruntime(find_lowest_onnxruntime(opset, lowerings)) is None


def check_onnxruntime(opset: int, lowerings: Iterable[str]) -> None:
    """Raise `ExportError` if the installed onnxruntime is too old to run, and so to check, an exported model."""
    used_lowerings = set(lowerings) - {PORTABLE}
    release = find_lowest_onnxruntime(opset, used_lowerings)
    if installed := find_older_onnxruntime(release):
        options = [f"`lowering={lowering!r}`" for lowering in sorted(map(requested_lowering, used_lowerings))]
        features = " and ".join([f"opset {opset}", *options])
        raise ExportError(
            f"An ONNX file of {features} needs onnxruntime {release} or newer. Received: onnxruntime {installed}. "
            "Upgrade onnxruntime, leave `opset` out, or use `lowering='portable'`."
        )
