"""Labels of ids and classes, such as the tokens of a vocabulary: a string for each id of an input or output."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from .._errors import InputError
from .._format.manifest import Manifest

Labels = Mapping[str, Sequence[str]]

_SPECIAL_TOKEN = re.compile(r"[<[].*[>\]]")  # such as <pad> or [MASK]


def validate_labels(manifest: Manifest, labels: Mapping[str, Any] | None) -> dict[str, list[str]]:
    """Return labels as lists. Split a string into its characters. Raise `InputError` if labels do not fit the model."""
    if labels is None:
        return {}
    specs = {spec.name: spec for spec in manifest.specs}
    if not isinstance(labels, Mapping):
        received_type = type(labels).__name__
        raise InputError(f"`labels` must be a mapping from names to lists of strings. Received: {received_type}.")
    valid_labels = {}
    for name, strings in labels.items():
        if name not in specs:
            raise InputError(f"`labels` must name inputs or outputs of the model, {[*specs]}. Received: {name!r}.")
        if not isinstance(strings, Sequence) or not strings or not all(isinstance(label, str) for label in strings):
            received_type = type(strings).__name__
            raise InputError(f"`labels[{name!r}]` must be strings, one for each id. Received: {received_type}.")
        shape, dtype = specs[name].shape, specs[name].dtype
        has_scores = "float" in dtype and len(shape) > 1 and shape[-1] == len(strings)
        if not has_scores and ("int" not in dtype or not shape):
            raise InputError(
                f"`labels[{name!r}]` must label ids, or scores with one class per label. "
                f"Received: {len(strings)} labels for {dtype} of shape {shape}."
            )
        valid_labels[name] = list(strings)
    return valid_labels


def join_words(words: Sequence[str], labels: Sequence[str] | None) -> str:
    """Join words: by commas if `labels` is None, directly if all labels are characters, and otherwise by blanks."""
    if labels is None:
        return ", ".join(words)
    # Special tokens such as <pad> are allowed among characters. `rstrip` removes blanks, which are often padding.
    has_characters = all(len(label) <= 1 or _SPECIAL_TOKEN.fullmatch(label) for label in labels)
    return ("" if has_characters else " ").join(words).rstrip()
