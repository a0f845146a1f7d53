"""Versions of installed packages, for the manifest."""

import sys
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, packages_distributions, version

PACKAGES = ("keras-attn", "tensorflow", "keras", "tf2onnx", "onnx", "numpy")
UNKNOWN = "unknown"


def read_versions(packages: Iterable[str]) -> dict[str, str]:
    """Return the version of each package: what its module says of itself, else what was installed.

    A nightly build is installed under another name, as `tf-nightly` for `tensorflow`, and a module on the path may not
    have been installed at all. Neither is worth an export that has gone well so far.
    """
    return {name: _read_version(name, name.replace("-", "_")) for name in packages}


def _read_version(package: str, module: str) -> str:
    module_version = getattr(sys.modules.get(module), "__version__", None)
    if isinstance(module_version, str):
        return module_version
    for distribution in (package, *packages_distributions().get(module, ())):
        try:
            return version(distribution)
        except PackageNotFoundError:
            continue
    return UNKNOWN
