"""The commands on a decoder in steps: those that take it, and what the others say."""

import json

import keras
import numpy as np
import pytest
from bundles import alter_manifest, assert_one_line, names, read_manifest
from decoding_models import END, START, arrays, attending, ids_of
from steps_bundles import answer_of, counting_bundle, inputs_of

from keras_attn.decoding import greedy

pytest_plugins = ("command_fixtures",)

DESCRIBED = """\
step        token: the last token
            position: the number of the step, from 0
            state: step's output `next`; first encoder's output `state`
            cache: step's output `cache_out`; first zeros [batch, 0, 2]
            seen: encoder's input `seen`
token       the largest of `logits` of the step
collected   shown
start       encoder's output `begin`
end         1
longest     6 steps
"""


@pytest.fixture
def counting(tmp_path):
    return counting_bundle(tmp_path / "counting")


def test_export_run_and_verify(tmp_path, call):
    model = greedy(*attending(), start=START, end=END, max_length=3, outputs=["weights"])
    model.save(tmp_path / "model.keras")
    folder = tmp_path / "bundle"
    code, out, err = call("export", tmp_path / "model.keras", folder, "--in-steps")
    assert (code, err) == (0, "")
    assert out.startswith(f"bundle      {folder}\nkind        decoder in steps\nparts ")
    assert "            projected_keys: encoder's output `projected_keys`\n" in out
    assert out.rpartition("\n\n")[2].startswith(f"Exported to {folder} in ")

    inputs = ids_of(9)
    np.savez(tmp_path / "inputs.npz", **inputs)
    code, out, err = call("run", folder, "--inputs", tmp_path / "inputs.npz", "--outputs", tmp_path / "out.npz")
    assert (code, err) == (0, "")
    with np.load(tmp_path / "out.npz") as found:
        for name, array in arrays(model(inputs)).items():
            np.testing.assert_allclose(found[name], array, rtol=1e-4, atol=1e-5)

    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.layers[-1].step.get_layer("attend") is loaded.layers[-1].encoder.get_layer("attend")
    code, out, err = call(
        "verify", folder, "--samples", tmp_path / "inputs.npz", "--model", tmp_path / "model.keras", "--json"
    )
    assert (code, err) == (0, "")
    cases = {row["case"].partition(":")[0] for row in json.loads(out)["rows"]}
    assert {"encoder", "step", "base", "samples"} <= cases


def test_inspect(counting, call):
    code, out, err = call("inspect", counting)
    assert (code, err) == (0, "")
    told = " ".join(out.split())  # a long path has a line of its own
    assert told.startswith(f"bundle {counting} kind decoder in steps parts {counting / 'encoder'}: ")
    assert DESCRIBED in out
    content = json.loads(call("inspect", counting, "--json")[1])
    assert content["manifest"] == read_manifest(counting)


def test_inspect_of_a_manifest_with_less_in_it(counting, call):
    alter_manifest(counting, model=...)
    code, out, err = call("inspect", counting)
    assert (code, out) == (1, "")
    assert_one_line(err, f"error: {counting / 'manifest.json'}, or the report, lacks what is to be shown")


def test_run(counting, tmp_path, call):
    np.savez(tmp_path / "inputs.npz", **inputs_of([2, 3]))
    code, out, err = call("run", counting, "--inputs", tmp_path / "inputs.npz", "--outputs", tmp_path / "out.npz")
    assert (code, err) == (0, "")
    assert out.endswith("out.npz: tokens int32[2, 6], lengths int32[2], scores float32[2], shown float32[2, 6, 3]\n")
    with np.load(tmp_path / "out.npz") as found:
        np.testing.assert_array_equal(found["tokens"], answer_of([2, 3])["tokens"])


def test_verify(counting, call):
    code, out, err = call("verify", counting)
    assert (code, err) == (0, "")
    assert out.count("encoder: ones") == 2
    assert out.count("step: ones") == 4
    assert "all 10 comparisons match over 3 cases" in out


@pytest.mark.parametrize(
    "command",
    [
        ("bench",),
        ("report",),
        ("verify", "--trace"),
        ("layout", "LAYOUT", "--target", "triton"),
        ("convert", "FILE", "--to", "litert"),
        ("predict", "TABLE", "ANSWERS"),
    ],
    ids=lambda command: command[0],
)
def test_commands_for_one_file_name_the_two(counting, tmp_path, call, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    before = names(tmp_path)
    name, *rest = command
    code, out, err = call(name, "counting", *rest)
    assert (code, out) == (1, "")
    assert_one_line(err, "error: counting is a decoder in steps, a folder with two bundles; this takes one of them: ")
    assert err.endswith("counting/encoder or counting/step.\n")
    assert names(tmp_path) == before


def test_export_says_what_it_is_for(tmp_path, call):
    x = keras.Input((3,), name="x")
    keras.Model(x, keras.layers.Dense(2)(x), name="plain").save(tmp_path / "model.keras")
    code, out, err = call("export", tmp_path / "model.keras", tmp_path / "bundle", "--in-steps")
    assert (code, out) == (1, "")
    assert_one_line(err, "error: `in_steps` (--in-steps) exports what `keras_attn.decoding.greedy` makes")
    assert names(tmp_path) == ["model.keras"]
