"""A plugin of pytest: processes of Node that read, judge and hash with `verify.mjs`, for tests beside `verify.py`."""

import pytest

from web import Answers

# A case whose inputs are what a session gave is a comparison that fits in one file.
JUDGE = """
async function answer({ does, path, tolerance, lenience, text, bytes: held, files, manifest }) {
  const bytes = path === undefined ? null : new Uint8Array(fs.readFileSync(path))
  if (does === 'hash') return verify.sha256(bytes)
  if (does === 'outline') {
    verify.checkExternalData('', new Uint8Array(Buffer.from(held, 'base64')), files)
    return { error: null }
  }
  if (does === 'manifest') return verify.checkManifest(text)
  if (does === 'read') {
    const arrays = [...(await verify.readArrays(bytes))]
    return arrays.map(([name, { dtype, shape, data }]) => [name, dtype, shape, Array.from(data)])
  }
  const cases = await verify.readCases(bytes, manifest)
  if (does === 'cases') return cases.length
  if (does === 'rounding') return cases.map(({ rounding }) => [...rounding].map(([, { data }]) => Array.from(data)))
  const rows = cases.flatMap((each) => verify.compare(each, each.inputs, tolerance, lenience))
  return { rows, table: verify.formatRows(rows) }
}
"""


@pytest.fixture(scope="module")
def judge():
    answers = Answers(JUDGE)
    yield answers
    answers.close()


@pytest.fixture(scope="module")
def without_subtle():
    """Return one without `crypto.subtle`, as a page is that came by plain http."""
    answers = Answers("Object.defineProperty(globalThis, 'crypto', { value: {} })\n" + JUDGE)
    yield answers
    answers.close()


@pytest.fixture
def file(tmp_path):
    return tmp_path / "cases.npz"
