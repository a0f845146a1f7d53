"""Every operator and layer of Keras, and those of TensorFlow that tf2onnx maps, at the values that break operators."""

from . import (  # noqa: F401 - list their rows
    of_axes,
    of_images,
    of_layers,
    of_linear_algebra,
    of_loops,
    of_numbers,
    of_places,
    of_tensorflow,
    of_tensorflow_numbers,
    of_tensorflow_pictures,
    of_tensorflow_steps,
)
from .table import ENTRIES as ENTRIES
