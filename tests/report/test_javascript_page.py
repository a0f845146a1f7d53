"""The snippets of docs/howto/javascript.md, run as they are written, on the bundle that the page makes."""

import contextlib
import re
import warnings

import pytest
from node import ROOT, WEB, node

pytestmark = [pytest.mark.nightly, pytest.mark.needs("node")]

PAGE = (ROOT / "docs" / "howto" / "javascript.md").read_text("utf-8")
# The answers of a server of the page's folder.
SERVER = """
import { readFile } from 'node:fs/promises'
globalThis.fetch = async (place) => new Response(await readFile(place))
"""
SNIPPETS = re.findall(r"^```js\n(// (\w+\.mjs).*?)^```\n\n```text\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def page_folder(tmp_path_factory):
    """Return a folder with the packages of web/ and the bundle that the page makes."""
    folder = tmp_path_factory.mktemp("page")
    (folder / "node_modules").symlink_to(WEB / "node_modules", target_is_directory=True)
    (source,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    with contextlib.chdir(folder), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a softmax over one key
        exec(source, {})
    (folder / "server.mjs").write_text(SERVER)
    return folder


@pytest.mark.parametrize(("source", "name", "shown"), SNIPPETS, ids=[name for _, name, _ in SNIPPETS])
def test_snippets_of_the_page_run(page_folder, source, name, shown):
    assert [name for _, name, _ in SNIPPETS] == ["run.mjs", "page.mjs"]
    (page_folder / name).write_text(source)
    done = node("--import", "./server.mjs", name, cwd=page_folder)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", shown)
