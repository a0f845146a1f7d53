"""Where the backend of Keras computes."""

from functools import cache

import keras


@cache
def is_gpu() -> bool:
    """Whether JAX or torch computes on a GPU, as Keras lets them where there is one. TensorFlow was not measured."""
    backend = keras.backend.backend()
    if backend == "torch":
        import torch

        return bool(torch.cuda.is_available())
    if backend == "jax":
        import jax

        return bool(jax.default_backend() == "gpu")
    return False
