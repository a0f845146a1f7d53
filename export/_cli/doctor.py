"""`keras-attn doctor`: what is installed here, and what is missing for what."""

import argparse
import os
import platform
import re
from collections.abc import Iterator
from importlib import metadata
from typing import Any

from .._dependencies import command, is_installed
from .._format.console import say
from .bundle_text import wrapped
from .command_helpers import new_parser

DISTRIBUTION = "keras-attn"
RUNTIMES = {"onnxruntime": "runtime", "onnxruntime-gpu": "gpu", "onnxruntime-openvino": "openvino"}
# What each extra is for; "" is what comes without one.
PURPOSES = {
    "": "layers",
    "convert": "export",
    "tools": "reports and tables",
    "plot": "heat maps",
    "ray": "tables on a cluster",
}
BACKENDS = ("tensorflow", "jax", "torch")
INSTALL_RUNTIME = 'pip install "keras-attn[runtime]"'
INDENT = 21


def add_parser(commands: Any) -> None:
    """Add the subcommand."""
    new_parser(commands, "doctor", main, "show versions and execution providers, and what is missing for what")


def main(arguments: argparse.Namespace) -> None:
    """Print what is here; nothing is imported but onnxruntime, which says what it can run on."""
    say(f"{DISTRIBUTION} {metadata.version(DISTRIBUTION)}, Python {platform.python_version()}, {platform.platform()}")
    areas = [
        ("layers", [*_packages(""), *_backend()]),
        ("run and check", [*_runtime()]),
        *((PURPOSES[extra], [*_packages(extra)]) for extra in PURPOSES if extra),
    ]
    for name, found in areas:
        say(*wrapped("; ".join(found), f"{name:{INDENT}}", " " * INDENT))


def _packages(extra: str) -> Iterator[str]:
    """Say of each package that an extra names which version is here; of what is not, how to install it."""
    from packaging.requirements import Requirement  # Keras brings it

    missing = []
    for line in metadata.requires(DISTRIBUTION) or ():
        needed = Requirement(line)
        asked = re.search(r"extra == ['\"](.*)['\"]", line)
        if (asked[1] if asked else "") != extra or needed.name == DISTRIBUTION:
            continue
        version = installed(needed.name)
        if version is None and not is_installed(needed.name.replace("-", "_")):
            missing.append(needed.name)
        elif version and version not in needed.specifier:
            yield f"{needed.name} {version}, which should be {needed.specifier}"
        else:
            yield f"{needed.name} {version or 'of a build of another name'}"
    if missing:
        yield f"missing {', '.join(missing)}: {command(extra) if extra else f'pip install {DISTRIBUTION}'}"


def _backend() -> Iterator[str]:
    """Say which backend Keras will take, as far as the environment tells."""
    asked = os.environ.get("KERAS_BACKEND")
    there = [f"{name} {version}" for name in BACKENDS if (version := installed(name))]
    yield f"installed backends: {', '.join(there) or 'none'}"
    yield f"KERAS_BACKEND is {asked or 'not set: keras.json decides, or else it is tensorflow'}"
    if not installed(asked or "tensorflow") and (asked in BACKENDS or not there):
        yield f"missing {asked or 'a backend'}: {f'pip install {asked}' if asked else command('export')}"


def _runtime() -> Iterator[str]:
    """Say which onnxruntime is here, and on what it runs."""
    there = [name for name in RUNTIMES if installed(name)]
    for name in there:
        yield from _packages(RUNTIMES[name])
    anew = f"pip uninstall --yes {' '.join(there)}, then {INSTALL_RUNTIME}" if there else INSTALL_RUNTIME
    if len(there) > 1:
        yield f"these overwrite each other: {anew}"
    try:
        import onnxruntime

        yield f"providers {', '.join(onnxruntime.get_available_providers())}"
    except (ImportError, AttributeError) as error:  # an empty folder is what uninstalling one of two leaves
        yield f"onnxruntime cannot be used ({error}): {anew}"


def installed(distribution: str) -> str | None:
    """Return the version of a package that is installed."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None
