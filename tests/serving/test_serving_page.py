"""The clients of docs/serving.md, run as they are written, against the service and MLServer with the page's bundle."""

import contextlib
import re
import subprocess
import warnings

import pytest
from bundle_service import OPTIONS, ROOT, running
from serving import serving_python, started

from keras_attn_export._serving.layout import write_layout

pytestmark = pytest.mark.serving

PAGE = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")
# Each with the output that is shown right below it.
PYTHON = re.findall(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```)?", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    """Return the bundle that the page makes."""
    folder = tmp_path_factory.mktemp("page")
    with contextlib.chdir(folder), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a softmax over one key
        exec(PYTHON[0][0], {})
    return folder / "bundle"


def told_and_shown(address, other, folder):
    """Run the client of an address, with another in its place; return what it prints, and what the page shows."""
    ((client, shown),) = (block for block in PYTHON if address in block[0])
    (folder / "client.py").write_text(client.replace(address, other), encoding="utf-8")
    done = subprocess.run(
        [serving_python(), "client.py"], cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )
    return done.stdout + done.stderr, shown


def test_the_client_of_the_service(bundle, tmp_path):
    with running(tmp_path, bundle) as server:
        told, shown = told_and_shown("127.0.0.1:8000", server.address("HTTP"), tmp_path)
    assert told == shown != ""


def test_the_client_of_mlserver(bundle, tmp_path):
    layout = write_layout(bundle, tmp_path / "models", target="mlserver")
    with started(layout.command, tmp_path) as server:
        assert server.ready(), server.log.read_text()[-3000:]
        told, shown = told_and_shown("127.0.0.1:8081", server.address("GRPC"), tmp_path)
    assert told == shown != ""


def test_the_command_of_the_page_is_that_of_the_tests():
    options = " ".join(OPTIONS).replace("--port 0", "--port 8000")
    assert f"\nBUNDLE=bundle uvicorn serve_bundle:app {options}\n" in PAGE.replace(" \\\n  ", " ")
