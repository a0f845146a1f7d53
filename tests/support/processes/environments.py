"""The environment of a Python process that imports modules of tests/support."""

import os
from pathlib import Path

SUPPORT = Path(__file__).parents[1]
FOLDERS = ("models", "oracles", "files", "processes")


def build_environment(**variables):
    """Return the environment of this process, with the folders of tests/support added to `PYTHONPATH`."""
    inherited = filter(None, [os.environ.get("PYTHONPATH")])
    path = os.pathsep.join([*(str(SUPPORT / folder) for folder in FOLDERS), *inherited])
    return os.environ | {"PYTHONPATH": path} | variables
