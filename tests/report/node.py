"""Node and the packages in web/node_modules, for tests that are marked `needs("node")`."""

from pathlib import Path

from small_bundle import run_command

ROOT = Path(__file__).resolve().parents[2]
WEB = ROOT / "web"


def run_node(*arguments, cwd=WEB):
    return run_command("node", *arguments, cwd=cwd)
