"""What the tests marked `web` share: Node, and the packages that `.ci/web-setup` puts into web/node_modules.

A test that wants them and finds them missing fails and says so: whoever chose the marker `web` asked for them.
"""

import functools
import json
import shutil
import subprocess
from pathlib import Path

import pytest
from bundles import finished

from keras_attn_export._standalone import verify

ROOT = Path(__file__).resolve().parents[2]
WEB = ROOT / "web"
VERIFY = Path(verify.__file__).with_name("verify.mjs")


@functools.cache
def node_program():
    """Return Node's program; fail where it, or what it needs, is missing."""
    program = shutil.which("node")
    if program is None:
        pytest.fail("Tests marked `web` need Node.js 20.12 or newer, which is not installed.", pytrace=False)
    if not (WEB / "node_modules" / ".complete").is_file():
        pytest.fail("Tests marked `web` need web/node_modules. `nox -s web` brings it.", pytrace=False)
    return program


def node(*arguments, cwd=WEB):
    return finished(node_program(), *arguments, cwd=cwd)


def project(folder):
    """Make a folder as a user of Node has it: with the packages of web/, and a copy of verify.mjs."""
    node_program()
    folder.mkdir()
    (folder / "node_modules").symlink_to(WEB / "node_modules", target_is_directory=True)
    shutil.copy(VERIFY, folder / VERIFY.name)
    return folder


class Answers:
    """A process of Node that answers questions by the `async function answer(question)` of a module, over JSON.

    The module finds the exports of verify.mjs in `verify`, and `node:fs` in `fs`. An error of its own comes back as
    `{"error": message}`.
    """

    _FRAME = """
import fs from 'node:fs'
import readline from 'node:readline'
const verify = await import(VERIFY)
SOURCE
const said = (value) => typeof value === 'bigint' || (typeof value === 'number' && !Number.isFinite(value))
const plain = (_, value) => (said(value) ? String(value) : value)
const failure = (error) => ({ error: error.message, kind: error.constructor.name })
for await (const line of readline.createInterface({ input: process.stdin })) {
  const found = await answer(JSON.parse(line)).catch(failure)
  console.log(JSON.stringify(found, plain))
}
"""

    def __init__(self, source):
        text = self._FRAME.replace("VERIFY", json.dumps(VERIFY.as_uri())).replace("SOURCE", source)
        command = [node_program(), "--input-type=module", "--eval", text]
        self._process = subprocess.Popen(command, cwd=WEB, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, question):
        """Return what the function makes of a question; numbers that are not finite come as text."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, "Node ended; what it said is above."
        return json.loads(answer, parse_int=_number)

    def close(self):
        self._process.communicate()


def _number(text):
    """JavaScript writes whole floats of many digits as integers, with zeros for the digits that it does not know."""
    return int(text) if len(text) < 16 else float(text)
