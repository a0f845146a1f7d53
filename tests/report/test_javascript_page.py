"""The snippets of docs/howto/javascript.md, run without changes on the bundle that the page exports."""

import contextlib
import re
import warnings

import pytest
from node import ROOT, WEB, run_node

pytestmark = [pytest.mark.nightly, pytest.mark.needs("node")]

PAGE = (ROOT / "docs" / "howto" / "javascript.md").read_text("utf-8")
# Replaces `fetch` by reads of files in the folder of the page.
SERVER = """
import { readFile } from 'node:fs/promises'
globalThis.fetch = async (path) => new Response(await readFile(path))
"""
SNIPPETS = re.findall(r"^```js\n(// (\w+\.mjs).*?)^```\n\n```text\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def page_folder(tmp_path_factory):
    """A folder with the packages of web/ and the bundle that the page exports."""
    folder = tmp_path_factory.mktemp("page")
    (folder / "node_modules").symlink_to(WEB / "node_modules", target_is_directory=True)
    (source,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    with contextlib.chdir(folder), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Keras warns about a softmax over one key
        exec(source, {})
    (folder / "server.mjs").write_text(SERVER)
    return folder


@pytest.mark.parametrize(("source", "name", "expected"), SNIPPETS, ids=[name for _, name, _ in SNIPPETS])
def test_snippets_of_the_page_run(page_folder, source, name, expected):
    assert [name for _, name, _ in SNIPPETS] == ["run.mjs", "page.mjs"]
    (page_folder / name).write_text(source)
    result = run_node("--import", "./server.mjs", name, cwd=page_folder)
    assert (result.returncode, result.stderr, result.stdout) == (0, "", expected)
