"""Attention layers for Keras: additive and scaled dot-product pooling with masks that never leak.

Importing the package registers its layers with Keras under the package name `keras_attn` and changes nothing else.
"""

from ._additive import AdditiveAttention
from ._dot_product import DotProductAttention
from ._heatmaps import show_heatmaps
from ._masking import MaskedSoftmax, masked_softmax
from ._pooling import AttentionPooling

__version__ = "0.1.0"

__all__ = [
    "AdditiveAttention",
    "AttentionPooling",
    "DotProductAttention",
    "MaskedSoftmax",
    "masked_softmax",
    "show_heatmaps",
]
