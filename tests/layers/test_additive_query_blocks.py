"""Additive scores in blocks of queries: the numbers and gradients of the plain form, without its features.

On a GPU torch compiles kernels for the blocks: those are tested here without its code generator.
"""

import gc
import weakref

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


def layer_of(block_size, **options):
    layer = AdditiveAttention(U, query_block_size=block_size, **options)
    layer.build((None, None, Dq), (None, None, Dk), (None, None, Dv))
    draw_weights(layer)
    return layer


def arrays(leading=(B,), Tq=Tq, Tk=Tk):
    rng = np.random.default_rng(0)
    shapes = {"queries": (Tq, Dq), "keys": (Tk, Dk), "values": (Tk, Dv)}
    return {name: rng.normal(size=(*leading, *shape)).astype("float32") for name, shape in shapes.items()}


def assert_gradients_close(actual, expected, dtype="float32"):
    """Compares in units of the largest entry: a gradient is a sum of terms of its size."""
    tolerance = TOLERANCES[get_precision(dtype)][0]
    for (name, one), other in zip(actual.items(), expected.values(), strict=True):
        scale = np.abs(other.astype("float64")).max()
        assert scale > 0, name
        assert_close(one.astype("float64") / scale, other.astype("float64") / scale, tolerance=tolerance)


def second_gradients(tensors, block_size, upstream=1.0, mode="eager"):
    inner = compute_gradients(lambda *x: ops.sum(upstream * blocked_additive_scores(*x, block_size)), 3)
    penalty = compute_gradients(lambda *x: sum(ops.sum(gradient**3) for gradient in inner(*x)), 3)
    gradients = compile_function(penalty, mode)(*tensors)
    return {name: to_numpy(gradient) for name, gradient in zip(("queries", "keys", "w_v"), gradients, strict=True)}


small_auto = pytest.mark.usefixtures("_small_auto")


@pytest.fixture
def _small_auto(monkeypatch):
    """`"auto"` makes blocks of at least 2 of these few queries: of 3, 3 and 1."""
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
    "only behind": (5, 9, 2, {"window": (None, 1)}),
    "only ahead": (5, 9, 3, {"window": (2, None)}),
    "wider than all": (5, 9, 2, {"window": (50, 60)}),
    "window": (5, 9, 2, {"window": (2, 1)}),
    "lengths too": (6, 6, "auto", {"causal": True, "valid_lens": LENGTHS_PER_QUERY}),
}
COMPILED = ["blocks of 3", "blocks of auto", "window", "lengths too"]  # each takes seconds
WAYS = [(name, MODES[0]) for name in CALLS]
WAYS += [pytest.param(name, mode, marks=pytest.mark.slow) for name in COMPILED for mode in MODES[1:]]


@small_auto
@pytest.mark.parametrize(("name", "mode"), WAYS)
def test_blocks_give_outputs_and_gradients_of_the_plain_form(name, mode):
    num_queries, num_keys, block_size, masks = CALLS[name]
    inputs = arrays((B,), num_queries, num_keys)
    blocked, plain = layer_of(block_size), layer_of(None)
    output, weights = call_layer(blocked, inputs, masks, return_attention_scores=True)
    oracle = reference.attention(**inputs, score=build_additive_score(blocked), **masks)
    assert_close(to_numpy(output), oracle[0], "float32")
    assert_close(to_numpy(weights), oracle[1], "float32")
    assert_close(to_numpy(output), to_numpy(call_layer(plain, inputs, masks)))
    assert_gradients_close(
        compute_layer_gradients(blocked, inputs, masks, mode=mode),
        compute_layer_gradients(plain, inputs, masks, mode=mode),
    )


def elements_of_tanh(step, *tensors):
    """Return how many numbers each call of tanh gets in a step, in both passes."""
    taken, tanh = [], ops.tanh
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ops, "tanh", lambda x: taken.append(np.prod(ops.shape(x))) or tanh(x))
        step(*tensors)
    return taken


@run_only_on("tensorflow", "torch", reason="JAX traces the loop, and calls tanh once")
@pytest.mark.parametrize(
    ("num_queries", "num_keys", "masks", "seen"),
    [
        (8, 10, {}, 8 * 10),
        (8, 10, {"causal": True}, sum(range(1, 9))),
        (8, 10, {"window": (1, 1)}, 2 + 7 * 3),
        (8, 10, {"window": (2, 1), "causal": True}, 1 + 2 + 6 * 3),
        (8, 10, {"window": (0, None)}, sum(range(3, 11))),
        # 8 groups of 10 queries, each with the keys that its last query may see
        (80, 80, {"causal": True}, sum(10 * 10 * n for n in range(1, 9))),
    ],
    ids=str,
)
def test_features_of_pairs_hidden_by_order_are_not_computed(num_queries, num_keys, masks, seen):
    """Queries one by one, once in each pass; of a state of keys where there is a window."""
    layer, projected = layer_of(1), "window" in masks
    queries, keys, values = (ops.convert_to_tensor(array) for array in arrays((B,), num_queries, num_keys).values())

    def loss(queries, keys, values):
        inputs = {"queries": queries, "keys": layer.precompute(keys) if projected else keys, "values": values}
        return ops.sum(call_layer(layer, inputs, masks) ** 2)

    assert sum(elements_of_tanh(compute_gradients(loss, 3), queries, keys, values)) == 2 * B * seen * U


def test_overridden_score_gets_all_pairs():
    """What a subclass makes of the scores is not known to keep to a pair."""

    class Centred(AdditiveAttention):
        def score(self, queries, keys):
            scores = super().score(queries, keys)
            return scores / ops.max(ops.abs(scores), axis=-1, keepdims=True)

    layer = Centred(U, query_block_size=1)
    layer.build((None, None, Dq), (None, None, Dk), (None, None, Dv))
    draw_weights(layer)
    queries, keys, values = (ops.convert_to_tensor(array) for array in arrays().values())
    weights = masked_softmax(layer.score(queries, keys), mask=np.tri(Tq, Tk, dtype=bool))
    pooled = to_numpy(layer(queries, keys, values, use_causal_mask=True))
    assert_close(pooled, to_numpy(ops.matmul(weights, values)), "float32")


@pytest.mark.slow
@small_auto
@pytest.mark.parametrize("mode", COMPILED_MODES)
@pytest.mark.parametrize(("block_size", "leading", "causal"), [("auto", (2, 4), False), (3, (B,), True)])
def test_one_program_takes_all_sizes(block_size, leading, causal, mode):
    upstream = np.arange(Dv, dtype="float32")

    def output_and_gradients(layer):
        def output(*inputs):
            return layer(*inputs, use_causal_mask=causal)

        gradients = compute_gradients(lambda *inputs: ops.sum(output(*inputs) * ops.convert_to_tensor(upstream)), 3)
        return lambda *inputs: [output(*inputs), *gradients(*inputs)]

    blocked, plain = output_and_gradients(layer_of(block_size)), output_and_gradients(layer_of(None))
    signature = [((*(None for _ in leading), None, size), "float32") for size in (Dq, Dk, Dv)]
    program = compile_function(blocked, mode, signature=signature)
    for queries, keys in ((7, 5), (2, 9)) if BACKEND == "jax" else ((7, 5), (1, 5), (6, 1), (2, 9)):
        tensors = [ops.convert_to_tensor(array) for array in arrays(leading, queries, keys).values()]
        (output, *computed), (plain_output, *expected) = program(*tensors), plain(*tensors)
        assert_close(to_numpy(output), to_numpy(plain_output))
        for gradient, other in zip(computed, expected, strict=True):
            assert_close(to_numpy(gradient), to_numpy(other), tolerance=1e-5)  # sums of up to 9 terms


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "xla"])  # XLA compiles no update of no entries
def test_empty_batch_has_gradients(mode):
    """One of several devices may get none of a last batch."""
    layer, names = layer_of(2), ("queries", "keys", "values")
    signature = [((None, None, size), "float32") for size in (Dq, Dk, Dv)]
    program = compile_function(compute_gradients(lambda *inputs: ops.sum(layer(*inputs)), 3), mode, signature=signature)
    found = program(*(ops.zeros((0, *array.shape[1:])) for array in arrays().values()))
    assert {name: tuple(each.shape) for name, each in zip(names, found, strict=True)} == {
        name: (0, *array.shape[1:]) for name, array in arrays().items()
    }


@pytest.mark.slow
def test_sums_over_many_queries_keep_their_digits_in_float16():
    """3000 equal terms of 1: in float16 a running sum over blocks of 3 would be rounded from 2048 on."""
    queries, keys = np.zeros((1, 3000, 1), "float16"), np.zeros((1, 1, 1), "float16")
    queries, keys, w_v = map(ops.convert_to_tensor, (queries, keys, np.ones((1, 1), "float16")))
    (gradient,) = compute_gradients(lambda keys: ops.sum(blocked_additive_scores(queries, keys, w_v, 3)), 1)(keys)
    assert to_numpy(gradient).item() == 3000


@pytest.mark.slow
@x64
@pytest.mark.parametrize("mode", MODES)
def test_second_gradients_of_blocks_equal_those_of_the_plain_form(mode):
    rng = np.random.default_rng(0)
    shapes = ((B, Tq, U), (B, Tk, U), (U, 1), (B, Tq, Tk))
    *tensors, upstream = (ops.convert_to_tensor(rng.normal(size=shape)) for shape in shapes)
    blocked, plain = (second_gradients(tensors, size, upstream, mode) for size in (3, None))
    assert_gradients_close(blocked, plain, "float64")


@run_only_on(
    "jax", reason="derivatives forwards are taken on JAX; TensorFlow and torch refuse them where a gradient is given"
)
def test_blocks_have_forward_derivatives():
    import jax

    inputs = tuple(arrays().values())

    def derivative(layer):
        return jax.jvp(lambda *x: layer(*x, np.array([2, 5])), inputs, inputs)

    for actual, expected in zip(derivative(layer_of(3)), derivative(layer_of(None)), strict=True):
        assert_close(to_numpy(actual), to_numpy(expected))


@run_only_on("torch", reason="`torch.compile` alone takes the Python of a step apart")
@pytest.mark.filterwarnings("ignore")  # the compiler's, of how Keras makes functions with gradients
def test_torch_compiles_a_training_step():
    """Without the code generator, which needs a compiler of C++ and minutes: what failed is seen before it."""
    import torch

    layer = layer_of(2)
    tensors = [ops.convert_to_tensor(array) for array in arrays().values()]
    variables = [variable.value for variable in layer.trainable_variables]

    def step(*inputs):
        loss = ops.sum(layer(*inputs) ** 2)
        loss.backward()
        return loss

    def gradients_by(function):
        for variable in variables:
            variable.grad = None
        function(*tensors)
        return [to_numpy(variable.grad) for variable in variables]

    expected = gradients_by(step)
    for actual, other in zip(gradients_by(torch.compile(step, backend="eager")), expected, strict=True):
        assert_close(actual, other)


@run_only_on("tensorflow", "torch", reason="JAX is given no gradient")
def test_ctrl_c_in_a_block_ends_the_call(monkeypatch):
    """Keras calls a function with a gradient once more on torch, whatever happened, and returns the pair of both."""
    plain, calls = additive_query_blocks._plain_scores, []

    def interrupted_once(*tensors):
        calls.append(tensors)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return plain(*tensors)

    monkeypatch.setattr(additive_query_blocks, "_plain_scores", interrupted_once)
    with pytest.raises(KeyboardInterrupt):
        call_layer(layer_of(2), arrays())


@run_only_on("tensorflow", "torch", reason="JAX traces the loop, and calls tanh once")
@pytest.mark.parametrize(("block_size", "rows"), [(2, 2), ("auto", 3), (None, Tq)])
@small_auto
def test_no_tensor_holds_the_features_of_all_blocks(block_size, rows):
    tensors = [ops.convert_to_tensor(array) for array in arrays().values()]
    layer = layer_of(block_size)
    step = compute_gradients(lambda *inputs: ops.sum(layer(*inputs) ** 2), 0, layer.trainable_variables)
    assert max(elements_of_tanh(step, *tensors)) == B * rows * Tk * U


@pytest.mark.slow
@run_only_on(
    "tensorflow", "torch", reason="JAX makes a program of the loop, eagerly too, and no block is there to look at"
)
def test_no_features_are_kept_for_the_gradient(monkeypatch):
    """Only blocks are ever made, so it is enough that none is alive when the scores are there."""
    made, kept = [], []

    def watched(rows, keys, weigh):
        features = ops.tanh(ops.expand_dims(rows, -2) + ops.expand_dims(keys, -3))
        made.append(weakref.ref(features))
        return ops.squeeze(weigh(features), -1)

    monkeypatch.setattr(additive_query_blocks, "additive_scores", watched)
    rng = np.random.default_rng(0)
    tensors = [ops.convert_to_tensor(rng.normal(size=shape)) for shape in ((B, Tq, U), (B, Tk, U), (U, 1))]

    def loss(*tensors):
        scores = blocked_additive_scores(*tensors, 2)
        gc.collect()
        kept.extend(features for features in made if features() is not None)
        return ops.sum(scores)

    assert all(np.any(to_numpy(gradient) != 0) for gradient in compute_gradients(loss, 3)(*tensors))
    assert len(made) >= 4
    assert not kept


@run_only_on("tensorflow", reason="no other backend traces with sizes that are unknown")
@pytest.mark.parametrize(
    ("batch", "queries", "loops"),
    [(2, 7, False), (64, 256, True), (64, 1, False), (None, None, True), (None, 1, False)],
)
def test_auto_loops_only_if_features_are_many(batch, queries, loops):
    import tensorflow as tf

    keys, hiddens = (5, 8) if batch == 2 else (512, 256)
    signature = [tf.TensorSpec(shape) for shape in ((batch, queries, hiddens), (batch, keys, hiddens), (hiddens, 1))]
    program = tf.function(lambda *x: blocked_additive_scores(*x, "auto"), signature)
    kinds = {node.op for node in program.get_concrete_function().graph.as_graph_def().node}
    assert bool(kinds & {"While", "StatelessWhile"}) is loops


@run_only_on("tensorflow", reason="the others have no loop that runs steps beside each other")
def test_loop_runs_one_block_at_a_time():
    """TensorFlow would run ten steps of a loop side by side, and hold the features of ten blocks."""
    import tensorflow as tf

    signature = [tf.TensorSpec(shape) for shape in ((2, 64, 8), (2, 5, 8), (8, 1))]
    program = tf.function(compute_gradients(lambda *x: ops.sum(blocked_additive_scores(*x, 4)), 3), signature)
    graph = program.get_concrete_function().graph.as_graph_def()
    nodes = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
    loops = [node for node in nodes if node.op in ("While", "StatelessWhile")]
    assert len(loops) >= 2
    assert {node.attr["parallel_iterations"].i for node in loops} == {1}


on_gpu_of_torch = run_only_on("torch", reason="the others compile all that they compute on a GPU")


@pytest.fixture
def kernels(monkeypatch):
    """As on a GPU, but without the code generator; lists what is compiled."""
    import torch

    compile_function, made = torch.compile, []

    def as_it_is(program, _):
        made.append(program)
        return program.forward

    monkeypatch.setattr(torch, "compile", lambda *given, **how: compile_function(*given, backend=as_it_is, **how))
    monkeypatch.setattr(additive_torch_compiled, "is_on_gpu", lambda tensor: True)
    monkeypatch.setattr(additive_torch_compiled, "_uncompilable_dtypes", set())
    additive_torch_compiled._compile.cache_clear()
    yield made
    additive_torch_compiled._compile.cache_clear()


@on_gpu_of_torch
@pytest.mark.parametrize("dtype", ["float32", "mixed_float16"])
def test_kernels_give_outputs_and_gradients_of_the_plain_form(dtype, kernels):
    """Of blocks of 3, 3 and 1, and of heads; a gradient of a gradient is computed as elsewhere."""
    inputs, masks = arrays(), {"valid_lens": np.array([3, 5])}
    blocked, plain = layer_of(3, dtype=dtype), layer_of(None)
    compute = dtype.removeprefix("mixed_")
    outputs = [to_numpy(call_layer(layer, inputs, masks)).astype("float32") for layer in (blocked, plain)]
    assert_close(*outputs, tolerance=TOLERANCES[compute][0])
    assert_gradients_close(*(compute_layer_gradients(layer, inputs, masks) for layer in (blocked, plain)), compute)
    queries, keys = np.random.default_rng(0).normal(size=(2, 2, 3, 4, U)).astype("float32")
    tensors = [*map(ops.convert_to_tensor, (queries, keys)), ops.ones((U, 1))]
    assert_close(*(to_numpy(blocked_additive_scores(*tensors, size)) for size in (2, None)))
    assert_gradients_close(*(second_gradients(tensors, size) for size in (2, None)))
    assert kernels
    assert not additive_torch_compiled._uncompilable_dtypes


@on_gpu_of_torch
def test_causal_mask_reuses_kernels(kernels):
    """It has slices of keys, whose numbers do not lie one after another. torch compiles eight variants at most."""
    layer = layer_of(2)
    for sizes in ((7, 5), (9, 8)):
        assert all(
            np.any(each != 0)
            for each in compute_layer_gradients(layer, arrays((B,), *sizes), {"causal": True}).values()
        )
    assert len(kernels) <= 6


@on_gpu_of_torch
def test_fake_tensors_reach_no_kernel(kernels):
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        tensors = [ops.zeros(shape) for shape in ((B, Tq, U), (B, Tk, U), (U, 1))]
        assert tuple(blocked_additive_scores(*tensors, 2).shape) == (B, Tq, Tk)
    assert not kernels


@on_gpu_of_torch
def test_failed_compilation_warns_once_and_falls_back(kernels, monkeypatch):
    import torch

    def refused(*_, **__):
        raise RuntimeError("Failed to find C compiler.\nPlease specify via CC")

    monkeypatch.setattr(torch, "compile", refused)
    inputs = arrays()
    with pytest.warns(
        RuntimeWarning, match=r"could not compile additive scores of torch.float32.*: Failed to find C compiler\.$"
    ):
        output = call_layer(layer_of(3), inputs)
    assert_close(to_numpy(output), to_numpy(call_layer(layer_of(None), inputs)))
    again = compute_layer_gradients(layer_of(3), inputs)  # without a warning
    assert_gradients_close(again, compute_layer_gradients(layer_of(None), inputs))


DTYPES = ["mixed_float16", "bfloat16", "float64", "mixed_bfloat16", "float16"]


@pytest.mark.slow
@x64
@pytest.mark.parametrize(("dtype", "mode"), [(dtype, MODES[n % len(MODES)]) for n, dtype in enumerate(DTYPES)])
def test_blocks_equal_the_plain_form_in_other_precisions(dtype, mode):
    inputs, masks = arrays(), {"valid_lens": np.array([3, 5])}
    blocked, plain, exact = layer_of(2, dtype=dtype), layer_of(None, dtype=dtype), layer_of(None, dtype="float64")
    for layer in (blocked, plain, exact):
        for variable in layer.trainable_variables:
            variable.assign(0.25 * variable)  # small scores: a score of 10 has a rounding error of 0.04 in bfloat16
    compute = dtype.removeprefix("mixed_")
    outputs = [to_numpy(call_layer(layer, inputs, masks)) for layer in (blocked, plain)]
    if BACKEND == "jax" and compute == "float64":  # its features are float32, and a loop may round them another way
        assert_close(*outputs, tolerance=1e-6)
    else:
        assert_identical(*outputs)
    upstream = np.random.default_rng(1).normal(size=(B, Tq, Dv))
    exact_inputs = {name: array.astype("float64") for name, array in inputs.items()}
    expected = compute_layer_gradients(exact, exact_inputs, masks, upstream=upstream)
    given = exact_inputs if compute == "float64" else inputs
    assert_gradients_close(
        compute_layer_gradients(blocked, given, masks, upstream=upstream, mode=mode), expected, compute
    )
