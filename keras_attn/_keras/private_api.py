"""Private APIs of Keras, TensorFlow and torch that this package depends on."""

from typing import Any

import keras
from keras.src.backend import get_stateless_scope as stateless_scope
from keras.src.backend import in_symbolic_scope, rnn
from keras.src.backend.common.masking import get_keras_mask, set_keras_mask

from .call_errors import CallErrorMixin

__all__ = ["get_keras_mask", "in_symbolic_scope", "set_keras_mask", "stateless_scope"]

loop_over_time = getattr(rnn, "rnn", rnn)  # `rnn` is a module since Keras 3.16


def all_sublayers(layer: Any) -> list[Any]:
    """Return all sublayers of a layer, at any depth."""
    return list(layer._flatten_layers(include_self=False))


def direct_sublayers(layer: Any) -> list[Any]:
    """Return the direct sublayers of a layer."""
    return list(layer._flatten_layers(include_self=False, recursive=False))


def inbound_nodes(layer: Any) -> list[Any]:
    """Return the nodes of a layer's calls in functional models."""
    return list(layer._inbound_nodes)


class LargestOutputMixin:
    """Mixin for layers that return weights in some calls only; list it before the Keras layer class."""

    @property
    def output(self) -> Any:
        """Outputs of the call with the most outputs; Keras has those of the first call, which may lack the weights."""
        return max((call.output_tensors for call in inbound_nodes(self)), key=len, default=None)


def is_eager() -> bool:
    """Return True if TensorFlow executes eagerly."""
    import tensorflow as tf

    return bool(tf.executing_eagerly())


def is_compiled_by_xla() -> bool:
    """Return True while TensorFlow traces a function with `jit_compile=True`."""
    import tensorflow as tf
    from tensorflow.python.ops import control_flow_util

    return not is_eager() and bool(control_flow_util.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph()))


def is_on_gpu(tensor: Any) -> bool:
    """Return True if a tensor of torch or JAX is computed on a GPU. TensorFlow was not measured on a GPU."""
    backend = keras.backend.backend()
    if backend == "torch":
        return getattr(getattr(tensor, "device", None), "type", "") == "cuda"  # a symbolic tensor has no device
    if backend == "jax":
        import jax

        return bool(jax.default_backend() == "gpu")
    return False


def in_functorch_transform() -> bool:
    """Return True inside of a transform of `torch.func`, such as `vmap`."""
    import torch

    return bool(torch._C._are_functorch_transforms_active())


# Attributes of `torch.nn.Module`.
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_GLOBAL_HOOKS = [f"_global{name}" for name in _HOOKS]


def can_skip_layer_call(layer: Any, *tensors: Any) -> bool:
    """Return True if `layer.call` can replace `layer(...)`: no hooks, casts, quantization or replaced methods."""
    # On torch `Layer.__call__` takes longer than the maths of a small layer. Other backends trace a call only once.
    if keras.backend.backend() != "torch":
        return False
    from torch.nn.modules import module

    attributes, call_methods = vars(layer), (keras.layers.Layer.__call__, CallErrorMixin.__call__)
    if any(attributes[name] for name in _HOOKS) or any(getattr(module, name) for name in _GLOBAL_HOOKS):
        return False
    if layer.activity_regularizer or layer.quantization_mode or layer._remat_mode or layer._compiled_call_impl:
        return False
    is_patched = "call" in attributes or "forward" in attributes or type(layer).__call__ not in call_methods
    dtype = layer.compute_dtype
    is_cast = all(keras.backend.standardize_dtype(tensor.dtype) == dtype for tensor in tensors)
    return bool(layer.built and is_cast and not is_patched)
