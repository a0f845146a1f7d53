"""Cases for all operators and layers of Keras and for the TensorFlow operators that tf2onnx maps, at special values."""

from . import (  # noqa: F401 - imported for the cases that each module adds
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
from .table import OPERATOR_CASES as OPERATOR_CASES
