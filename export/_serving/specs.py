"""What a manifest says of inputs and outputs, in the words of a server."""

from __future__ import annotations

from collections.abc import Mapping

from .._errors import UnsupportedModelError
from .._standalone.verify import Manifest, Spec


def datatype(spec: Spec, known: Mapping[str, str], server: str) -> str:
    """Return what a server calls the dtype of an input or output.

    Raises:
        UnsupportedModelError: It has no such dtype.
    """
    if spec.dtype not in known:
        raise UnsupportedModelError(
            f"`{spec.name}` has dtype {spec.dtype}, and {server} takes {', '.join(sorted(known))} only. Cast it "
            "within the model, and export that."
        )
    return known[spec.dtype]


def unchecked_multiples(manifest: Manifest, server: str) -> list[str]:
    """Return what to tell of sizes that must be multiples, where a server lets others through."""
    return [
        f"`{axis}` must be a multiple of {step}, which {server} does not check"
        for axis, step in manifest.multiples.items()
        if step != 1
    ]
