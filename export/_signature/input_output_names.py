"""Check input names and derive output names."""

import itertools
import keyword
import re
from collections.abc import Sequence
from typing import Any

import keras

from .._errors import UnsupportedModelError
from .._format.names import STRING

LONGEST = 900  # letters of an input's name, of which names of axes and cases are made


def check_inputs(inputs: Sequence[tuple[str, str]]) -> None:
    """Check names and dtypes of inputs.

    Raises:
        UnsupportedModelError: A SavedModel cannot take one of them, or it has no counterpart in NumPy.
    """
    for name, dtype in inputs:
        if dtype == STRING and keras.backend.backend() != "tensorflow":
            raise UnsupportedModelError(
                f"Input `{name}` holds strings, which Keras takes on TensorFlow alone. Set KERAS_BACKEND=tensorflow."
            )
        if dtype == "bfloat16":
            raise UnsupportedModelError(f"Input `{name}` is bfloat16, which NumPy does not have. Make it float32.")
        if not _is_argument(name):
            letters = re.sub(r"[^A-Za-z0-9_.-]+", "_", name).strip("_")
            better = letters if _is_argument(letters) else f"input_{letters}"
            raise UnsupportedModelError(
                f"Input name `{name}` cannot be the argument of a SavedModel. Use a letter, then letters, digits, "
                f"underscores, dots and hyphens, and no word of Python: keras.Input(..., name={better!r})."
            )
        if len(name) > LONGEST:
            raise UnsupportedModelError(
                f"Input name `{name[:20]}...` has {len(name)} letters; give it {LONGEST} at most."
            )
        if alike := [other for other, _ in inputs if _as_argument(other) == _as_argument(name)][1:]:
            raise UnsupportedModelError(
                f"Inputs `{name}` and `{alike[0]}` have one name, as far as TensorFlow can tell: it ignores case, "
                "and takes a dot or a hyphen for an underscore. Give each a name of its own."
            )


def _is_argument(name: str) -> bool:
    return bool(re.fullmatch(r"[A-Za-z][A-Za-z0-9_.-]*", name)) and not keyword.iskeyword(name) and name != "self"


def _as_argument(name: str) -> str:
    return re.sub(r"[.-]", "_", name.lower())


def output_names(structure: Any, inputs: Sequence[str], layers: Sequence[str] = ()) -> tuple[str, ...]:
    """Name outputs by their dict keys, else by the layers that made them, else by position; each name once.

    Args:
        structure: The outputs, nested as the model returns them; None among them has no name.
        inputs: The names of its inputs: an ONNX graph cannot give two tensors one name.
        layers: The names of the layers, in the order of the outputs, if they are known.
    """
    names: list[str] = []
    for index, (path, tensor) in enumerate(keras.tree.flatten_with_path(structure)):
        if tensor is None:
            continue
        keyed = any(isinstance(part, str) for part in path)
        name = "_".join(map(str, path)) if keyed else (layers[index] if layers else f"output_{index}")
        if name in inputs:
            name = f"{name}_output"
        numbered = (f"{name}_{count}" if count else name for count in itertools.count())
        names.append(next(each for each in numbered if each not in (*inputs, *names)))
    return tuple(names)
