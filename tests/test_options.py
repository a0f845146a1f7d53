"""The choices of an export."""

import inspect
from dataclasses import MISSING, fields

import numpy as np
import onnxruntime
import pytest

from keras_attn_export import ExportError, InputError, export_model
from keras_attn_export._options import (
    BATCHED,
    LOWEST_FOR_LOWERING,
    LOWEST_ONNXRUNTIME,
    OPSETS,
    Options,
    check_onnxruntime,
    checked_options,
    lowest_onnxruntime,
)


def asked(tolerance=None, static_axes=None, **others):
    return checked_options(tolerance=tolerance, static_axes=static_axes, **others)


def test_defaults_are_those_of_export_model():
    given = inspect.signature(export_model).parameters
    same = {each.name: each.default for each in fields(Options) if each.name in given and each.default is not MISSING}
    plain = {"opset", "lowering", "precision", "provider", "safe_mode", "strict", "target", "calibration", "limit"}
    plain |= {"saved_model"}
    assert set(same) == plain
    assert {name: given[name].default for name in same} == same


def test_every_opset_has_a_lowest_onnxruntime():
    assert set(LOWEST_ONNXRUNTIME) == set(OPSETS) == set(range(18, 25))


def test_fused_needs_its_opset():
    asked(lowering="fused")
    asked(opset=24, lowering="fused")
    with pytest.raises(ExportError, match=r"`lowering='fused'` needs opset 24.* Received: opset=23"):
        asked(opset=23, lowering="fused")


def test_the_lowest_onnxruntime_is_that_of_opset_and_lowerings():
    assert lowest_onnxruntime(18, ["portable"]) == LOWEST_ONNXRUNTIME[18]
    assert lowest_onnxruntime(24, [BATCHED, "portable"]) == "1.31"
    assert lowest_onnxruntime(18, [BATCHED, "portable"]) == LOWEST_FOR_LOWERING[BATCHED]
    assert lowest_onnxruntime(24, ["adaptive"]) == LOWEST_FOR_LOWERING["fused"]
    assert lowest_onnxruntime(18, ["adaptive"]) == LOWEST_FOR_LOWERING["adaptive"]


@pytest.mark.parametrize("opset", [17, 25, "18", 18.0, True])
def test_an_opset_out_of_range(opset):
    with pytest.raises(ExportError, match="`opset` must be an integer from 18 to 24"):
        asked(opset=opset)


@pytest.mark.parametrize("name", ["lowering", "precision", "provider"])
def test_unknown_choices(name):
    with pytest.raises(ExportError, match=rf"`{name}` must be one of .* Received: 'best'"):
        asked(**{name: "best"})


def test_a_static_axis_has_a_size_of_1_or_more():
    assert asked(static_axes={"batch": np.int64(1)}).static_axes == {"batch": 1}
    for size in (0, 1.0, True):
        with pytest.raises(InputError, match=rf"integers of 1 or more\. Received: 'batch': {size}\."):
            asked(static_axes={"batch": size})


@pytest.mark.parametrize("lowering", ["ragged", "batched", "auto"])
def test_a_lowering_that_another_replaces(lowering):
    with pytest.raises(ExportError, match=rf"`lowering` must be one of .* Received: '{lowering}'\. Use 'adaptive'"):
        asked(lowering=lowering)


@pytest.mark.parametrize(
    ("installed", "opset", "lowerings", "refusal"),
    [
        ("1.25.0", 24, ["fused", "portable"], None),
        ("1.24.4", 24, ["fused", "portable"], r"opset 24 and `lowering='fused'` needs onnxruntime 1.25.* 1\.24\.4\."),
        ("1.31.0", 24, [BATCHED], None),
        ("1.30.0", 24, [BATCHED], r"opset 24 and `lowering='adaptive'` needs onnxruntime 1.31"),
        ("1.19.0", 18, ["adaptive"], None),
        ("1.19.0", 20, [], None),
        ("1.19.0", 22, ["portable"], r"opset 22 needs onnxruntime 1.21 or newer\. Received: onnxruntime 1\.19"),
        ("1.100.0", 24, ["fused"], None),
    ],
)
def test_an_onnxruntime_too_old_for_what_is_asked(monkeypatch, installed, opset, lowerings, refusal):
    monkeypatch.setattr(onnxruntime, "__version__", installed)
    if refusal is None:
        check_onnxruntime(opset, lowerings)
        return
    with pytest.raises(ExportError, match=refusal):
        check_onnxruntime(opset, lowerings)


@pytest.mark.parametrize(
    ("tolerance", "relative", "absolute"),
    [
        (None, 0.0, 0.0),
        (1e-3, 1e-3, 1e-4),
        (1, 1.0, 0.1),
        (0, 0.0, 0.0),
        ((1e-3, 0), 1e-3, 0.0),
        ([0.5, 0.25], 0.5, 0.25),
        (np.float32(0.5), 0.5, 0.05),
        (np.float64(0.5), 0.5, 0.05),
    ],
)
def test_a_tolerance(tolerance, relative, absolute):
    checked = asked(tolerance=tolerance).tolerance
    assert checked == {"relative": pytest.approx(relative, rel=1e-15), "absolute": pytest.approx(absolute, rel=1e-15)}
    assert {type(value) for value in checked.values()} == {float}


@pytest.mark.parametrize(
    "tolerance",
    [-1e-3, float("nan"), float("inf"), True, "1e-3", (1e-3,), (1e-3, 1e-3, 1e-3), (1e-3, -1), (1e-3, None), {}, ()],
    ids=repr,
)
def test_tolerances_that_are_none(tolerance):
    with pytest.raises(ExportError, match=r"`tolerance` must be a number of 0 or more, or two .*\. Received: "):
        asked(tolerance=tolerance)


@pytest.mark.parametrize(
    ("given", "opset", "lowering"),
    [
        ({}, None, "adaptive"),
        ({"target": "standard"}, None, "adaptive"),
        ({"target": "1.25"}, None, "adaptive"),
        ({"target": "1.25.1", "lowering": "fused"}, None, "fused"),
        ({"target": "1.24"}, 18, "adaptive"),
        ({"target": "1.19"}, 18, "adaptive"),
        ({"target": "1.18"}, 18, "portable"),
        ({"target": "1.15", "lowering": "portable"}, 18, "portable"),
        ({"target": "1.20", "opset": 21}, 21, "adaptive"),
        ({"target": "1.24", "opset": 24}, 24, "portable"),  # the operator `Attention` needs 1.25
        ({"target": "1.25", "provider": "cuda"}, 18, "adaptive"),  # which has no kernels of opset 24 yet
        ({"target": "1.31", "provider": "cuda"}, None, "adaptive"),
    ],
)
def test_what_follows_from_a_target(given, opset, lowering):
    options = asked(**given)
    assert (options.opset, options.lowering) == (opset, lowering)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"target": "1.24", "lowering": "fused"},
            r"`lowering='fused'` needs onnxruntime 1\.25 or newer\. Received: target='1\.24'",
        ),
        (
            {"target": "1.19", "opset": 22},
            r"`opset=22` needs onnxruntime 1\.21 or newer\. Received: target='1\.19'\. Leave out",
        ),
        ({"target": "1.23", "opset": 24}, r"`opset=24` needs onnxruntime 1\.24"),
        *(
            (
                {"target": target},
                r"`target` must be 'standard' or the lowest onnxruntime .*, 1\.15 or newer, .* Received: ",
            )
            for target in ("1.14", "1", "latest", "1.19rc1", 1.19, ("1.19",))
        ),
    ],
)
def test_targets_that_cannot_be(given, said):
    with pytest.raises(ExportError, match=said):
        asked(**given)


def test_what_attention_is_written_for():
    assert asked().written_for == "cpu"
    assert asked(provider="CUDAExecutionProvider").written_for == "cuda"
    assert asked(provider="openvino").written_for == "any"
    assert asked(provider="cuda", target="standard").written_for == "any"
