"""Error messages of missing packages; .ci/use_extra.py tests environments that lack some."""

import re
import sys

import pytest
from small_bundle import run_python

from keras_attn_export import ExportError, _dependencies


def test_missing_package_is_named_with_the_command_that_installs_it():
    message = r"^A picture needs more packages \(No module .*no_such.*keras-attn\[plot\]"
    with pytest.raises(ExportError, match=message), _dependencies.require_extra("plot", "A picture"):
        import no_such  # noqa: F401


@pytest.mark.parametrize(("missing", "extra"), [("tf2onnx", "convert"), ("tensorflow, onnxruntime", "export")])
def test_export_names_missing_packages_and_the_smallest_extra(missing, extra, monkeypatch):
    for name in missing.split(", "):
        monkeypatch.setitem(sys.modules, name, None)
    message = f'needs {missing}. Install what is missing: pip install "keras-attn[{extra}]"'
    with pytest.raises(ExportError, match=re.escape(message)):
        _dependencies.check_export_packages()


def test_import_without_a_backend_of_keras_names_the_extra(tmp_path):
    result = run_python("-c", "import keras_attn", cwd=tmp_path, blocked=["tensorflow"])
    assert result.returncode == 1
    last = result.stderr.splitlines()[-1]
    assert last.startswith("ImportError: Keras cannot be imported (")
    assert 'pip install "keras-attn[export]"' in last
