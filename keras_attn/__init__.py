"""Attention layers for Keras: pooling with any scoring function, with masks that never leak.

Importing the package registers its layers with Keras under the package name `keras_attn` and changes nothing else.
"""

from . import decoding as decoding  # registers its layers
from ._additive import AdditiveAttention
from ._attention_cell import AttentionCell
from ._attention_rnn import AttentionRNN
from ._bilinear import BilinearAttention
from ._cosine import CosineAttention
from ._diagnostics import attention_entropy, coverage
from ._dot_product import DotProductAttention
from ._gaussian import GaussianAttention
from ._heatmaps import show_heatmaps
from ._linear_bias import LinearBias
from ._location_sensitive import LocationSensitiveAttention
from ._masking import MaskedSoftmax, masked_softmax
from ._multi_head import MultiHeadAttention
from ._pooling import AttentionPooling
from ._relative_position_bias import RelativePositionBias
from ._rotary import RotaryEmbedding

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
