"""Promises 7 and 8 of every public layer: saving and loading keep dropout draws, options and outputs."""

import inspect
import json
import subprocess
import sys

import attention_cell_cases
import keras
import numpy as np
import pytest
from decoding_models import build_attention_models, draw_ids
from layer_contract import (
    CASES,
    B,
    Dv,
    Tq,
    compute_layer_gradients,
    draw_weights,
    every_case,
    parametrize_in_turn,
    save_and_load,
    to_numpy,
)
from tolerances import assert_identical

from keras_attn.decoding import greedy


def build_model(layer, case) -> keras.Model:
    inputs = [keras.Input((None, size), name=name) for name, size in (("q", case.Dq), ("k", case.Dk), ("v", Dv))]
    lengths = keras.Input((), dtype="int32", name="lengths")
    output, weights = layer(*inputs, lengths, use_causal_mask=True, return_attention_scores=True)
    return keras.Model([*inputs, lengths], {"output": output, "weights": weights})


def draw_inputs(case) -> list[np.ndarray]:
    return [*case.inputs().values(), np.array([3, 0], "int32")]


@parametrize_in_turn("calls_before_saving", {"0": 0, "2": 2}, num_slow_values=0)
def test_loaded_layer_repeats_the_draws_of_its_seed(case, calls_before_saving, tmp_path):
    """A reloaded layer restarts the draws of its seed, as `keras.layers.Dropout` does."""
    model = build_model(case.make(dropout=0.5, seed=21), case)
    outputs = [to_numpy(model(draw_inputs(case), training=True)["output"]) for _ in range(calls_before_saving)]
    model.save(tmp_path / "model.keras")
    outputs += [to_numpy(model(draw_inputs(case), training=True)["output"]) for _ in range(2 - calls_before_saving)]
    reloaded = keras.saving.load_model(tmp_path / "model.keras")
    for expected in outputs:
        assert_identical(to_numpy(reloaded(draw_inputs(case), training=True)["output"]), expected)
    assert np.any(outputs[0] != outputs[1]), "two calls must draw different masks"
    other_seed = build_model(case.make(dropout=0.5, seed=22), case)
    other_seed.set_weights(model.get_weights())
    assert np.any(to_numpy(other_seed(draw_inputs(case), training=True)["output"]) != outputs[0])


@pytest.mark.parametrize("layer_class", sorted({case.layer_class for case in CASES}, key=lambda cls: cls.__name__))
def test_table_covers_every_option(layer_class):
    """The tests of saving below use the options of the table, so a new option must be in the table."""
    parameters = inspect.signature(layer_class).parameters.values()
    expected = {parameter.name for parameter in parameters if parameter.kind is not inspect.Parameter.VAR_KEYWORD}
    rows = [case for case in CASES if case.layer_class is layer_class]
    covered = {name for case in rows for names in (case.options, case.make.keywords) for name in names}
    assert covered == expected


@every_case
def test_config_keeps_every_option_under_the_registered_name(case):
    layer = case.make(**{**case.options, "name": "attention", "dtype": "mixed_float16", "trainable": False})
    config, default = layer.get_config(), case.make().get_config()
    assert set(case.options) <= set(config)
    for option in case.options:
        assert config[option] != default[option], f"{option} must differ from its default"
    serialized = json.loads(json.dumps(keras.saving.serialize_keras_object(layer)))
    assert serialized["registered_name"].split(">")[0] in ("keras_attn", "keras_attn_tests")
    reloaded = keras.saving.deserialize_keras_object(serialized)
    assert type(reloaded) is case.layer_class
    assert reloaded.get_config() == config


@parametrize_in_turn("has_options", {"options": True, "plain": False}, num_slow_values=1)
def test_layer_is_saved_and_loaded(case, has_options, tmp_path):
    layer = case.make(**(case.options if has_options else {}))
    model = build_model(layer, case)
    draw_weights(layer)
    reloaded = save_and_load(model, tmp_path)
    before, after = model(draw_inputs(case)), reloaded(draw_inputs(case))
    for name in ("output", "weights"):
        assert_identical(to_numpy(after[name]), to_numpy(before[name]))
    assert reloaded.get_layer(layer.name).get_config() == layer.get_config()
    for old, new in zip(model.losses, reloaded.losses, strict=True):
        assert_identical(to_numpy(new), to_numpy(old))


@pytest.mark.slow
def test_fresh_process_loads_files_with_keras_and_keras_attn_alone(tmp_path):
    models = {case.name: (build_model(case.make(**case.options), case), draw_inputs(case)) for case in CASES}
    models = {case.name: models[case.name] for case in CASES if not case.own_class}
    models |= {
        name: (attention_cell_cases.build_functional_model(name), attention_cell_cases.draw_model_inputs())
        for name in attention_cell_cases.CELLS
    }
    models["decoding"] = greedy(*build_attention_models(), start=0, end=1, max_length=7), [draw_ids(9)["ids"]]
    for name, (model, inputs) in models.items():
        if name != "decoding":
            draw_weights(model)
        model.save(tmp_path / f"{name}.keras")
        results = model(keras.tree.pack_sequence_as(model.input, inputs))
        np.savez(tmp_path / f"{name}.npz", *inputs, **{output: to_numpy(tensor) for output, tensor in results.items()})
    script = f"""
import keras, keras_attn
import numpy as np
for name in {[*models]!r}:
    model = keras.saving.load_model(name + ".keras")
    data = np.load(name + ".npz")
    inputs = [data[f"arr_{{i}}"] for i in range(len(model.inputs))]
    for output, tensor in model(keras.tree.pack_sequence_as(model.input, inputs)).items():
        if name == "decoding":
            np.testing.assert_allclose(keras.ops.convert_to_numpy(tensor), data[output], rtol=1e-5)
        else:
            assert np.array_equal(keras.ops.convert_to_numpy(tensor), data[output]), (name, output)
    print(name)
"""
    run = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.split() == [*models]


@every_case
def test_regularizers_and_constraints_apply_to_kernels(case):
    layer = case.layer(**{name: value for name, value in case.options.items() if name.startswith("kernel_")})
    regularizer, constraint = case.options.get("kernel_regularizer"), case.options.get("kernel_constraint")
    kernels = [variable for variable in layer.trainable_variables if variable.name != "bias"]
    if regularizer is None:
        assert layer.losses == []
    else:
        total = sum(0.01 * np.sum(np.square(to_numpy(variable))) for variable in kernels)
        assert to_numpy(sum(layer.losses)) == pytest.approx(total, rel=1e-5)  # "l2" is 0.01 times the sum of squares
    assert all((variable.constraint is not None) == (constraint is not None) for variable in kernels)


@every_case
def test_cloned_model_shares_no_variables(case):
    model = build_model(case.make(), case)
    clone = keras.models.clone_model(model)
    clone.set_weights(model.get_weights())
    assert_identical(to_numpy(clone(draw_inputs(case))["output"]), to_numpy(model(draw_inputs(case))["output"]))
    variable_ids = {id(variable) for variable in model.variables}
    assert variable_ids.isdisjoint(id(variable) for variable in clone.variables)


@every_case
def test_frozen_layer_has_gradients_for_its_inputs_only(case):
    layer = case.layer()
    layer.trainable = False
    assert layer.trainable_variables == []
    assert set(compute_layer_gradients(layer, case.inputs())) == {"queries", "keys", "values"}


@pytest.mark.slow
def test_training_is_reproducible():
    case = CASES[1]

    def train() -> list[np.ndarray]:
        keras.utils.set_random_seed(2)
        layer = case.make(dropout=0.5, seed=7)
        model = build_model(layer, case)
        model = keras.Model(model.input, keras.layers.Dense(1)(model.output["output"]))
        model.compile("adam", "mse")
        model.fit(draw_inputs(case), np.ones((B, Tq, 1)), epochs=3, batch_size=B, verbose=0)
        return model.get_weights()

    for first, second in zip(train(), train(), strict=True):
        assert_identical(second, first)
