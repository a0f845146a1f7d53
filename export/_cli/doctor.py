"""`keras-attn doctor`: installed versions and execution providers, and missing packages."""

import argparse
import os
import platform
import re
from collections.abc import Iterator
from importlib import metadata
from typing import Any

from .._dependencies import install_command, is_installed
from .._format.console import print_escaped
from .bundle_text import wrap_text
from .command_helpers import new_parser

DISTRIBUTION = "keras-attn"
RUNTIMES = {"onnxruntime": "runtime", "onnxruntime-gpu": "gpu", "onnxruntime-openvino": "openvino"}
# Title of an extra's packages; the key "" stands for packages that are always installed.
TITLES = {
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
    """Print versions of packages. Only onnxruntime is imported, which lists its execution providers."""
    python = platform.python_version()
    print_escaped(f"{DISTRIBUTION} {metadata.version(DISTRIBUTION)}, Python {python}, {platform.platform()}")
    areas = [
        ("layers", [*_describe_packages(""), *_describe_backend()]),
        ("run and check", [*_describe_runtime()]),
        *((TITLES[extra], [*_describe_packages(extra)]) for extra in TITLES if extra),
    ]
    for name, facts in areas:
        print_escaped(*wrap_text("; ".join(facts), f"{name:{INDENT}}", " " * INDENT))


def _describe_packages(extra: str) -> Iterator[str]:
    """Yield the installed version of each package of an extra, then the command that installs missing packages."""
    from packaging.requirements import Requirement  # Keras brings it

    missing = []
    for line in metadata.requires(DISTRIBUTION) or ():
        requirement = Requirement(line)
        match = re.search(r"extra == ['\"](.*)['\"]", line)
        if (match[1] if match else "") != extra or requirement.name == DISTRIBUTION:
            continue
        version = find_version(requirement.name)
        if version is None and not is_installed(requirement.name.replace("-", "_")):
            missing.append(requirement.name)
        elif version and version not in requirement.specifier:
            yield f"{requirement.name} {version}, which should be {requirement.specifier}"
        else:
            yield f"{requirement.name} {version or 'from a distribution of another name'}"
    if missing:
        yield f"missing {', '.join(missing)}: {install_command(extra) if extra else f'pip install {DISTRIBUTION}'}"


def _describe_backend() -> Iterator[str]:
    """Yield installed backends, and the setting that selects one."""
    backend = os.environ.get("KERAS_BACKEND")
    installed_backends = [f"{name} {version}" for name in BACKENDS if (version := find_version(name))]
    yield f"installed backends: {', '.join(installed_backends) or 'none'}"
    yield f"KERAS_BACKEND is {backend or 'not set: keras.json selects the backend, by default tensorflow'}"
    if not find_version(backend or "tensorflow") and (backend in BACKENDS or not installed_backends):
        yield f"missing {backend or 'a backend'}: {f'pip install {backend}' if backend else install_command('export')}"


def _describe_runtime() -> Iterator[str]:
    """Yield installed distributions of onnxruntime and its execution providers."""
    packages = [name for name in RUNTIMES if find_version(name)]
    for name in packages:
        yield from _describe_packages(RUNTIMES[name])
    remedy = f"pip uninstall --yes {' '.join(packages)}, then {INSTALL_RUNTIME}" if packages else INSTALL_RUNTIME
    if len(packages) > 1:
        yield f"these overwrite each other: {remedy}"
    try:
        import onnxruntime

        yield f"providers {', '.join(onnxruntime.get_available_providers())}"
    # pip leaves an empty folder if one of two packages is uninstalled: AttributeError.
    except (ImportError, AttributeError) as error:
        yield f"onnxruntime cannot be used ({error}): {remedy}"


def find_version(distribution: str) -> str | None:
    """Return the version of an installed distribution, or None."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None
