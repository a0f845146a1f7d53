"""Promises 1 to 3 of models that run eagerly, compiled, in `fit` and `predict`, reloaded, and exported."""

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
"""Function of a functional model, sample inputs and an empty folder; it returns a function that runs the model."""


def to_arrays(outputs: dict) -> Inputs:
    return {name: to_numpy(tensor) for name, tensor in outputs.items()}


def to_tensors(inputs: Inputs) -> dict[str, Any]:
    return {name: ops.convert_to_tensor(array) for name, array in inputs.items()}


def call_model(model: keras.Model, sample: Inputs, folder: Path, *, mode: str) -> Callable[[Inputs], Inputs]:
    program = compile_function(model, mode)
    return lambda inputs: to_arrays(program(to_tensors(inputs)))


def run_predict(model: keras.Model, sample: Inputs, folder: Path) -> Callable[[Inputs], Inputs]:
    return lambda inputs: model.predict(inputs, verbose=0)


def reload_keras_file(model: keras.Model, sample: Inputs, folder: Path) -> Callable[[Inputs], Inputs]:
    model.save(folder / "model.keras")
    reloaded = keras.saving.load_model(folder / "model.keras")
    return lambda inputs: to_arrays(reloaded(inputs))


def load_saved_model(model: keras.Model, sample: Inputs, folder: Path) -> Callable[[Inputs], Inputs]:
    import tensorflow as tf

    model.export(folder / "saved_model", verbose=False)
    loaded = tf.saved_model.load(folder / "saved_model")
    return lambda inputs: to_arrays(loaded.serve(to_tensors(inputs)))


def export_bundle(model: keras.Model, sample: Inputs, folder: Path) -> Callable[[Inputs], Inputs]:
    import keras_attn_export

    return keras_attn_export.export_model(model, folder / "bundle", sample_inputs=sample).run


PATHS: dict[str, Run] = {mode: partial(call_model, mode=mode) for mode in MODES}
PATHS |= {"predict": run_predict, "keras_file": reload_keras_file}
if BACKEND == "tensorflow":  # SavedModels and exports of other backends need TensorFlow in addition
    PATHS |= {"saved_model": load_saved_model, "onnx": export_bundle}
every_path = parametrize_in_turn("run", PATHS, num_slow_values=1)


def build_model(case, build_outputs: Callable, mask_inputs: dict[str, keras.KerasTensor], **options):
    """Build a functional model of one layer with dynamic time axes; return the model and the layer."""
    layer = case.make(**options)
    sizes = {name: array.shape[-1] for name, array in case.inputs().items()}
    inputs = {name: keras.Input((None, size), name=name, dtype="float32") for name, size in sizes.items()} | mask_inputs
    model = keras.Model(inputs, build_outputs(layer, inputs))
    draw_weights(layer)
    return model, layer


def build_masked_model(case, **options):
    def build_outputs(layer, x):
        output, weights = layer(**x, use_causal_mask=True, return_attention_scores=True)
        return {"output": output, "weights": weights}

    mask_inputs = {"valid_lens": keras.Input((None,), dtype="int32", name="valid_lens")}
    mask_inputs["attention_mask"] = keras.Input((None, None), dtype="bool", name="attention_mask")
    return build_model(case, build_outputs, mask_inputs, **options)


@every_path
def test_every_path_applies_lengths_and_ignores_poison(case, run, tmp_path):
    """Entries with padding, without keys, and with a length above Tk; without dropout, because calls are inference."""
    lengths = {"valid_lens": keras.Input((), dtype="int32", name="valid_lens")}
    model, layer = build_model(case, lambda layer, x: {"output": layer(*x.values())}, lengths, dropout=0.5, seed=5)
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
    """Lengths of queries, an attention mask and a causal mask; the same program then runs with other B, Tq and Tk."""
    model, layer = build_masked_model(case)
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
        assert np.any(~weights.any(-1)), "the draw must have a fully masked query"


@every_path
def test_every_path_applies_masks_of_an_embedding(case, run, tmp_path):
    """`Embedding(mask_zero=True)` masks queries and keys, also in a functional model."""
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
    queries = to_numpy(embed_queries.embeddings)[query_tokens]
    keys = to_numpy(embed_keys.embeddings)[key_tokens]
    masks = {"causal": True, "queries_mask": query_tokens != 0, "keys_mask": key_tokens != 0}
    oracle = reference.attention(queries, keys, keys, case.score(layer), **masks)
    assert_close(computed["output"], oracle[0], "float32")
    assert_close(computed["weights"], oracle[1], "float32")
    assert np.all(computed["output"][inputs["query_tokens"] == 0] == 0)


@pytest.mark.slow
@parametrize_in_turn("jit_compile", FIT_MODES, [CASES[0], *CASES[4:]], num_slow_values=0)
def test_fit_takes_the_gradient_step_and_ignores_poison(case, jit_compile):
    """A step of `fit` equals a manual gradient step, and is identical with NaN in masked entries."""
    inputs = [*case.inputs().values(), np.array([3, 0], "int32")]
    dirty = [array.copy() for array in inputs]
    for array in dirty[1:3]:
        array[0, 3:] = array[1] = np.nan
    target = np.random.default_rng(9).normal(size=(B, Tq, 1)).astype("float32")

    def train(batch: list[np.ndarray]) -> list[np.ndarray]:
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
    after = train(inputs)
    for old, step, new in zip(before, steps, after, strict=True):
        assert np.any(old != new)
        assert_close(new, old - 0.1 * to_numpy(step))
    for clean, poisoned in zip(after, train(dirty), strict=True):
        assert_identical(poisoned, clean)


@pytest.mark.slow
@parametrize_in_turn("jit_compile", FIT_MODES, CASES[:4], num_slow_values=0)
def test_fit_with_dropout_and_rows_without_keys_changes_every_weight(case, jit_compile):
    model, _ = build_masked_model(case, dropout=0.5, seed=3)
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


# Without `one_head`: Keras treats calls of its sublayers with meta tensors as symbolic.
META_CASES = [case for case in (*CASES, *VARIANTS) if case.name != "one_head"]


@run_only_on("torch", reason="Keras places the tensors on the other backends")
@pytest.mark.parametrize("case", META_CASES, ids=lambda case: case.name)
def test_all_tensors_are_on_the_device_of_the_inputs(case):
    """The meta device exists on every machine, and stands for a GPU."""
    with keras.device("meta"):
        layer = case.make()
        inputs = [ops.convert_to_tensor(array) for array in case.inputs().values()]
        layer.build(*(tensor.shape for tensor in inputs))
        lengths = ops.convert_to_tensor(np.array([3, 4]))
        for result in layer(*inputs, lengths, use_causal_mask=True, return_attention_scores=True):
            assert result.device.type == "meta"
