"""Every public function of `keras.ops` and every layer of `keras.layers` has a row, or stands here with the reason."""

import inspect
from collections.abc import Callable, Iterator
from functools import reduce

from keras import layers, ops

from . import ENTRIES

NO_NUMBERS = {
    "keras.ops": "convert_to_numpy custom_gradient dtype is_tensor jvp ndim vectorize",
    "keras.layers": "FlaxLayer InputLayer InputSpec JaxLayer Layer Pipeline StackedRNNCells TFSMLayer Wrapper "
    "TorchModuleWrapper",
}  # what belongs to Python or to another framework, and bases
FOR_BOXES = "MaxNumBoundingBoxes"  # a layer of labels
OF_STRINGS = "HashedCrossing Hashing StringLookup TextVectorization"


def public() -> Iterator[tuple[Callable[..., object], str]]:
    """Each function and layer with a public name; one that has two has one row."""
    for module in (ops, ops.image, ops.linalg, ops.nn, ops.numpy):
        for name, function in vars(module).items():
            if not name.startswith("_") and not inspect.ismodule(function):
                yield function, f"{module.__name__}.{name}"
    for name, layer in vars(layers).items():
        if inspect.isclass(layer):
            yield layer, f"keras.layers.{name}"


def test_every_operator_has_a_row():
    left = {f"{module}.{name}" for module, names in NO_NUMBERS.items() for name in names.split()}
    left |= {f"keras.layers.{name}" for name in (FOR_BOXES, *OF_STRINGS.split())}
    found = {name for name in {entry.operator for entry in ENTRIES} if name.startswith("keras.")}
    rows = {reduce(getattr, name.split(".")[1:], __import__("keras")) for name in found | left}
    assert not {name for function, name in public() if function not in rows}
    assert not found & left, "a row, and a reason for none"
