"""Backend-neutral compilation, gradients and implicit masks for the layer tests.

The layer tests run on the backend of `KERAS_BACKEND`: TensorFlow in `scripts/test`, the other backends in
`nox -s jax` and `nox -s torch`. Code that depends on the backend is in this module.
"""

import contextlib
from typing import Any

import keras
import pytest
from keras import ops

BACKEND = keras.backend.backend()
COMPILES_EACH_SIZE = BACKEND == "jax"
"""True if each operation is compiled for each size, so that tests of many sizes take minutes."""


if BACKEND == "tensorflow":
    import tensorflow as tf
elif BACKEND == "jax":
    import jax
else:
    import torch

# Ways to run a function. `torch.compile` is missing: it needs a C++ compiler.
MODES = {"tensorflow": ["eager", "graph", "xla"], "jax": ["eager", "jit"], "torch": ["eager"]}[BACKEND]
# The argument `jit_compile` of `fit`, by the mode in which a training step runs.
FIT_MODES = {
    "tensorflow": {"graph": False, "xla": True},
    "jax": {"jit": True},  # the default of `fit`; a step without it takes seconds
    "torch": {"eager": False},
}[BACKEND]


def compile_function(function, mode, *, variables=(), signature=None):
    """Compile a function of tensors in a mode; JAX treats all variables but `variables` as constants.

    `signature` has a shape and a dtype for each argument, with None for dynamic sizes; JAX ignores it.
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
    """Return a function that lists gradients of a scalar by the first `count` (float) arguments and by `variables`.

    The loss may call a function that `compute_gradients` returned.
    """
    functions = {"tensorflow": _differentiate_tape, "jax": _differentiate_jax, "torch": _differentiate_torch}
    return lambda *arguments: functions[BACKEND](loss, arguments[:count], arguments[count:], variables)


def _differentiate_tape(loss, watched, constants, variables):
    with tf.GradientTape() as tape:
        tape.watch(watched)
        result = loss(*watched, *constants)
    return list(tape.gradient(result, [*watched, *(variable.value for variable in variables)]))


def _differentiate_jax(loss, watched, constants, variables):
    def compute_loss(watched, values):
        with keras.StatelessScope(list(zip(variables, values, strict=True))):
            return loss(*watched, *constants)

    values = [variable.value for variable in variables]
    tensor_gradients, variable_gradients = jax.grad(compute_loss, argnums=(0, 1))(watched, values)
    return [*tensor_gradients, *variable_gradients]


def _differentiate_torch(loss, watched, constants, variables):
    nested = any(tensor.requires_grad for tensor in watched)
    watched = tuple(tensor if tensor.requires_grad else tensor.detach().requires_grad_() for tensor in watched)
    sources = [*watched, *(variable.value for variable in variables)]
    return list(torch.autograd.grad(loss(*watched, *constants), sources, create_graph=nested))


COMPILED_MODES = MODES[1:] or MODES  # torch has no compiled mode here; its tests run eagerly instead of not at all
every_compilation_mode = pytest.mark.parametrize("mode", MODES)
every_compiled_mode = pytest.mark.parametrize("mode", COMPILED_MODES)
x64 = pytest.mark.x64
"""Mark of tests that need float64 or int64: JAX converts both to 32 bits by default."""


def get_precision(dtype):
    """Return the dtype of the rounding errors: Keras computes float64 products on torch and tanh on JAX in float32."""
    return "float32" if dtype == "float64" and BACKEND != "tensorflow" else dtype


def run_only_on(*backends, reason):
    """Mark a test that is meaningless on the other backends, for a reason."""
    return pytest.mark.skipif(BACKEND not in backends, reason=reason)


@contextlib.contextmanager
def enable_x64():
    """Make JAX keep float64 and int64, as the other backends do."""
    if BACKEND != "jax":
        yield
        return
    with jax.enable_x64(True):
        yield


class _MaskProducer(keras.layers.Layer):
    def __init__(self, mask):
        super().__init__(autocast=False, name="carrier")  # TensorFlow refuses name scopes with a leading underscore
        self._mask = mask

    def call(self, tensor):
        return tensor

    def compute_mask(self, inputs, previous_mask=None):
        return ops.convert_to_tensor(self._mask)


class _MaskReader(keras.layers.Layer):
    def __init__(self):
        super().__init__(autocast=False, name="reader")
        self.supports_masking = True
        self.mask: Any = None

    def call(self, tensor, mask=None):
        self.mask = mask
        return tensor


def attach_mask(array, mask):
    """Return a tensor with an implicit mask, as `Embedding(mask_zero=True)` or `Masking` attach it.

    Layers attach and read the mask, because arrays of JAX have no attributes and Keras stores their masks elsewhere.
    """
    return _MaskProducer(mask)(array)


def read_mask(tensor):
    """Return the implicit mask that the next layer would receive, or None."""
    reader = _MaskReader()
    reader(tensor)
    return reader.mask
