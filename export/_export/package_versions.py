"""Versions of packages, for the manifest."""

import sys
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, packages_distributions, version

PACKAGES = ("keras-attn", "tensorflow", "keras", "tf2onnx", "onnx", "numpy")
UNKNOWN = "unknown"


def read_versions(packages: Iterable[str]) -> dict[str, str]:
    """Return the version of each package: `__version__` of an imported module, or of the installed distribution."""
    return {name: _read_version(name, name.replace("-", "_")) for name in packages}


def _read_version(package: str, module: str) -> str:
    module_version = getattr(sys.modules.get(module), "__version__", None)
    if isinstance(module_version, str):
        return module_version
    # Nightly builds are installed under another name, such as `tf-nightly` for `tensorflow`.
    for distribution in (package, *packages_distributions().get(module, ())):
        try:
            return version(distribution)
        except PackageNotFoundError:
            continue
    # A module on the path need not be installed, which is no reason for an export to fail.
    return UNKNOWN
