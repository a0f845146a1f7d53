"""An eager call of TensorFlow as one program: its loops would take fifty times as long operation by operation."""

import weakref
from collections.abc import Callable, Hashable
from typing import Any

from keras import ops

from .._keras.private import stateless_scope
from .._tensors import Shape, Tensor, dtype_of

Tensors = dict[str, Tensor]

_PROGRAMS: weakref.WeakKeyDictionary[Any, tuple[Hashable, Callable[[Tensors, Tensor], Tensors]]] = (
    weakref.WeakKeyDictionary()
)


def run_as_program(layer: Any, method: str, inputs: Tensors, count: Any, shapes: dict[str, Shape]) -> Tensors:
    """Calls a method of a layer on tensors by name and a number of rows, traced once for all sizes.

    It is traced anew where it would compute with others than the variables that it was traced with: those of a
    quantized layer, or the values that a stateless scope puts in their place.

    Args:
        layer: The layer.
        method: The name of its method.
        inputs: The tensors.
        count: The number of rows.
        shapes: Their shapes by name, with None for each size that may change.
    """
    import tensorflow as tf

    inputs = {name: ops.convert_to_tensor(x) for name, x in inputs.items()}
    scope = stateless_scope()
    of = (*(id(variable) for variable in layer.variables), *((name, dtype_of(x)) for name, x in inputs.items()))
    made_of: Hashable = (None if scope is None else weakref.ref(scope), of)
    if layer not in _PROGRAMS or _PROGRAMS[layer][0] != made_of:
        owner = weakref.ref(layer)  # or the program would keep its layer alive, and that the program
        signature = {name: tf.TensorSpec(shapes[name], x.dtype, name=name) for name, x in inputs.items()}

        def program(inputs: Tensors, count: Tensor) -> Tensors:
            found: Tensors = getattr(owner(), method)(inputs, count)
            return found

        specs = [signature, tf.TensorSpec([], tf.int32)]
        _PROGRAMS[layer] = (made_of, tf.function(program, input_signature=specs, autograph=False))
    return _PROGRAMS[layer][1](inputs, tf.constant(count, tf.int32))
