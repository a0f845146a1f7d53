"""Option `--provider`: missing providers are refused, and sessions check the placement of attention."""

import json

import lowered_calls
import numpy as np
import onnxruntime
import provider_option
import pytest
from tolerances import TOLERANCES

from keras_attn_export import ProviderError
from keras_attn_export._format import session
from keras_attn_export._format.providers import PROVIDERS

PLAN = lowered_calls.Plan(lengths="examples")


@pytest.fixture
def on_cuda(monkeypatch):
    """State of a run with `--provider cuda`, with the CPU in the role of CUDA."""
    monkeypatch.setitem(PROVIDERS, "cuda", PROVIDERS["cuda"]._replace(name="CPUExecutionProvider", options={}))
    monkeypatch.setattr(provider_option, "_chosen_provider", "cpu")
    for dtype, tolerance in TOLERANCES.items():
        monkeypatch.setitem(TOLERANCES, dtype, tolerance)
    provider_option.choose_provider("cuda")


@pytest.mark.skipif("CUDAExecutionProvider" in onnxruntime.get_available_providers(), reason="CUDA is available")
def test_missing_provider_ends_the_run(monkeypatch):
    monkeypatch.setattr(provider_option, "_chosen_provider", "cpu")
    with pytest.raises(pytest.UsageError, match=r"^--provider cuda: This onnxruntime has no CUDAExecutionProvider"):
        provider_option.choose_provider("cuda")


@pytest.mark.usefixtures("on_cuda")
def test_provider_selects_function_bodies_and_wider_limits():
    relative, _ = TOLERANCES["float32"]
    assert relative == PROVIDERS["cuda"].limit_factor * 1e-5
    run = lowered_calls.open_session(PLAN, "adaptive", 18).run  # on CUDA its form has blocks of queries
    inputs = PLAN.inputs(3, 5)
    np.testing.assert_allclose(run(None, inputs)[0], lowered_calls.compute_expected(PLAN, inputs)[0], atol=1e-5)


@pytest.mark.usefixtures("on_cuda")
def test_attention_on_another_provider_raises(monkeypatch):
    load_json = json.loads

    def move_softmax(text):
        events = load_json(text)
        for event in events:
            if event.get("args", {}).get("op_name") == "Softmax":
                event["args"]["provider"] = "OtherExecutionProvider"
        return events

    monkeypatch.setattr(session.json, "loads", move_softmax)
    run = lowered_calls.open_session(PLAN, "portable", 18).run
    with pytest.raises(ProviderError, match=r"^Attention did not run on CPUExecutionProvider alone: of layer `layer`"):
        run(None, PLAN.inputs(3, 5))
