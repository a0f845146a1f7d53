"""Options of an export: defaults, allowed values and consequences."""

import inspect
from dataclasses import MISSING, fields

import numpy as np
import onnxruntime
import pytest

from keras_attn_export import ExportError, InputError, export_model
from keras_attn_export._lowering_names import ADAPTIVE_GPU
from keras_attn_export._onnxruntime_releases import (
    LOWEST_FOR_LOWERING,
    LOWEST_ONNXRUNTIME,
    check_onnxruntime,
    find_lowest_onnxruntime,
)
from keras_attn_export._options import OPSETS, Options, validate_options


def validate(tolerance=None, static_axes=None, **options):
    return validate_options(tolerance=tolerance, static_axes=static_axes, **options)


def test_options_and_export_model_have_equal_defaults():
    arguments = inspect.signature(export_model).parameters
    options = [field for field in fields(Options) if field.name in arguments and field.default is not MISSING]
    names = {"opset", "lowering", "precision", "provider", "safe_mode", "strict", "target", "calibration", "limit"}
    assert {field.name for field in options} == names | {"saved_model"}
    assert [arguments[field.name].default for field in options] == [field.default for field in options]


def test_every_opset_has_a_lowest_onnxruntime():
    assert set(LOWEST_ONNXRUNTIME) == set(OPSETS) == set(range(18, 25))


def test_fused_lowering_needs_opset_24():
    validate(lowering="fused")
    validate(opset=24, lowering="fused")
    with pytest.raises(ExportError, match=r"`lowering='fused'` needs opset 24.* Received: opset=23"):
        validate(opset=23, lowering="fused")


def test_lowest_onnxruntime_depends_on_opset_and_lowerings():
    assert find_lowest_onnxruntime(18, ["portable"]) == LOWEST_ONNXRUNTIME[18]
    assert find_lowest_onnxruntime(24, [ADAPTIVE_GPU, "portable"]) == "1.31"
    assert find_lowest_onnxruntime(18, [ADAPTIVE_GPU, "portable"]) == LOWEST_FOR_LOWERING[ADAPTIVE_GPU]
    assert find_lowest_onnxruntime(24, ["adaptive"]) == LOWEST_FOR_LOWERING["fused"]
    assert find_lowest_onnxruntime(18, ["adaptive"]) == LOWEST_FOR_LOWERING["adaptive"]


@pytest.mark.parametrize("opset", [17, "18", True])
def test_opset_must_be_an_integer_from_18_to_24(opset):
    with pytest.raises(ExportError, match="`opset` must be an integer from 18 to 24"):
        validate(opset=opset)


@pytest.mark.parametrize("name", ["precision", "provider"])
def test_unknown_choices_are_refused(name):
    with pytest.raises(ExportError, match=rf"`{name}` must be one of .* Received: 'best'"):
        validate(**{name: "best"})


def test_static_axes_have_sizes_of_1_or_more():
    assert validate(static_axes={"batch": np.int64(1)}).static_axes == {"batch": 1}
    for size in (0, 1.0, True):
        with pytest.raises(InputError, match=rf"integers of 1 or more\. Received: 'batch': {size}\."):
            validate(static_axes={"batch": size})


def test_removed_lowerings_name_their_replacement():
    with pytest.raises(ExportError, match=r"`lowering` must be one of .* Received: 'ragged'\. Use 'adaptive'"):
        validate(lowering="ragged")


@pytest.mark.parametrize(
    ("installed", "opset", "lowerings", "refusal"),
    [
        ("1.24.4", 24, ["fused", "portable"], r"opset 24 and `lowering='fused'` needs onnxruntime 1.25.* 1\.24\.4\."),
        ("1.31.0", 24, [ADAPTIVE_GPU], None),
        ("1.30.0", 24, [ADAPTIVE_GPU], r"opset 24 and `lowering='adaptive'` needs onnxruntime 1.31"),
        ("1.19.0", 22, ["portable"], r"opset 22 needs onnxruntime 1.21 or newer\. Received: onnxruntime 1\.19"),
        ("1.100.0", 24, ["fused"], None),
    ],
)
def test_onnxruntime_that_is_too_old_is_refused(monkeypatch, installed, opset, lowerings, refusal):
    monkeypatch.setattr(onnxruntime, "__version__", installed)
    if refusal is None:
        check_onnxruntime(opset, lowerings)
        return
    with pytest.raises(ExportError, match=refusal):
        check_onnxruntime(opset, lowerings)


@pytest.mark.parametrize(
    ("tolerance", "relative", "absolute"),
    [(None, 0.0, 0.0), (1e-3, 1e-3, 1e-4), ((1e-3, 0), 1e-3, 0.0), (np.float32(0.5), 0.5, 0.05)],
)
def test_tolerance_is_one_number_or_two(tolerance, relative, absolute):
    checked = validate(tolerance=tolerance).tolerance
    assert checked == {"relative": pytest.approx(relative, rel=1e-15), "absolute": pytest.approx(absolute, rel=1e-15)}
    assert {type(value) for value in checked.values()} == {float}


@pytest.mark.parametrize("tolerance", [-1e-3, float("nan"), True, "1e-3", (1e-3,), (1e-3, None)], ids=repr)
def test_invalid_tolerances_are_refused(tolerance):
    with pytest.raises(ExportError, match=r"`tolerance` must be a number of 0 or more, or two .*\. Received: "):
        validate(tolerance=tolerance)


@pytest.mark.parametrize(
    ("options", "opset", "lowering"),
    [
        ({}, None, "adaptive"),
        ({"target": "1.25.1", "lowering": "fused"}, None, "fused"),
        ({"target": "1.19"}, 18, "adaptive"),
        ({"target": "1.18"}, 18, "portable"),
        ({"target": "1.24", "opset": 24}, 24, "portable"),  # the operator `Attention` needs 1.25
        ({"target": "1.25", "provider": "cuda"}, 18, "adaptive"),  # onnxruntime 1.25 has no CUDA kernels of opset 24
    ],
)
def test_target_decides_opset_and_lowering(options, opset, lowering):
    validated = validate(**options)
    assert (validated.opset, validated.lowering) == (opset, lowering)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"target": "1.24", "lowering": "fused"},
            r"`lowering='fused'` needs onnxruntime 1\.25 or newer\. Received: target='1\.24'",
        ),
        (
            {"target": "1.19", "opset": 22},
            r"`opset=22` needs onnxruntime 1\.21 or newer\. Received: target='1\.19'\. Leave out",
        ),
        *(
            (
                {"target": target},
                r"`target` must be 'standard' or the oldest onnxruntime release .* not below 1\.15\. Received: ",
            )
            for target in ("1.14", "1", "latest", 1.19)
        ),
    ],
)
def test_targets_that_cannot_run_the_file_are_refused(options, message):
    with pytest.raises(ExportError, match=message):
        validate(**options)


def test_attention_is_written_for_the_device_of_provider_and_target():
    assert validate().attention_target == "cpu"
    assert validate(provider="CUDAExecutionProvider").attention_target == "cuda"
    assert validate(provider="openvino").attention_target == "any"
    assert validate(provider="cuda", target="standard").attention_target == "any"
