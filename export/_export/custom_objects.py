"""Custom classes and functions of a model: find their import paths, and import them in another process."""

import importlib
from collections.abc import Iterator, Mapping
from functools import reduce
from typing import Any

import keras

from .._errors import UnsupportedModelError
from .._private_api.keras_internals import find_layers

ImportPaths = dict[str, tuple[str, str]]  # (module, qualified name) by the name in a saved configuration


def find_import_paths(model: keras.Model) -> ImportPaths:
    """Return the import paths of custom objects in a model's configuration, or raise `UnsupportedModelError`."""
    # Only classes of layers may be unregistered.
    classes = {keras.saving.get_registered_name(type(layer)): type(layer) for layer in find_layers(model)}
    import_paths: ImportPaths = {}
    for name in _iterate_saved_names(keras.saving.serialize_keras_object(model)):
        custom = keras.saving.get_registered_object(name) or classes.get(name)
        if custom is not None:
            _check_importable(custom)
            import_paths[name] = (custom.__module__, custom.__qualname__)
    return import_paths


def import_custom_objects(import_paths: Mapping[str, tuple[str, str]]) -> dict[str, Any]:
    """Import the objects of `find_import_paths`, by the same names, or raise `UnsupportedModelError`."""
    objects = {}
    for name, (module, qualified_name) in import_paths.items():
        try:
            objects[name] = reduce(getattr, qualified_name.split("."), importlib.import_module(module))
        except Exception as error:  # the user's module may raise any error when it is imported
            raise UnsupportedModelError(
                f"`{qualified_name}` cannot be imported from `{module}` in a process with TensorFlow: {error}"
            ) from error
    return objects


def _iterate_saved_names(config: Any) -> Iterator[str]:
    """Yield the names of registered objects in a saved configuration."""
    if isinstance(config, Mapping):
        if "class_name" in config:
            name = config.get("config" if config["class_name"] == "function" else "registered_name")
            if isinstance(name, str):
                yield name
        # An export needs no losses and metrics.
        config = [value for key, value in config.items() if key != "compile_config"]
    for element in config if isinstance(config, list | tuple) else ():
        yield from _iterate_saved_names(element)


def _check_importable(custom: Any) -> None:
    name = custom.__qualname__
    if custom.__module__ == "__main__":
        location = "in the script or notebook that is running (`__main__`)"
    elif "<locals>" in name:
        location = "inside a function"
    else:
        return
    raise UnsupportedModelError(
        f"`{name}` is defined {location}. A model on JAX or torch is traced in a separate process, which cannot "
        f"import it from there. Move `{custom.__name__}` to the top level of a module, and import it."
    )
