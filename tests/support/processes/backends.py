"""What differs between the backends of Keras: how a program is compiled, and how gradients are taken.

The layer tests run on the backend that `KERAS_BACKEND` names, and get from here all that is not the same on each:
`scripts/test` runs them on TensorFlow, `nox -s jax` and `nox -s torch` on the others.
"""

import contextlib
from typing import Any

import keras
import pytest
from keras import ops

BACKEND = keras.backend.backend()
COMPILES_EACH_SIZE = BACKEND == "jax"
"""Whether each operation is compiled for each size it meets, so that tests of many sizes take minutes."""


if BACKEND == "tensorflow":
    import tensorflow as tf
elif BACKEND == "jax":
    import jax
else:
    import torch

# How a program can be run. `torch.compile` is not tried: it needs a C++ compiler on the machine.
MODES = {"tensorflow": ["eager", "graph", "xla"], "jax": ["eager", "jit"], "torch": ["eager"]}[BACKEND]
# The `jit_compile` that `fit` can take, by the name of what it makes of a step.
FIT_MODES = {
    "tensorflow": {"graph": False, "xla": True},
    "jax": {"jit": True},  # what `fit` does unless it is told otherwise; without, a step takes seconds
    "torch": {"eager": False},
}[BACKEND]


def compile_function(function, mode, *, variables=(), signature=None):
    """A function of tensors, run in a mode, which reads later values of `variables`; all others are constants to JAX.

    A signature has shapes, with None for each size that one program takes as it comes, and dtypes; JAX does without.
    """
    if mode == "eager":
        return function
    if BACKEND == "tensorflow":
        specs = signature and [tf.TensorSpec(shape, dtype) for shape, dtype in signature]
        return tf.function(function, specs, jit_compile=mode == "xla")

    @jax.jit
    def program(values, arguments):
        with keras.StatelessScope(list(zip(variables, values, strict=True))):
            return function(*arguments)

    return lambda *arguments: program([variable.value for variable in variables], arguments)


def compute_gradients(loss, count, variables=()):
    """The gradients of a scalar by the first `count` arguments, which must be floats, and by `variables`, as a list.

    The loss may itself call what `gradients_of` gave.
    """
    take = {"tensorflow": _gradients_by_tape, "jax": _gradients_by_jax, "torch": _gradients_by_torch}[BACKEND]
    return lambda *arguments: take(loss, arguments[:count], arguments[count:], variables)


def _gradients_by_tape(loss, watched, others, variables):
    with tf.GradientTape() as tape:
        tape.watch(watched)
        result = loss(*watched, *others)
    return list(tape.gradient(result, [*watched, *(variable.value for variable in variables)]))


def _gradients_by_jax(loss, watched, others, variables):
    def pure(watched, values):
        with keras.StatelessScope(list(zip(variables, values, strict=True))):
            return loss(*watched, *others)

    by_tensors, by_variables = jax.grad(pure, argnums=(0, 1))(watched, [variable.value for variable in variables])
    return [*by_tensors, *by_variables]


def _gradients_by_torch(loss, watched, others, variables):
    nested = any(tensor.requires_grad for tensor in watched)
    watched = tuple(tensor if tensor.requires_grad else tensor.detach().requires_grad_() for tensor in watched)
    by = [*watched, *(variable.value for variable in variables)]
    return list(torch.autograd.grad(loss(*watched, *others), by, create_graph=nested))


COMPILED_MODES = MODES[1:] or MODES  # torch has no compiled mode here: its tests run eagerly, so that some run
every_mode = pytest.mark.parametrize("mode", MODES)
every_compiled_mode = pytest.mark.parametrize("mode", COMPILED_MODES)
x64 = pytest.mark.x64
"""For tests that need float64 or int64: JAX turns both into 32 bits unless it is told otherwise."""


def get_precision(dtype):
    """The dtype to whose rounding a layer computes: on torch Keras has float32 products for float64, on JAX tanh."""
    return "float32" if dtype == "float64" and BACKEND != "tensorflow" else dtype


def run_only_on(*backends, reason):
    """For a test that says nothing about a layer on the other backends, with the reason for that."""
    return pytest.mark.skipif(BACKEND not in backends, reason=reason)


@contextlib.contextmanager
def enable_x64():
    """Lets JAX keep float64 and int64, as the other backends do."""
    if BACKEND != "jax":
        yield
        return
    with jax.enable_x64(True):
        yield


class _Carrier(keras.layers.Layer):
    def __init__(self, mask):
        super().__init__(autocast=False, name="carrier")  # TensorFlow takes no scope that begins with an underscore
        self._carried = mask

    def call(self, tensor):
        return tensor

    def compute_mask(self, inputs, previous_mask=None):
        return ops.convert_to_tensor(self._carried)


class _Reader(keras.layers.Layer):
    def __init__(self):
        super().__init__(autocast=False, name="reader")
        self.supports_masking = True
        self.found: Any = None

    def call(self, tensor, mask=None):
        self.found = mask
        return tensor


def attach_mask(array, mask):
    """A tensor with the implicit mask that `Embedding(mask_zero=True)` or `Masking` would attach.

    A layer attaches it, and a layer reads it, because Keras keeps it in another place for JAX, whose arrays take no
    attributes.
    """
    return _Carrier(mask)(array)


def read_mask(tensor):
    """The implicit mask that a tensor carries into the next layer, or None."""
    reader = _Reader()
    reader(tensor)
    return reader.found
