"""Architectures written from their published descriptions, each exported by us and by Keras's own exporter."""

from importlib import import_module

from .registry import ZOO as ZOO

KINDS = "applications decoders graphs hub hub_images hub_multimodal images ours pixels recommendation series speech"
for kind in f"{KINDS} tables text".split():  # each puts its models on the list
    import_module(f".{kind}", __name__)
