"""Labels of ids and classes: a string for each id of an input or output, such as a vocabulary."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from .._errors import InputError
from .._format.manifest import Manifest

Labels = Mapping[str, Sequence[str]]

_SPECIAL = re.compile(r"[<[].*[>\]]")  # such as <pad> or [MASK]


def checked_labels(manifest: Manifest, labels: Mapping[str, Any] | None) -> dict[str, list[str]]:
    """Return labels as lists by input or output, or raise `InputError`; a string is the list of its characters."""
    if labels is None:
        return {}
    specs = {spec.name: spec for spec in manifest.specs}
    if not isinstance(labels, Mapping):
        raise InputError(
            f"`labels` must be a mapping from names to lists of strings. Received: {type(labels).__name__}."
        )
    checked = {}
    for name, strings in labels.items():
        if name not in specs:
            raise InputError(f"`labels` must name inputs or outputs of the model, {[*specs]}. Received: {name!r}.")
        if not isinstance(strings, Sequence) or not strings or not all(isinstance(label, str) for label in strings):
            raise InputError(
                f"`labels[{name!r}]` must be strings, one for each id. Received: {type(strings).__name__}."
            )
        shape, dtype = specs[name].shape, specs[name].dtype
        has_scores = "float" in dtype and len(shape) > 1 and shape[-1] == len(strings)
        if not has_scores and ("int" not in dtype or not shape):
            raise InputError(
                f"`labels[{name!r}]` must be of ids, or of as many scores as there are labels. "
                f"Received: {len(strings)} labels for {dtype} of shape {shape}."
            )
        checked[name] = list(strings)
    return checked


def joined(words: Sequence[str], labels: Sequence[str] | None) -> str:
    """Return the words of a sequence as one text.

    Labels are separated by blanks, unless all of them are characters, apart from <pad> and such. Blanks at the end,
    which padding has for a label, are left out. Strings without labels are separated by commas.
    """
    if labels is None:
        return ", ".join(words)
    has_characters = all(len(label) <= 1 or _SPECIAL.fullmatch(label) for label in labels)
    return ("" if has_characters else " ").join(words).rstrip()
