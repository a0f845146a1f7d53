"""Kernels that torch compiles for blocks of additive scores on a GPU, without its code generator."""

import numpy as np
import pytest
from additive_layers import B, Tk, Tq, U, arrays, assert_gradients_close, layer_of, second_gradients
from backends import only_on
from contract_cases import as_numpy, call, gradients
from keras import ops
from tolerances import TOLERANCES, assert_close

from keras_attn._maths import compiled_additive
from keras_attn._maths.blocked_additive import blocked_additive_scores

pytestmark = only_on("torch", reason="the others compile all that they compute on a GPU, or were not measured there")


@pytest.fixture
def kernels(monkeypatch):
    """As on a GPU, but without the code generator; lists what is compiled."""
    import torch

    compile_function, made = torch.compile, []

    def as_it_is(program, _):
        made.append(program)
        return program.forward

    monkeypatch.setattr(torch, "compile", lambda *given, **how: compile_function(*given, backend=as_it_is, **how))
    monkeypatch.setattr(compiled_additive, "is_on_gpu", lambda tensor: True)
    monkeypatch.setattr(compiled_additive, "_refused", set())
    compiled_additive._compiled.cache_clear()
    yield made
    compiled_additive._compiled.cache_clear()


@pytest.mark.parametrize("dtype", ["float32", "mixed_float16"])
def test_kernels_give_outputs_and_gradients_of_the_plain_form(dtype, kernels):
    """Of blocks of 3, 3 and 1, and of heads; a gradient of a gradient is computed as elsewhere."""
    inputs, masks = arrays(), {"valid_lens": np.array([3, 5])}
    blocked, plain = layer_of(3, dtype=dtype), layer_of(None)
    compute = dtype.removeprefix("mixed_")
    outputs = [as_numpy(call(layer, inputs, masks)).astype("float32") for layer in (blocked, plain)]
    assert_close(*outputs, tolerance=TOLERANCES[compute][0])
    assert_gradients_close(*(gradients(layer, inputs, masks) for layer in (blocked, plain)), compute)
    queries, keys = np.random.default_rng(0).normal(size=(2, 2, 3, 4, U)).astype("float32")
    tensors = [*map(ops.convert_to_tensor, (queries, keys)), ops.ones((U, 1))]
    assert_close(*(as_numpy(blocked_additive_scores(*tensors, size)) for size in (2, None)))
    assert_gradients_close(*(second_gradients(tensors, size) for size in (2, None)))
    assert kernels
    assert not compiled_additive._refused


def test_causal_mask_reuses_kernels(kernels):
    """It has slices of keys, whose numbers do not lie one after another. torch compiles eight variants at most."""
    layer = layer_of(2)
    for sizes in ((7, 5), (9, 8)):
        assert all(np.any(each != 0) for each in gradients(layer, arrays((B,), *sizes), {"causal": True}).values())
    assert len(kernels) <= 6


def test_fake_tensors_reach_no_kernel(kernels):
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        tensors = [ops.zeros(shape) for shape in ((B, Tq, U), (B, Tk, U), (U, 1))]
        assert tuple(blocked_additive_scores(*tensors, 2).shape) == (B, Tq, Tk)
    assert not kernels


def test_failed_compilation_warns_once_and_falls_back(kernels, monkeypatch):
    import torch

    def refused(*_, **__):
        raise RuntimeError("Failed to find C compiler.\nPlease specify via CC")

    monkeypatch.setattr(torch, "compile", refused)
    inputs = arrays()
    with pytest.warns(
        RuntimeWarning, match=r"could not compile additive scores of torch.float32.*: Failed to find C compiler\.$"
    ):
        output = call(layer_of(3), inputs)
    assert_close(as_numpy(output), as_numpy(call(layer_of(None), inputs)))
    again = gradients(layer_of(3), inputs)  # without a warning
    assert_gradients_close(again, gradients(layer_of(None), inputs))
