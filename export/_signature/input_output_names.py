"""Validation of input names, and derivation of output names."""

import itertools
import keyword
import re
from collections.abc import Sequence
from typing import Any

import keras

from .._errors import UnsupportedModelError
from .._format.names import STRING

MAX_NAME_CHARACTERS = 900  # names of axes and golden arrays are longer


def check_inputs(inputs: Sequence[tuple[str, str]]) -> None:
    """Check names and dtypes of inputs, given as pairs.

    Raises:
        UnsupportedModelError: If a SavedModel cannot have such an input, or if NumPy lacks its dtype.
    """
    for name, dtype in inputs:
        if dtype == STRING and keras.backend.backend() != "tensorflow":
            raise UnsupportedModelError(f"Input `{name}` holds strings, which need KERAS_BACKEND=tensorflow.")
        if dtype == "bfloat16":
            raise UnsupportedModelError(f"Input `{name}` is bfloat16, which NumPy does not have. Make it float32.")
        if not _is_valid_argument(name):
            cleaned = re.sub(r"[^A-Za-z0-9_.-]+", "_", name).strip("_")
            suggestion = cleaned if _is_valid_argument(cleaned) else f"input_{cleaned}"
            raise UnsupportedModelError(
                f"Input name `{name}` cannot be the argument of a SavedModel. Use a letter, then letters, digits, "
                f"underscores, dots and hyphens, and no Python keyword: keras.Input(..., name={suggestion!r})."
            )
        if len(name) > MAX_NAME_CHARACTERS:
            raise UnsupportedModelError(
                f"Input name `{name[:20]}...` has {len(name)} characters; at most {MAX_NAME_CHARACTERS} are supported."
            )
        if collisions := [other for other, _ in inputs if _normalize_argument(other) == _normalize_argument(name)][1:]:
            raise UnsupportedModelError(
                f"Input names `{name}` and `{collisions[0]}` collide: TensorFlow ignores case, and replaces dots and "
                "hyphens by underscores. Rename one of the inputs."
            )


def _is_valid_argument(name: str) -> bool:
    return bool(re.fullmatch(r"[A-Za-z][A-Za-z0-9_.-]*", name)) and not keyword.iskeyword(name) and name != "self"


def _normalize_argument(name: str) -> str:
    return re.sub(r"[.-]", "_", name.lower())


def name_outputs(structure: Any, inputs: Sequence[str], layers: Sequence[str] = ()) -> tuple[str, ...]:
    """Name outputs by their dict keys, else by `layers` in the same order, else by position; `None` gets no name.

    No name occurs twice or among the names of `inputs`, because names of tensors are unique in an ONNX graph.
    """
    names: list[str] = []
    for index, (path, tensor) in enumerate(keras.tree.flatten_with_path(structure)):
        if tensor is None:
            continue
        has_key = any(isinstance(part, str) for part in path)
        name = "_".join(map(str, path)) if has_key else (layers[index] if layers else f"output_{index}")
        if name in inputs:
            name = f"{name}_output"
        candidates = (f"{name}_{count}" if count else name for count in itertools.count())
        names.append(next(candidate for candidate in candidates if candidate not in (*inputs, *names)))
    return tuple(names)
