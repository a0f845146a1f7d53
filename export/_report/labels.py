"""What ids are called: labels of inputs and outputs by name, a string for each id, such as a vocabulary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .._errors import InputError
from .._standalone.verify import Case, Manifest

Labels = Mapping[str, Sequence[str]]


def checked_labels(manifest: Manifest, labels: Mapping[str, Any] | None) -> dict[str, list[str]]:
    """Return labels as lists; a string is one of its characters.

    Raises:
        InputError: They are no mapping from names of inputs and outputs to strings.
    """
    if labels is None:
        return {}
    specs = {spec.name: spec for spec in manifest.specs}
    if not isinstance(labels, Mapping):
        raise InputError(f"`labels` must be a mapping from names to lists of strings. Received: {_kind(labels)}.")
    checked = {}
    for name, given in labels.items():
        if name not in specs:
            raise InputError(f"`labels` must name inputs or outputs of the model, {[*specs]}. Received: {name!r}.")
        if not isinstance(given, Sequence) or not given or not all(isinstance(label, str) for label in given):
            raise InputError(f"`labels[{name!r}]` must be strings, one for each id. Received: {_kind(given)}.")
        shape, dtype = specs[name].shape, specs[name].dtype
        scores = "float" in dtype and len(shape) > 1 and shape[-1] == len(given)
        if not scores and ("int" not in dtype or not shape):
            raise InputError(
                f"`labels[{name!r}]` must be of ids, or of as many scores as there are labels. "
                f"Received: {len(given)} labels for {dtype} of shape {shape}."
            )
        checked[name] = list(given)
    return checked


def _kind(value: Any) -> str:
    return type(value).__name__


def labels_along(
    axis: str | int, case: Case, manifest: Manifest, labels: Labels, examples: int, positions: int
) -> list[list[str]] | None:
    """Return what stands at each position of an axis, for each example: that of the first labelled tensor that has it.

    Args:
        axis: The name of the axis, or its size.
        case: The numbers.
        manifest: That of the bundle.
        labels: What ids are called.
        examples: How many examples.
        positions: How many positions of each.
    """
    found = [
        (name, ids)
        for name, ids in _labelled(case, manifest, labels)
        if ids.ndim == 2 and _shape_of(name, manifest)[1] == axis
    ]
    if not found or (isinstance(axis, int) and len(found) > 1):  # of one size by chance, it may be
        return None
    name, ids = found[0]
    return [_words(row[:positions], labels[name]) for row in ids[:examples]]


def caption_of(case: Case, manifest: Manifest, labels: Labels, example: int) -> list[list[str]]:
    """Return name and text of each labelled input and output of an example; padding beyond its length is left out."""
    lengths = manifest.lengths
    told = []
    for name, ids in _labelled(case, manifest, labels):
        if example >= len(ids) or ids.ndim > 2:
            continue
        row = np.atleast_1d(ids[example])
        length = lengths.get(str(_shape_of(name, manifest)[1])) if ids.ndim == 2 else None
        if length is not None and case.inputs[length].ndim == 1 and example < len(case.inputs[length]):
            row = row[: max(0, int(case.inputs[length][example]))]
        words = _words(row, labels[name])
        told.append([name, (" " if any(len(word) > 1 for word in words) else "").join(words)])
    return told


def _labelled(case: Case, manifest: Manifest, labels: Labels) -> list[tuple[str, np.ndarray]]:
    """Return the ids of each labelled tensor; of scores, the id of the largest."""
    arrays = {**case.inputs, **case.outputs}
    found = []
    for spec in manifest.specs:
        if (name := spec.name) in labels:
            array = arrays[name]
            found.append((name, array.argmax(-1) if array.dtype.kind == "f" else array))
    return found


def _shape_of(name: str, manifest: Manifest) -> tuple[str | int, ...]:
    return next(spec.shape for spec in manifest.specs if spec.name == name)


def _words(ids: np.ndarray, labels: Sequence[str]) -> list[str]:
    return [labels[each] if 0 <= each < len(labels) else str(each) for each in ids.tolist()]
