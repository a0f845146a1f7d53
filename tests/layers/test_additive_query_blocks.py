"""Additive scores in blocks of queries: outputs and gradients of the plain form, in less memory.

On a GPU, torch compiles kernels for the blocks: these tests replace its code generator.
"""

import gc
import weakref
from functools import partial

import numpy as np
import pytest
import reference
from backends import (
    BACKEND,
    COMPILED_MODES,
    MODES,
    compile_function,
    compute_gradients,
    get_precision,
    run_only_on,
    x64,
)
from keras import ops
from layer_contract import build_additive_score, call_layer, compute_layer_gradients, draw_weights, to_numpy
from tolerances import TOLERANCES, assert_close, assert_identical

from keras_attn import AdditiveAttention, masked_softmax
from keras_attn._maths import additive_query_blocks, additive_torch_compiled
from keras_attn._maths.additive_query_blocks import blocked_additive_scores

B, Tq, Tk, Dq, Dk, Dv, U = 2, 7, 5, 4, 6, 3, 8


def build_layer(block_size, **options):
    layer = AdditiveAttention(U, query_block_size=block_size, **options)
    layer.build((None, None, Dq), (None, None, Dk), (None, None, Dv))
    draw_weights(layer)
    return layer


def draw_inputs(leading=(B,), Tq=Tq, Tk=Tk):
    rng = np.random.default_rng(0)
    shapes = {"queries": (Tq, Dq), "keys": (Tk, Dk), "values": (Tk, Dv)}
    return {name: rng.normal(size=(*leading, *shape)).astype("float32") for name, shape in shapes.items()}


def assert_gradients_close(actual, expected, dtype="float32"):
    """Assert that gradients are equal within a tolerance relative to the largest entry of each expected gradient."""
    # A small entry is a sum of terms as large as the largest entry, and has the rounding error of those terms.
    tolerance = TOLERANCES[get_precision(dtype)][0]
    for (name, gradient), expected_gradient in zip(actual.items(), expected.values(), strict=True):
        scale = np.abs(expected_gradient.astype("float64")).max()
        assert scale > 0, name
        scaled_arrays = [array.astype("float64") / scale for array in (gradient, expected_gradient)]
        assert_close(*scaled_arrays, tolerance=tolerance)


def compute_second_gradients(tensors, block_size, upstream=1.0, mode="eager"):
    differentiate = compute_gradients(lambda *x: ops.sum(upstream * blocked_additive_scores(*x, block_size)), 3)
    penalty = compute_gradients(lambda *x: sum(ops.sum(gradient**3) for gradient in differentiate(*x)), 3)
    gradients = compile_function(penalty, mode)(*tensors)
    return {name: to_numpy(gradient) for name, gradient in zip(("queries", "keys", "w_v"), gradients, strict=True)}


small_auto = pytest.mark.usefixtures("_small_auto")


@pytest.fixture
def _small_auto(monkeypatch):
    """Limits of `query_block_size="auto"` that split 7 queries into blocks of 3, 3 and 1."""
    monkeypatch.setattr(additive_query_blocks, "_GPU_FEATURE_LIMITS", {})
    monkeypatch.setattr(additive_query_blocks, "_MAX_PLAIN_FEATURES", 1)
    monkeypatch.setattr(additive_query_blocks, "_MIN_BLOCK_FEATURES", 2 * B * Tk * U)
    monkeypatch.setattr(additive_query_blocks, "_MIN_BLOCK_QUERIES", 1)


LENGTHS_PER_QUERY = np.array([[0, 1, 2, 5, 6, 3], [4, 4, 0, 0, 5, 1]], "int32")
LENGTHS = {"valid_lens": np.array([3, 5])}
CALLS = {  # Tq, Tk, block size, masks
    **{f"blocks of {size}": (Tq, Tk, size, LENGTHS) for size in (1, 3, 7, 64, "auto")},
    "causal": (7, 5, 2, {"causal": True}),
    "rows without keys": (7, 5, 2, {"causal": True, "window": (1, 0)}),
    "keys up to one after": (5, 9, 2, {"window": (None, 1)}),
    "keys from two before": (5, 9, 3, {"window": (2, None)}),
    "window wider than all keys": (5, 9, 2, {"window": (50, 60)}),
    "window": (5, 9, 2, {"window": (2, 1)}),
    "causal and lengths": (6, 6, "auto", {"causal": True, "valid_lens": LENGTHS_PER_QUERY}),
}
COMPILED_CALLS = ["blocks of 3", "blocks of auto", "window", "causal and lengths"]  # compilation takes seconds
CALLS_AND_MODES = [(name, MODES[0]) for name in CALLS]
CALLS_AND_MODES += [pytest.param(name, mode, marks=pytest.mark.slow) for name in COMPILED_CALLS for mode in MODES[1:]]


@small_auto
@pytest.mark.parametrize(("name", "mode"), CALLS_AND_MODES)
def test_blocks_equal_the_plain_form(name, mode):
    num_queries, num_keys, block_size, masks = CALLS[name]
    inputs = draw_inputs((B,), num_queries, num_keys)
    blocked_layer, plain_layer = build_layer(block_size), build_layer(None)
    output, weights = call_layer(blocked_layer, inputs, masks, return_attention_scores=True)
    oracle = reference.attention(**inputs, score=build_additive_score(blocked_layer), **masks)
    assert_close(to_numpy(output), oracle[0], "float32")
    assert_close(to_numpy(weights), oracle[1], "float32")
    assert_close(to_numpy(output), to_numpy(call_layer(plain_layer, inputs, masks)))
    assert_gradients_close(
        compute_layer_gradients(blocked_layer, inputs, masks, mode=mode),
        compute_layer_gradients(plain_layer, inputs, masks, mode=mode),
    )


def count_tanh_elements(step, *tensors):
    """Return the number of elements of each call of tanh in a step, in the forward and the backward pass."""
    counts, tanh = [], ops.tanh
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ops, "tanh", lambda x: counts.append(np.prod(ops.shape(x))) or tanh(x))
        step(*tensors)
    return counts


@run_only_on("tensorflow", "torch", reason="JAX traces the loop, and calls tanh once")
@pytest.mark.parametrize(
    ("num_queries", "num_keys", "masks", "num_pairs"),
    [
        (8, 10, {}, 8 * 10),
        (8, 10, {"causal": True}, sum(range(1, 9))),
        (8, 10, {"window": (1, 1)}, 2 + 7 * 3),
        (8, 10, {"window": (2, 1), "causal": True}, 1 + 2 + 6 * 3),
        (8, 10, {"window": (0, None)}, sum(range(3, 11))),
        # 8 groups of 10 queries, each with the keys up to the position of its last query
        (80, 80, {"causal": True}, sum(10 * 10 * n for n in range(1, 9))),
    ],
    ids=str,
)
def test_features_outside_the_band_mask_are_not_computed(num_queries, num_keys, masks, num_pairs):
    """Blocks of one query, in the forward and the backward pass; windows with precomputed keys."""
    layer, is_projected = build_layer(1), "window" in masks
    tensors = [ops.convert_to_tensor(array) for array in draw_inputs((B,), num_queries, num_keys).values()]

    def loss(queries, keys, values):
        inputs = {"queries": queries, "keys": layer.precompute(keys) if is_projected else keys, "values": values}
        return ops.sum(call_layer(layer, inputs, masks) ** 2)

    assert sum(count_tanh_elements(compute_gradients(loss, 3), *tensors)) == 2 * B * num_pairs * U


def test_overridden_score_receives_all_pairs():
    """The score of a subclass may depend on several pairs, so that masked pairs are computed too."""

    class NormalizedScore(AdditiveAttention):
        def score(self, queries, keys):
            scores = super().score(queries, keys)
            return scores / ops.max(ops.abs(scores), axis=-1, keepdims=True)

    layer = NormalizedScore(U, query_block_size=1)
    layer.build((None, None, Dq), (None, None, Dk), (None, None, Dv))
    draw_weights(layer)
    queries, keys, values = (ops.convert_to_tensor(array) for array in draw_inputs().values())
    weights = masked_softmax(layer.score(queries, keys), mask=np.tri(Tq, Tk, dtype=bool))
    output = to_numpy(layer(queries, keys, values, use_causal_mask=True))
    assert_close(output, to_numpy(ops.matmul(weights, values)), "float32")


@pytest.mark.slow
@small_auto
@pytest.mark.parametrize("mode", COMPILED_MODES)
@pytest.mark.parametrize(("block_size", "leading", "causal"), [("auto", (2, 4), False), (3, (B,), True)])
def test_one_program_accepts_all_sizes(block_size, leading, causal, mode):
    upstream = np.arange(Dv, dtype="float32")

    def build_function(layer):
        def loss(*inputs):
            return ops.sum(layer(*inputs, use_causal_mask=causal) * ops.convert_to_tensor(upstream))

        return lambda *inputs: [layer(*inputs, use_causal_mask=causal), *compute_gradients(loss, 3)(*inputs)]

    compute_expected = build_function(build_layer(None))
    signature = [((*(None for _ in leading), None, size), "float32") for size in (Dq, Dk, Dv)]
    program = compile_function(build_function(build_layer(block_size)), mode, signature=signature)
    for num_queries, num_keys in ((7, 5), (2, 9)) if BACKEND == "jax" else ((7, 5), (1, 5), (6, 1), (2, 9)):
        tensors = [ops.convert_to_tensor(array) for array in draw_inputs(leading, num_queries, num_keys).values()]
        (output, *gradients), (expected_output, *expected) = program(*tensors), compute_expected(*tensors)
        assert_close(to_numpy(output), to_numpy(expected_output))
        for gradient, expected_gradient in zip(gradients, expected, strict=True):
            assert_close(to_numpy(gradient), to_numpy(expected_gradient), tolerance=1e-5)  # sums of up to 9 terms


@pytest.mark.parametrize(
    "mode", [mode for mode in MODES if mode != "xla"]
)  # XLA cannot compile an update of zero elements
def test_empty_batch_has_gradients(mode):
    """One of several devices may receive no rows of a last batch."""
    layer, inputs = build_layer(2), [array[:0] for array in draw_inputs().values()]
    signature = [((None, None, size), "float32") for size in (Dq, Dk, Dv)]
    program = compile_function(compute_gradients(lambda *inputs: ops.sum(layer(*inputs)), 3), mode, signature=signature)
    gradients = program(*map(ops.convert_to_tensor, inputs))
    assert [tuple(gradient.shape) for gradient in gradients] == [array.shape for array in inputs]


@pytest.mark.slow
def test_sums_over_many_queries_are_exact_in_float16():
    """3000 terms of 1: a running sum in float16 over blocks of 3 would have rounding errors above 2048."""
    queries, keys = np.zeros((1, 3000, 1), "float16"), np.zeros((1, 1, 1), "float16")
    queries, keys, w_v = map(ops.convert_to_tensor, (queries, keys, np.ones((1, 1), "float16")))
    (gradient,) = compute_gradients(lambda keys: ops.sum(blocked_additive_scores(queries, keys, w_v, 3)), 1)(keys)
    assert to_numpy(gradient).item() == 3000


@pytest.mark.slow
@x64
@pytest.mark.parametrize("mode", MODES)
def test_second_gradients_of_blocks_equal_the_plain_form(mode):
    rng = np.random.default_rng(0)
    shapes = ((B, Tq, U), (B, Tk, U), (U, 1), (B, Tq, Tk))
    *tensors, upstream = (ops.convert_to_tensor(rng.normal(size=shape)) for shape in shapes)
    gradients, expected = (compute_second_gradients(tensors, size, upstream, mode) for size in (3, None))
    assert_gradients_close(gradients, expected, "float64")


@run_only_on("jax", reason="TensorFlow and torch reject forward-mode derivatives of functions with a custom gradient")
def test_blocks_have_forward_derivatives():
    import jax

    inputs = tuple(draw_inputs().values())

    def derivative(layer):
        return jax.jvp(lambda *x: layer(*x, np.array([2, 5])), inputs, inputs)

    for actual, expected in zip(derivative(build_layer(3)), derivative(build_layer(None)), strict=True):
        assert_close(to_numpy(actual), to_numpy(expected))


@run_only_on("torch", reason="only `torch.compile` analyses the Python code of a step")
@pytest.mark.filterwarnings("ignore")  # torch warns about Keras's functions with a custom gradient
def test_torch_compiles_a_training_step():
    """The backend "eager" needs no C++ compiler; errors occurred in the analysis, before code generation."""
    import torch

    layer = build_layer(2)
    tensors = [ops.convert_to_tensor(array) for array in draw_inputs().values()]
    variables = [variable.value for variable in layer.trainable_variables]

    def step(*inputs):
        loss = ops.sum(layer(*inputs) ** 2)
        loss.backward()
        return loss

    def compute_weight_gradients(function):
        for variable in variables:
            variable.grad = None
        function(*tensors)
        return [to_numpy(variable.grad) for variable in variables]

    expected = compute_weight_gradients(step)
    for actual, gradient in zip(compute_weight_gradients(torch.compile(step, backend="eager")), expected, strict=True):
        assert_close(actual, gradient)


@run_only_on("tensorflow", "torch", reason="the blocks have no custom gradient on JAX")
def test_ctrl_c_in_a_block_interrupts_the_call(monkeypatch):
    """On torch, Keras catches every exception of a function with a custom gradient and calls the function again."""
    plain_scores, calls = additive_query_blocks._plain_scores, []

    def interrupt_first_call(*tensors):
        calls.append(tensors)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return plain_scores(*tensors)

    monkeypatch.setattr(additive_query_blocks, "_plain_scores", interrupt_first_call)
    with pytest.raises(KeyboardInterrupt):
        call_layer(build_layer(2), draw_inputs())


@run_only_on("tensorflow", "torch", reason="JAX traces the loop, and calls tanh once")
@pytest.mark.parametrize(("block_size", "rows"), [(2, 2), ("auto", 3), (None, Tq)])
@small_auto
def test_no_tensor_contains_the_features_of_all_blocks(block_size, rows):
    tensors = [ops.convert_to_tensor(array) for array in draw_inputs().values()]
    layer = build_layer(block_size)
    step = compute_gradients(lambda *inputs: ops.sum(layer(*inputs) ** 2), 0, layer.trainable_variables)
    assert max(count_tanh_elements(step, *tensors)) == B * rows * Tk * U


@pytest.mark.slow
@run_only_on(
    "tensorflow", "torch", reason="JAX compiles the loop in eager mode too, so that a test cannot observe a block"
)
def test_features_are_not_stored_for_the_gradient(monkeypatch):
    """No features of a block exist after the scores are computed."""
    references, stored_features = [], []

    def record_features(rows, keys, apply_w_v):
        features = ops.tanh(ops.expand_dims(rows, -2) + ops.expand_dims(keys, -3))
        references.append(weakref.ref(features))
        return ops.squeeze(apply_w_v(features), -1)

    monkeypatch.setattr(additive_query_blocks, "additive_scores", record_features)
    rng = np.random.default_rng(0)
    tensors = [ops.convert_to_tensor(rng.normal(size=shape)) for shape in ((B, Tq, U), (B, Tk, U), (U, 1))]

    def loss(*tensors):
        scores = blocked_additive_scores(*tensors, 2)
        gc.collect()
        stored_features.extend(reference for reference in references if reference() is not None)
        return ops.sum(scores)

    assert all(np.any(to_numpy(gradient) != 0) for gradient in compute_gradients(loss, 3)(*tensors))
    assert len(references) >= 4
    assert not stored_features


@run_only_on("tensorflow", reason="no other backend traces with unknown sizes")
@pytest.mark.parametrize(
    ("batch", "num_queries", "has_loop"),
    [(2, 7, False), (64, 256, True), (64, 1, False), (None, None, True), (None, 1, False)],
)
def test_auto_uses_a_loop_only_for_many_features(batch, num_queries, has_loop):
    import tensorflow as tf

    Tk, U = (5, 8) if batch == 2 else (512, 256)
    signature = [tf.TensorSpec(shape) for shape in ((batch, num_queries, U), (batch, Tk, U), (U, 1))]
    program = tf.function(lambda *x: blocked_additive_scores(*x, "auto"), signature)
    op_types = {node.op for node in program.get_concrete_function().graph.as_graph_def().node}
    assert bool(op_types & {"While", "StatelessWhile"}) is has_loop


@run_only_on("tensorflow", reason="other backends run the steps of a loop one after another")
def test_loop_runs_one_block_at_a_time():
    """TensorFlow would run ten steps of a loop in parallel and store the features of ten blocks."""
    import tensorflow as tf

    signature = [tf.TensorSpec(shape) for shape in ((2, 64, 8), (2, 5, 8), (8, 1))]
    program = tf.function(compute_gradients(lambda *x: ops.sum(blocked_additive_scores(*x, 4)), 3), signature)
    graph = program.get_concrete_function().graph.as_graph_def()
    nodes = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
    loops = [node for node in nodes if node.op in ("While", "StatelessWhile")]
    assert len(loops) >= 2
    assert {node.attr["parallel_iterations"].i for node in loops} == {1}


on_gpu_of_torch = run_only_on("torch", reason="other backends compile every operation on a GPU")


@pytest.fixture
def kernels(monkeypatch):
    """Programs that torch compiles as if on a GPU; they run without code generation."""
    import torch

    torch_compile, programs = torch.compile, []

    def record_program(program, _):
        programs.append(program)
        return program.forward

    monkeypatch.setattr(torch, "compile", partial(torch_compile, backend=record_program))
    monkeypatch.setattr(additive_torch_compiled, "is_on_gpu", lambda tensor: True)
    monkeypatch.setattr(additive_torch_compiled, "_uncompilable_dtypes", set())
    additive_torch_compiled._compile.cache_clear()
    yield programs
    additive_torch_compiled._compile.cache_clear()


@on_gpu_of_torch
@pytest.mark.parametrize("dtype", ["float32", "mixed_float16"])
def test_kernels_equal_the_plain_form(dtype, kernels):
    """Blocks of 3, 3 and 1 queries, heads, and second gradients."""
    inputs, masks = draw_inputs(), {"valid_lens": np.array([3, 5])}
    layers = build_layer(3, dtype=dtype), build_layer(None)
    compute_dtype = dtype.removeprefix("mixed_")
    outputs = [to_numpy(call_layer(layer, inputs, masks)).astype("float32") for layer in layers]
    assert_close(*outputs, tolerance=TOLERANCES[compute_dtype][0])
    assert_gradients_close(*(compute_layer_gradients(layer, inputs, masks) for layer in layers), compute_dtype)
    queries, keys = np.random.default_rng(0).normal(size=(2, 2, 3, 4, U)).astype("float32")
    tensors = [*map(ops.convert_to_tensor, (queries, keys)), ops.ones((U, 1))]
    assert_close(*(to_numpy(blocked_additive_scores(*tensors, size)) for size in (2, None)))
    assert_gradients_close(*(compute_second_gradients(tensors, size) for size in (2, None)))
    assert kernels
    assert not additive_torch_compiled._uncompilable_dtypes


@on_gpu_of_torch
def test_causal_mask_reuses_kernels(kernels):
    """A causal mask leads to slices of keys, which are not contiguous. torch compiles at most eight variants."""
    layer = build_layer(2)
    for sizes in ((7, 5), (9, 8)):
        gradients = compute_layer_gradients(layer, draw_inputs((B,), *sizes), {"causal": True})
        assert all(np.any(gradient != 0) for gradient in gradients.values())
    assert len(kernels) <= 6


@on_gpu_of_torch
def test_fake_tensors_are_not_passed_to_kernels(kernels):
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        tensors = [ops.zeros(shape) for shape in ((B, Tq, U), (B, Tk, U), (U, 1))]
        assert tuple(blocked_additive_scores(*tensors, 2).shape) == (B, Tq, Tk)
    assert not kernels


@on_gpu_of_torch
def test_failed_compilation_warns_once_and_runs_uncompiled(kernels, monkeypatch):
    import torch

    def fail_compilation(*_, **__):
        raise RuntimeError("Failed to find C compiler.\nPlease specify via CC")

    monkeypatch.setattr(torch, "compile", fail_compilation)
    inputs = draw_inputs()
    with pytest.warns(
        RuntimeWarning, match=r"could not compile additive scores of torch.float32.*: Failed to find C compiler\.$"
    ):
        output = call_layer(build_layer(3), inputs)
    assert_close(to_numpy(output), to_numpy(call_layer(build_layer(None), inputs)))
    gradients = compute_layer_gradients(build_layer(3), inputs)  # a second warning would fail the test
    assert_gradients_close(gradients, compute_layer_gradients(build_layer(None), inputs))


DTYPES = ["mixed_float16", "bfloat16", "float64", "mixed_bfloat16", "float16"]


@pytest.mark.slow
@x64
@pytest.mark.parametrize(("dtype", "mode"), [(dtype, MODES[n % len(MODES)]) for n, dtype in enumerate(DTYPES)])
def test_blocks_equal_the_plain_form_in_other_precisions(dtype, mode):
    inputs, masks = draw_inputs(), {"valid_lens": np.array([3, 5])}
    blocked_layer, plain_layer = build_layer(2, dtype=dtype), build_layer(None, dtype=dtype)
    float64_layer = build_layer(None, dtype="float64")
    for layer in (blocked_layer, plain_layer, float64_layer):
        for variable in layer.trainable_variables:
            variable.assign(0.25 * variable)  # small scores: a score of 10 has a rounding error of 0.04 in bfloat16
    compute_dtype = dtype.removeprefix("mixed_")
    outputs = [to_numpy(call_layer(layer, inputs, masks)) for layer in (blocked_layer, plain_layer)]
    if BACKEND == "jax" and compute_dtype == "float64":  # float32 features; a loop may round differently
        assert_close(*outputs, tolerance=1e-6)
    else:
        assert_identical(*outputs)
    upstream = np.random.default_rng(1).normal(size=(B, Tq, Dv))
    float64_inputs = {name: array.astype("float64") for name, array in inputs.items()}
    expected = compute_layer_gradients(float64_layer, float64_inputs, masks, upstream=upstream)
    inputs = float64_inputs if compute_dtype == "float64" else inputs
    gradients = compute_layer_gradients(blocked_layer, inputs, masks, upstream=upstream, mode=mode)
    assert_gradients_close(gradients, expected, compute_dtype)
