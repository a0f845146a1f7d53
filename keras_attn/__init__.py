"""Attention layers for Keras: pooling with any scoring function, with masks that never leak.

Importing the package registers its layers with Keras under the package name `keras_attn` and changes nothing else.
"""

from ._additive import AdditiveAttention
from ._bilinear import BilinearAttention
from ._cosine import CosineAttention
from ._diagnostics import attention_entropy, coverage
from ._dot_product import DotProductAttention
from ._gaussian import GaussianAttention
from ._heatmaps import show_heatmaps
from ._masking import MaskedSoftmax, masked_softmax
from ._multi_head import MultiHeadAttention
from ._pooling import AttentionPooling

__version__ = "0.1.0"

__all__ = [
    "AdditiveAttention",
    "AttentionPooling",
    "BilinearAttention",
    "CosineAttention",
    "DotProductAttention",
    "GaussianAttention",
    "MaskedSoftmax",
    "MultiHeadAttention",
    "attention_entropy",
    "coverage",
    "masked_softmax",
    "show_heatmaps",
]
