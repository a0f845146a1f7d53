"""Published architectures, exported by `export_model` and by Keras's own exporter."""

from importlib import import_module

from .registry import ZOO as ZOO

MODULES = "applications decoders graphs hub hub_images hub_multimodal images ours pixels recommendation series speech"
for module in f"{MODULES} tables text".split():  # the import of a module registers its architectures
    import_module(f".{module}", __name__)
