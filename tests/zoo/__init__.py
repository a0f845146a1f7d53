"""Architectures written from their published descriptions, each exported by us and by Keras's own exporter."""

from . import (  # noqa: F401 - each puts its models on the list
    applications,
    decoders,
    graphs,
    hub,
    hub_images,
    images,
    ours,
    pixels,
    recommendation,
    series,
    speech,
    tables,
    text,
)
from .registry import ZOO

__all__ = ["ZOO"]
