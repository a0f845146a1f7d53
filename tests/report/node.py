"""Node and the packages in web/node_modules, for tests that are marked `needs("node")`."""

from pathlib import Path

from small_bundle import finished

ROOT = Path(__file__).resolve().parents[2]
WEB = ROOT / "web"


def node(*arguments, cwd=WEB):
    return finished("node", *arguments, cwd=cwd)
