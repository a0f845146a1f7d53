"""What is said where a package is missing; .ci/use_extra.py shows it in environments that lack some."""

import re
import sys

import pytest
from small_bundle import run_python

from keras_attn_export import ExportError, _dependencies


def test_missing_package_is_named_with_the_command_that_installs_it():
    said = r"^A picture needs more packages \(No module .*no_such.*keras-attn\[plot\]"
    with pytest.raises(ExportError, match=said), _dependencies.require_extra("plot", "A picture"):
        import no_such  # noqa: F401


@pytest.mark.parametrize(("missing", "extra"), [("tf2onnx", "convert"), ("tensorflow, onnxruntime", "export")])
def test_export_names_missing_packages_and_an_extra_that_replaces_no_onnxruntime(missing, extra, monkeypatch):
    for name in missing.split(", "):
        monkeypatch.setitem(sys.modules, name, None)
    said = f'needs {missing}. Install what is missing: pip install "keras-attn[{extra}]"'
    with pytest.raises(ExportError, match=re.escape(said)):
        _dependencies.check_export_packages()


def test_import_without_a_backend_of_keras_names_the_extra(tmp_path):
    done = run_python("-c", "import keras_attn", cwd=tmp_path, blocked=["tensorflow"])
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("ImportError: Keras cannot be imported (")
    assert 'pip install "keras-attn[export]"' in last
