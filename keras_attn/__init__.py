"""Attention layers for Keras, with any scoring function and exact masks.

Importing the package registers its layers with Keras under the package name `keras_attn` and changes nothing else.
"""

try:
    import keras as _keras  # noqa: F401
except ImportError as error:
    raise ImportError(
        f"Keras cannot be imported ({error}). Keras needs one of TensorFlow, JAX and torch. Install TensorFlow with "
        '`pip install "keras-attn[export]"`, or install JAX or torch, and set KERAS_BACKEND to the package name.',
        name=error.name,
    ) from error

from . import decoding as decoding  # registers its layers
from ._heatmaps import show_heatmaps
from ._layers.additive import AdditiveAttention
from ._layers.bilinear import BilinearAttention
from ._layers.cosine import CosineAttention
from ._layers.dot_product import DotProductAttention
from ._layers.gaussian import GaussianAttention
from ._layers.location_sensitive import LocationSensitiveAttention
from ._layers.masked_softmax import MaskedSoftmax, masked_softmax
from ._layers.multi_head import MultiHeadAttention
from ._pooling.attention_pooling import AttentionPooling
from ._positions.linear_bias import LinearBias
from ._positions.relative_bias import RelativePositionBias
from ._positions.rotary import RotaryEmbedding
from ._recurrent.cell import AttentionCell
from ._recurrent.rnn import AttentionRNN
from ._weight_statistics import attention_entropy, coverage

__version__ = "0.1.0"

__all__ = [
    "AdditiveAttention",
    "AttentionCell",
    "AttentionPooling",
    "AttentionRNN",
    "BilinearAttention",
    "CosineAttention",
    "DotProductAttention",
    "GaussianAttention",
    "LinearBias",
    "LocationSensitiveAttention",
    "MaskedSoftmax",
    "MultiHeadAttention",
    "RelativePositionBias",
    "RotaryEmbedding",
    "attention_entropy",
    "coverage",
    "masked_softmax",
    "show_heatmaps",
]
