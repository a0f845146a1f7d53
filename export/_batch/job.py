"""What is the same for every part and every worker of a run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .._errors import BundleError, InputError
from .._standalone.verify import Manifest, Spec

# Inputs and outputs of a window; three are in memory at once: read, run, written.
WINDOW_BYTES = 64 * 2**20
WINDOW_ROWS = 4096
# More rows at once are no faster on a core, and of fewer the calls cost more than the numbers; see benchmarks/batch.py.
BATCH_ROWS = 64


@dataclass(frozen=True)
class Job:
    """What a worker needs to know, besides its part.

    Attributes:
        bundle: The folder.
        digest: The digest of its manifest: on another machine there may be another bundle in its place.
        provider: The short name of where to run.
        outputs: The outputs to compute.
        key: The column that names rows, or `None`.
        batch_size: The most rows of one run.
        limit: The most bytes that the model may take for its tensors, in each process.
        padded: The axes that may be padded, since that changes no output; along others, only rows of one length run
            together.
        workers: How many runs at once.
    """

    bundle: str
    digest: str
    provider: str
    outputs: tuple[str, ...]
    key: str | None
    batch_size: int
    limit: int
    padded: frozenset[str]
    workers: int


def checked_outputs(manifest: Manifest, outputs: Sequence[str] | None) -> tuple[str, ...]:
    """Return the names of the outputs to compute; all, in the order of the manifest, unless some are asked for.

    Raises:
        InputError: The model has no such output, or none is asked for.
    """
    known = [spec.name for spec in manifest.outputs]
    if outputs is None:
        return tuple(known)
    if isinstance(outputs, str) or not outputs or not all(isinstance(name, str) for name in outputs):
        raise InputError(f"`outputs` must be a list of names among {known}. Received: {outputs!r}.")
    if unknown := [name for name in outputs if name not in known]:
        raise InputError(f"Outputs {unknown} are unknown. The model gives {known}.")
    return tuple(dict.fromkeys(outputs))


def specs_of(manifest: Manifest, outputs: Iterable[str]) -> list[Spec]:
    """Return the entries of outputs in the manifest."""
    by_name = {spec.name: spec for spec in manifest.outputs}
    return [by_name[name] for name in outputs]


def row_axes(manifest: Manifest, outputs: Iterable[str]) -> list[str]:
    """Return the names of the axes along which rows may differ.

    Raises:
        BundleError: Not all inputs and outputs have the same dynamic first axis, so rows cannot be put together.
    """
    specs = [*manifest.inputs, *specs_of(manifest, outputs)]
    for spec in specs:
        batch = specs[0].shape[0] if specs[0].shape else None
        if not spec.shape or not isinstance(batch, str) or spec.shape[0] != batch:
            raise BundleError(
                "Rows are put together along the first axis, which must be the same dynamic axis for every input and "
                f"output. `{spec.name}` has shape {spec.shape}. Export the model with a dynamic batch."
            )
        if batch in spec.shape[1:]:
            raise BundleError(
                f"`{spec.name}` has the batch twice in its shape {spec.shape}: rows depend on each other."
            )
        if spec.dtype.startswith("bfloat"):
            raise BundleError(f"`{spec.name}` is of dtype {spec.dtype}, which Parquet does not have.")
    inputs = [size for spec in manifest.inputs for size in spec.shape[1:]]
    return list(dict.fromkeys(size for size in inputs if isinstance(size, str)))
