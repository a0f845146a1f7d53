"""The client of docs/serving.md, run without changes against the service with the bundle of the page."""

import contextlib
import re
import subprocess
import warnings

import pytest
from bundle_service import OPTIONS, ROOT, find_serving_python, run_service

pytestmark = [pytest.mark.nightly, pytest.mark.needs("serving")]

PAGE = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")
ADDRESS = "127.0.0.1:8000"
# Python snippets of the page, each with the output below it.
SNIPPETS = re.findall(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```)?", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    """The bundle that the page exports."""
    folder = tmp_path_factory.mktemp("page")
    with contextlib.chdir(folder), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Keras warns about a softmax over one key
        exec(SNIPPETS[0][0], {})
    return folder / "bundle"


def test_client_of_the_page_prints_the_shown_output(bundle, tmp_path):
    ((client, expected),) = (block for block in SNIPPETS if ADDRESS in block[0])
    with run_service(tmp_path, bundle) as server:
        (tmp_path / "client.py").write_text(client.replace(ADDRESS, f"127.0.0.1:{server.port}"), encoding="utf-8")
        command = [find_serving_python(), "client.py"]
        result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert result.stdout + result.stderr == expected != ""


def test_page_and_tests_start_the_service_with_equal_options():
    options = " ".join(OPTIONS).replace("--port 0", "--port 8000")
    assert f"\nBUNDLE=bundle uvicorn serve_bundle:app {options}\n" in PAGE.replace(" \\\n  ", " ")
