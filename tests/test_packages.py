"""What is said where a package is missing; .ci/use_extra.py shows it in environments that lack some."""

import re
import sys

import pytest
from bundles import python

from keras_attn_export import ExportError, _packages


def test_what_is_missing_is_told_with_the_command_that_installs_it():
    said = r"^A picture needs more packages \(No module .*no_such.*keras-attn\[plot\]"
    with pytest.raises(ExportError, match=said), _packages.needing("plot", "A picture"):
        import no_such  # noqa: F401


@pytest.mark.parametrize(
    ("missing", "said"),
    [
        (["tf2onnx"], 'needs tf2onnx. Install what is missing: pip install "keras-attn[convert]"'),
        (
            ["tensorflow", "onnxruntime"],
            'needs tensorflow, onnxruntime. Install what is missing: pip install "keras-attn[export]"',
        ),
    ],
)
def test_an_export_names_what_it_lacks_and_replaces_no_onnxruntime(missing, said, monkeypatch):
    for name in missing:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ExportError, match=re.escape(said)):
        _packages.check_export_packages()


def test_without_a_backend_of_keras_the_layers_say_what_to_install(tmp_path):
    done = python("-c", "import keras_attn", cwd=tmp_path, blocked=["tensorflow"])
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("ImportError: Keras cannot be imported (")
    assert 'pip install "keras-attn[export]"' in last
