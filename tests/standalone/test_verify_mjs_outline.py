"""`verify.mjs` says of the outline of an ONNX file what `verify.py` says, of hostile files and of changed ones."""

import base64

import numpy as np
import pytest
from hostile_outlines import HOSTILE, LEGAL
from onnx_outlines import mutated, trees

from keras_attn_export import BundleError
from keras_attn_export._standalone import verify

pytest_plugins = ("web_fixtures",)
pytestmark = pytest.mark.web


def in_node(judge, content, files):
    question = {"does": "outline", "bytes": base64.b64encode(content).decode(), "files": files}
    return judge.ask(question)["error"]


def in_python(path, content, files):
    path.write_bytes(content)
    try:
        verify._check_external_data(path, files)
    except BundleError as error:
        return str(error).removeprefix(str(path))
    return None


@pytest.mark.parametrize("name", [*HOSTILE, *LEGAL])
def test_the_same_of_what_is_hostile_or_legal(judge, name, tmp_path):
    content, said = HOSTILE.get(name) or (LEGAL[name], None)
    found = in_node(judge, content, {"inside": "its hash"})
    assert found == in_python(tmp_path / "x", content, {"inside": "its hash"})
    assert found is None if said is None else said in found


def test_the_same_of_changed_files(judge, random_seed, tmp_path):
    rng, found = np.random.default_rng(random_seed), []
    models = trees()
    files = dict.fromkeys(["data", "inside", *(f"data{number}" for number in range(100))], "its hash")
    for index in range(2000):
        content = mutated(models[index % len(models)], rng)
        found.append(in_node(judge, content, files))
        assert found[-1] == in_python(tmp_path / "x", content, files), content
    assert 200 < found.count(None) < 1800
