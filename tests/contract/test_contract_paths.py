"""Promises 1 to 3 on every path a model is run by: eager, compiled, trained, reloaded, and from TensorFlow exported."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import reference
from backends import BACKEND, FIT_MODES, MODES, compile_function, compute_gradients, run_only_on
from keras import ops
from layer_contract import (
    CASES,
    VARIANTS,
    B,
    Tk,
    Tq,
    build_lengths_model,
    draw_weights,
    parametrize_in_turn,
    read_weights,
    to_numpy,
)
from tolerances import assert_close, assert_identical

Inputs = dict[str, np.ndarray]
Run = Callable[[keras.Model, Inputs, Path], Callable[[Inputs], Inputs]]
"""Given a functional model with named inputs and outputs, inputs that fit it and an empty folder: runs the model."""


def arrays(outputs: dict) -> Inputs:
    return {name: to_numpy(tensor) for name, tensor in outputs.items()}


def tensors(inputs: Inputs) -> dict[str, Any]:
    return {name: ops.convert_to_tensor(array) for name, array in inputs.items()}


def called(model: keras.Model, sample: Inputs, folder: Path, *, mode: str) -> Callable[[Inputs], Inputs]:
    program = compile_function(model, mode)
    return lambda inputs: arrays(program(tensors(inputs)))


def predict(model: keras.Model, sample: Inputs, folder: Path) -> Callable[[Inputs], Inputs]:
    return lambda inputs: model.predict(inputs, verbose=0)


def keras_file(model: keras.Model, sample: Inputs, folder: Path) -> Callable[[Inputs], Inputs]:
    model.save(folder / "model.keras")
    reloaded = keras.saving.load_model(folder / "model.keras")
    return lambda inputs: arrays(reloaded(inputs))


def saved_model(model: keras.Model, sample: Inputs, folder: Path) -> Callable[[Inputs], Inputs]:
    import tensorflow as tf

    model.export(folder / "saved_model", verbose=False)
    loaded = tf.saved_model.load(folder / "saved_model")
    return lambda inputs: arrays(loaded.serve(tensors(inputs)))


def onnx(model: keras.Model, sample: Inputs, folder: Path) -> Callable[[Inputs], Inputs]:
    import keras_attn_export

    return keras_attn_export.export_model(model, folder / "bundle", sample_inputs=sample).run


PATHS: dict[str, Run] = {mode: partial(called, mode=mode) for mode in MODES}
PATHS |= {"predict": predict, "keras_file": keras_file}
if BACKEND == "tensorflow":  # the one whose models Keras writes as a SavedModel without another, and the export takes
    PATHS |= {"saved_model": saved_model, "onnx": onnx}
every_path = parametrize_in_turn("run", PATHS, num_slow_values=1)


def model_of(case, outputs_of: Callable, more: dict[str, keras.KerasTensor], **options) -> tuple[keras.Model, object]:
    """A functional model around one layer, all its time axes dynamic."""
    layer = case.make(**options)
    sizes = {name: array.shape[-1] for name, array in case.inputs().items()}
    inputs = {name: keras.Input((None, size), name=name, dtype="float32") for name, size in sizes.items()} | more
    model = keras.Model(inputs, outputs_of(layer, inputs))
    draw_weights(layer)
    return model, layer


def every_mask_model(case, **options):
    def outputs_of(layer, x):
        output, weights = layer(**x, use_causal_mask=True, return_attention_scores=True)
        return {"output": output, "weights": weights}

    more = {"valid_lens": keras.Input((None,), dtype="int32", name="valid_lens")}
    more["attention_mask"] = keras.Input((None, None), dtype="bool", name="attention_mask")
    return model_of(case, outputs_of, more, **options)


@every_path
def test_every_path_applies_lengths_and_ignores_poison(case, run, tmp_path):
    """Output only; an entry with no key, one with padding, one with a length above Tk; dropout is off in inference."""
    lengths = {"valid_lens": keras.Input((), dtype="int32", name="valid_lens")}
    model, layer = model_of(case, lambda layer, x: {"output": layer(*x.values())}, lengths, dropout=0.5, seed=5)
    inputs = case.inputs(leading=(3,)) | {"valid_lens": np.array([3, 0, 9], "int32")}
    compute = run(model, inputs, tmp_path)
    clean = compute(inputs)["output"]
    oracle, _ = reference.attention(**inputs, score=case.score(layer))
    assert_close(clean, oracle, "float32")
    assert np.all(clean[1] == 0)
    for poison in (np.nan, np.inf, 1e30):
        dirty = {name: array.copy() for name, array in inputs.items()}
        for name in ("keys", "values"):
            dirty[name][0, 3:] = dirty[name][1] = poison
        assert_identical(compute(dirty)["output"], clean)


@every_path
def test_every_path_applies_all_masks_at_any_size(case, run, tmp_path):
    """Lengths by query, mask and causal together; then other sizes of B, Tq and Tk through the same program."""
    model, layer = every_mask_model(case)
    rng, compute = np.random.default_rng(6), None
    for leading, queries, keys in (((B,), Tq, Tk), ((4,), 6, 3), ((3,), 3, 7)):
        inputs = case.inputs(leading=leading, Tq=queries, Tk=keys)
        lengths = rng.integers(0, keys + 1, size=(*leading, queries)).astype("int32")
        masks = {"valid_lens": lengths, "attention_mask": rng.random((*leading, queries, keys)) < 0.6}
        compute = compute or run(model, inputs | masks, tmp_path)
        computed = compute(inputs | masks)
        output, weights = reference.attention(**inputs, score=case.score(layer), causal=True, **masks)
        assert_close(computed["output"], output, "float32")
        assert_close(computed["weights"], weights, "float32")
        assert np.array_equal(computed["weights"] == 0, weights == 0)
        assert np.any(~weights.any(-1)), "the draw must hold a row with no key"


@every_path
def test_every_path_applies_masks_of_an_embedding(case, run, tmp_path):
    """`Embedding(mask_zero=True)` masks queries and keys, through the symbolic graph as well."""
    layer = case.make()
    queries = keras.Input((None,), dtype="int32", name="query_tokens")
    keys = keras.Input((None,), dtype="int32", name="key_tokens")
    embed_queries = keras.layers.Embedding(7, case.Dq, mask_zero=True, name="embed_queries")
    embed_keys = keras.layers.Embedding(9, case.Dk, mask_zero=True, name="embed_keys")
    embedded = embed_keys(keys)
    output, weights = layer(
        embed_queries(queries), embedded, embedded, use_causal_mask=True, return_attention_scores=True
    )
    model = keras.Model({"query_tokens": queries, "key_tokens": keys}, {"output": output, "weights": weights})
    draw_weights(layer)
    inputs = {
        "query_tokens": np.array([[1, 0, 3], [4, 5, 0]], "int32"),
        "key_tokens": np.array([[2, 3, 0, 4, 0], [0, 6, 7, 8, 1]], "int32"),
    }
    computed = run(model, inputs, tmp_path)(inputs)
    query_tokens, key_tokens = inputs.values()
    found_queries = to_numpy(embed_queries.embeddings)[query_tokens]
    found_keys = to_numpy(embed_keys.embeddings)[key_tokens]
    masks = {"causal": True, "queries_mask": query_tokens != 0, "keys_mask": key_tokens != 0}
    oracle = reference.attention(found_queries, found_keys, found_keys, case.score(layer), **masks)
    assert_close(computed["output"], oracle[0], "float32")
    assert_close(computed["weights"], oracle[1], "float32")
    assert np.all(computed["output"][inputs["query_tokens"] == 0] == 0)


@pytest.mark.slow
@parametrize_in_turn("jit_compile", FIT_MODES, [CASES[0], *CASES[4:]], num_slow_values=0)
def test_fit_takes_the_gradient_step_and_ignores_poison(case, jit_compile):
    """One step of `fit`: as a gradient step taken by hand, and bit for bit the same with NaN in what is masked."""
    inputs = [*case.inputs().values(), np.array([3, 0], "int32")]
    dirty = [array.copy() for array in inputs]
    for array in dirty[1:3]:
        array[0, 3:] = array[1] = np.nan
    target = np.random.default_rng(9).normal(size=(B, Tq, 1)).astype("float32")

    def trained(batch: list[np.ndarray]) -> list[np.ndarray]:
        keras.utils.set_random_seed(4)
        model, _ = build_lengths_model(case)
        model.compile(keras.optimizers.SGD(0.1), "mse", jit_compile=jit_compile)
        history = model.fit(batch, target, batch_size=B, verbose=0)
        assert np.isfinite(history.history["loss"]).all()
        return read_weights(model)

    keras.utils.set_random_seed(4)
    model, _ = build_lengths_model(case)
    before = read_weights(model)
    steps = compute_gradients(
        lambda: ops.mean(ops.square(ops.subtract(model(inputs, training=True), target))), 0, model.trainable_variables
    )()
    after = trained(inputs)
    for old, step, new in zip(before, steps, after, strict=True):
        assert np.any(old != new)
        assert_close(new, old - 0.1 * to_numpy(step))
    for clean, poisoned in zip(after, trained(dirty), strict=True):
        assert_identical(poisoned, clean)


@pytest.mark.slow
@parametrize_in_turn("jit_compile", FIT_MODES, CASES[:4], num_slow_values=0)
def test_fit_with_dropout_and_rows_without_keys_changes_every_weight(case, jit_compile):
    model, _ = every_mask_model(case, dropout=0.5, seed=3)
    output = keras.layers.Dense(1)(model.output["output"])
    trainable = keras.Model(model.input, output)
    trainable.compile("adam", "mse", jit_compile=jit_compile)
    inputs = case.inputs(leading=(4,)) | {
        "valid_lens": np.array([[0, 0, 0], [5, 5, 5], [5, 0, 5], [2, 2, 2]], "int32"),
        "attention_mask": np.random.default_rng(1).random((4, Tq, Tk)) < 0.9,
    }
    before = read_weights(trainable)
    trainable.fit(inputs, np.ones((4, Tq, 1)), batch_size=2, epochs=2, verbose=0)
    for old, new in zip(before, read_weights(trainable), strict=True):
        assert np.isfinite(new).all()
        assert np.any(old != new)


WITH_REAL_SIZES = [
    case for case in (*CASES, *VARIANTS) if case.name != "one_head"
]  # Keras traces what has meta tensors


@run_only_on("torch", reason="on others no tensor is put on another device than Keras says")
@pytest.mark.parametrize("case", WITH_REAL_SIZES, ids=lambda case: case.name)
def test_all_tensors_are_on_the_device_of_the_inputs(case):
    """On a device that is there on every machine; a GPU is one too."""
    with keras.device("meta"):
        layer = case.make()
        inputs = [ops.convert_to_tensor(array) for array in case.inputs().values()]
        layer.build(*(tensor.shape for tensor in inputs))
        lengths = ops.convert_to_tensor(np.array([3, 4]))
        for answer in layer(*inputs, lengths, use_causal_mask=True, return_attention_scores=True):
            assert answer.device.type == "meta"
