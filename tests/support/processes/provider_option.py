"""A plugin of pytest: `--provider cuda` runs lowered calls, and the bundles of tests/contract and tests/bundle, there.

Where onnxruntime cannot have the provider nothing is run, and one sentence says why.
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
from keras_attn_export._format.names import MODEL, ExportError
from keras_attn_export._format.providers import PROVIDERS
from keras_attn_export._format.session import check_placement

BY_DEFAULT = {"contract": (export_model, Bundle.run), "bundle": (verify_bundle, Bundle.run)}
"""By folder of tests what takes the provider of the run where a call names none."""
EMPTY = '<ir_version: 8, opset_import: ["": 18]> probe (float[2] x) => (float[2] y) { y = Tanh (x) }'

_chosen = "cpu"


def pytest_addoption(parser):
    parser.addoption(
        "--provider",
        choices=sorted(PROVIDERS),
        default="cpu",
        help="where onnxruntime runs lowered calls and bundles, in tests/lowerings, tests/contract and tests/bundle",
    )


def pytest_configure(config):
    choose(config.getoption("--provider"))


def choose(provider):
    """Run on a provider from now on, with its tolerances, or raise `pytest.UsageError` where it cannot be had."""
    global _chosen
    _chosen = provider
    if provider == "cpu":
        return
    try:
        open_on_provider(onnx.parser.parse_model(EMPTY))
    except ExportError as error:
        raise pytest.UsageError(f"--provider {provider}: {' '.join(str(error).split())}") from error
    lenience = PROVIDERS[provider].limit_factor
    for dtype, (relative, absolute) in tolerances.TOLERANCES.items():
        tolerances.TOLERANCES[dtype] = (lenience * relative, lenience * absolute)


def get_chosen_provider():
    return _chosen


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    with pytest.MonkeyPatch.context() as patch:
        for function in BY_DEFAULT.get(item.path.parent.name, ()):
            patch.setitem(function.__kwdefaults__, "provider", _chosen)
        return (yield)


def open_on_provider(model):
    """A session of a model on exactly the provider of this run, without TF32; `ProviderError` where that cannot be."""
    if _chosen != "cpu":
        return Placed(model)
    return ort.InferenceSession(model.SerializeToString(), providers=[PROVIDERS["cpu"].name])


@cache
def scratch():
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder)
    return folder


class Placed:
    """A session whose first run raises `ProviderError` unless it was on the provider, with all of attention in it."""

    numbers = count()

    def __init__(self, model):
        file = scratch() / MODEL
        file.write_bytes(model.SerializeToString())
        options = ort.SessionOptions()
        options.enable_profiling, options.profile_file_prefix = True, f"{scratch()}/{next(self.numbers)}"
        self._session, self._shown = open_session(file, _chosen, session_options=options), False

    def run(self, names, inputs):
        outputs = self._session.run(names, inputs)
        if not self._shown:
            check_placement(Path(self._session.end_profiling()), _chosen)
            self._shown = True
        return outputs
