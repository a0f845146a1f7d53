"""The snippets of docs/howto/javascript.md, run as they are written, on the bundle that the page makes."""

import contextlib
import re
import warnings

import pytest

from web import ROOT, node, project

pytestmark = pytest.mark.web

PAGE = (ROOT / "docs" / "howto" / "javascript.md").read_text("utf-8")
# What a server of the page's folder would answer.
SERVER = """
import { readFile } from 'node:fs/promises'
globalThis.fetch = async (place) => new Response(await readFile(place))
"""


@pytest.fixture(scope="module")
def page_folder(tmp_path_factory):
    """Return a project with the bundle that the page makes."""
    folder = project(tmp_path_factory.mktemp("page") / "project")
    (source,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    with contextlib.chdir(folder), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a softmax over one key
        exec(source, {})
    (folder / "server.mjs").write_text(SERVER)
    return folder


SNIPPETS = re.findall(r"^```js\n(// (\w+\.mjs).*?)^```\n(?:\n```text\n(.*?)^```)?", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(("source", "name", "shown"), SNIPPETS, ids=[name for _, name, _ in SNIPPETS])
def test_the_snippets_of_the_page_run(page_folder, source, name, shown):
    assert len(source.splitlines()) <= 20
    (page_folder / name).write_text(source)
    done = node("--import", "./server.mjs", name, cwd=page_folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == shown or re.fullmatch(r"(\d+) of \1 outputs match\n", done.stdout)


def test_the_page_shows_what_the_command_prints(page_folder):
    done = node("verify.mjs", "bundle", cwd=page_folder)
    assert [name for _, name, _ in SNIPPETS] == ["run.mjs", "check.mjs", "page.mjs"]
    assert done.stdout.splitlines()[-1] in PAGE, done.stdout
    assert done.stdout.splitlines()[0].split() == re.search("^case .*", PAGE, re.MULTILINE)[0].split()
