"""Pytest plugin for the option `--provider`, such as `--provider cuda`: the execution provider of onnxruntime.

In tests/lowerings the provider runs attention calls that were lowered to ONNX. In tests/contract and tests/bundle it
runs bundles. If onnxruntime lacks the provider, no tests run, and a usage error gives the reason.
"""

import atexit
import shutil
import tempfile
from functools import cache
from itertools import count
from pathlib import Path

import onnx
import onnxruntime as ort
import pytest
import tolerances

from keras_attn_export import Bundle, export_model, verify_bundle
from keras_attn_export._format.interruptible_session import open_session
from keras_attn_export._format.names import ExportError
from keras_attn_export._format.providers import PROVIDERS
from keras_attn_export._format.session import check_placement

FUNCTIONS_BY_TEST_FOLDER = {"contract": (export_model, Bundle.run), "bundle": (verify_bundle, Bundle.run)}
"""For each folder of tests, functions with an argument `provider`. During a test, the option replaces its default."""
PROBE_MODEL = '<ir_version: 8, opset_import: ["": 18]> probe (float[2] x) => (float[2] y) { y = Tanh (x) }'

_chosen_provider = "cpu"


def pytest_addoption(parser):
    parser.addoption(
        "--provider",
        choices=sorted(PROVIDERS),
        default="cpu",
        help="execution provider of onnxruntime for the attention calls of tests/lowerings, and for the bundles of "
        "tests/contract and tests/bundle",
    )


def pytest_configure(config):
    choose_provider(config.getoption("--provider"))


def choose_provider(provider):
    """Select a provider for the run, and multiply all tolerances by its `limit_factor`.

    Raise `pytest.UsageError` if onnxruntime lacks the provider.
    """
    global _chosen_provider
    _chosen_provider = provider
    if provider == "cpu":
        return
    try:
        open_on_provider(onnx.parser.parse_model(PROBE_MODEL))
    except ExportError as error:
        raise pytest.UsageError(f"--provider {provider}: {' '.join(str(error).split())}") from error
    limit_factor = PROVIDERS[provider].limit_factor
    for dtype, (relative, absolute) in tolerances.TOLERANCES.items():
        tolerances.TOLERANCES[dtype] = (limit_factor * relative, limit_factor * absolute)


def get_chosen_provider():
    return _chosen_provider


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    with pytest.MonkeyPatch.context() as patch:
        for function in FUNCTIONS_BY_TEST_FOLDER.get(item.path.parent.name, ()):
            patch.setitem(function.__kwdefaults__, "provider", _chosen_provider)
        return (yield)


def open_on_provider(model):
    """Open a session on the provider of the option, without TF32 if it is a GPU.

    A provider other than `cpu` must run all attention nodes of the model. Otherwise the first run of the
    session raises a `ProviderError`.
    """
    if _chosen_provider != "cpu":
        return PlacementCheckingSession(model)
    return ort.InferenceSession(model.SerializeToString(), providers=[PROVIDERS["cpu"].name])


@cache
def get_scratch_folder():
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder)
    return folder


class PlacementCheckingSession:
    """Session whose first run raises a `ProviderError` if another provider ran an attention node."""

    profile_numbers = count()

    def __init__(self, model):
        file = get_scratch_folder() / "model.onnx"
        file.write_bytes(model.SerializeToString())
        options = ort.SessionOptions()
        options.enable_profiling, options.profile_file_prefix = (
            True,
            f"{get_scratch_folder()}/{next(self.profile_numbers)}",
        )
        self._session, self._is_checked = open_session(file, _chosen_provider, session_options=options), False

    def run(self, names, inputs):
        outputs = self._session.run(names, inputs)
        if not self._is_checked:
            check_placement(Path(self._session.end_profiling()), _chosen_provider)
            self._is_checked = True
        return outputs
