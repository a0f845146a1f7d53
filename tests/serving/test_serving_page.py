"""The client of docs/serving.md, run as written, against the service with the page's bundle."""

import contextlib
import re
import subprocess
import warnings

import pytest
from bundle_service import OPTIONS, ROOT, running, serving_python

pytestmark = [pytest.mark.nightly, pytest.mark.needs("serving")]

PAGE = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")
ADDRESS = "127.0.0.1:8000"
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


def test_client_of_the_page_prints_what_the_page_shows(bundle, tmp_path):
    ((client, shown),) = (block for block in PYTHON if ADDRESS in block[0])
    with running(tmp_path, bundle) as server:
        (tmp_path / "client.py").write_text(client.replace(ADDRESS, f"127.0.0.1:{server.port}"), encoding="utf-8")
        command = [serving_python(), "client.py"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout + done.stderr == shown != ""


def test_page_starts_the_service_as_the_tests_do():
    options = " ".join(OPTIONS).replace("--port 0", "--port 8000")
    assert f"\nBUNDLE=bundle uvicorn serve_bundle:app {options}\n" in PAGE.replace(" \\\n  ", " ")
