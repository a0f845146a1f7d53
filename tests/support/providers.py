"""`--provider cuda`: lowered calls and bundles run there, for tests/lowerings, tests/contract and tests/bundle.

A pytest plugin. Where onnxruntime cannot have the provider nothing is run, and one sentence says why.
"""

import atexit
import shutil
import tempfile
from collections.abc import Iterator
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import onnx
import onnxruntime as ort
import pytest
import tolerances

from keras_attn_export import Bundle, export_model, verify_bundle
from keras_attn_export._standalone import verify

BY_DEFAULT = {"contract": (export_model, Bundle.run), "bundle": (verify_bundle, Bundle.run)}
"""By folder of tests what takes the provider of the run where a call names none."""
EMPTY = '<ir_version: 8, opset_import: ["": 18]> probe (float[2] x) => (float[2] y) { y = Tanh (x) }'

_chosen = "cpu"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--provider",
        choices=sorted(verify.PROVIDERS),
        default="cpu",
        help="where onnxruntime runs lowered calls and bundles, in tests/lowerings, tests/contract and tests/bundle",
    )


def pytest_configure(config: pytest.Config) -> None:
    choose(config.getoption("--provider"))


def choose(provider: str) -> None:
    """Run on a provider from now on, with the tolerances that it has.

    Raises:
        pytest.UsageError: onnxruntime cannot have it.
    """
    global _chosen
    _chosen = provider
    if provider == "cpu":
        return
    try:
        opened(onnx.parser.parse_model(EMPTY))
    except verify.ExportError as error:
        raise pytest.UsageError(f"--provider {provider}: {' '.join(str(error).split())}") from error
    lenience = verify.LENIENCE[provider]
    for dtype, (relative, absolute) in tolerances.TOLERANCES.items():
        tolerances.TOLERANCES[dtype] = (lenience * relative, lenience * absolute)


def chosen() -> str:
    return _chosen


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for function in BY_DEFAULT.get(item.path.parent.name, ()):
            patch.setitem(function.__kwdefaults__, "provider", _chosen)
        return (yield)


def opened(model: onnx.ModelProto) -> Any:
    """A session of a model on exactly the provider of this run, without TF32; see `Placed`.

    Raises:
        ProviderError: onnxruntime lacks the provider, or fell back to another.
    """
    if _chosen != "cpu":
        return Placed(model)
    return ort.InferenceSession(model.SerializeToString(), providers=[verify.PROVIDERS["cpu"]])


@cache
def scratch() -> Path:
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder)
    return folder


class Placed:
    """A session whose first run raises `ProviderError` unless it was on the provider, with all of attention in it."""

    numbers = count()

    def __init__(self, model: onnx.ModelProto) -> None:
        file = scratch() / verify.MODEL
        file.write_bytes(model.SerializeToString())
        prefix = f"{scratch()}/{next(self.numbers)}"
        self._session, self._shown = verify.open_session(file, _chosen, profile_prefix=prefix), False

    def run(self, names: list[str] | None, inputs: verify.Arrays) -> list[Any]:
        outputs: list[Any] = self._session.run(names, inputs)
        if not self._shown:
            verify.check_placement(Path(self._session.end_profiling()), _chosen)
            self._shown = True
        return outputs
