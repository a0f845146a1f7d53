"""Every operator and layer of Keras, and those of TensorFlow that tf2onnx maps, at the values that break operators."""

from . import of_images, of_layers, of_linear_algebra, of_loops, of_numbers, of_tensorflow  # noqa: F401 - list their rows
from .table import ENTRIES as ENTRIES
