"""Device queries: whether a tensor is computed on a GPU."""

import keras

from .._types import Tensor


def is_on_gpu(tensor: Tensor) -> bool:
    """Whether a tensor of torch or JAX is computed on a GPU. TensorFlow was not measured there."""
    backend = keras.backend.backend()
    if backend == "torch":
        return getattr(getattr(tensor, "device", None), "type", "") == "cuda"  # one without numbers has none
    if backend == "jax":
        import jax

        return bool(jax.default_backend() == "gpu")
    return False
