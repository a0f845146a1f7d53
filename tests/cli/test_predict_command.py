"""`keras-attn predict`: what it prints and writes, and how it ends."""

import json
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bundles import assert_one_line, names
from onnx_bundles import onnx_bundle

from keras_attn_export._batch.memory import memory_limit

pytest_plugins = ("command_fixtures",)


@pytest.fixture
def bundle(tmp_path):
    """A bundle that looks up numbers of 0, 1 and 2, and adds up how many there are."""
    nodes = """
        numbers = Constant <value = float[3] {10, 20, 30}> ()
        y = Gather <axis = 0> (numbers, ids)
        last = Constant <value = int64[1] {1}> ()
        total = ReduceSum <keepdims = 0> (y, last)
    """
    outputs = {"y": ("float32", ["batch", "time"]), "total": ("float32", ["batch"])}
    return onnx_bundle(tmp_path / "bundle", nodes, {"ids": ("int64", ["batch", "time"])}, outputs)


@pytest.fixture
def source(tmp_path):
    (tmp_path / "in").mkdir()
    for name, ids in {"a": [[0], [1, 2]], "b": [[2, 2, 2]]}.items():
        pq.write_table(
            pa.table({"ids": ids, "id": [f"{name}{n}" for n in range(len(ids))]}), tmp_path / f"in/{name}.parquet"
        )
    return tmp_path / "in"


def test_it_says_what_it_wrote_and_goes_on(bundle, source, tmp_path, call):
    out = tmp_path / "out"
    code, said, err = call("predict", bundle, source, out)
    assert (code, err) == (0, "")
    first, second = said.splitlines()
    assert re.fullmatch(rf"{re.escape(str(out))}: 3 rows in \d+\.\d s, [\d,]+ rows a second", first)
    assert second == "only rows of one length ran together along `time`: padding changes what the model gives"
    assert names(out) == ["_predict", "a.parquet", "b.parquet"]
    assert pq.read_table(out / "a.parquet").to_pydict() == {
        "id": ["a0", "a1"],
        "y": [[10], [20, 30]],
        "total": [10, 50],
    }
    (out / "b.parquet").unlink()
    code, said, err = call("predict", bundle, source, out)
    assert (code, err, said.splitlines()[1]) == (0, "", "1 of 2 parts were done before")
    assert pq.read_table(out / "b.parquet").column("total").to_pylist() == [90]
    code, said, err = call("predict", bundle, source, out, "--no-resume")
    assert (code, said) == (1, "")
    assert_one_line(err, f"error: {out} holds a run already, and it is not to be resumed. Choose another place.")


def test_rows_that_fail_are_an_error_and_the_others_are_there(bundle, source, tmp_path, call):
    pq.write_table(pa.table({"ids": [[9], [1]], "id": ["bad", "good"]}), source / "c.parquet")
    out = tmp_path / "out"
    code, said, err = call("predict", bundle, source, out, "--key", "id", "--outputs", "total")
    assert code == 1
    assert_one_line(err, f"error: 1 row or part failed; {out / '_predict' / 'errors.parquet'} says which and why.")
    assert said.startswith(f"{out}: 4 rows in ")
    assert pq.read_table(out / "c.parquet").to_pydict() == {"id": ["good"], "total": [20]}
    (error,) = pq.read_table(out / "_predict" / "errors.parquet").to_pylist()
    assert (error["part"], error["row"], error["key"]) == ("c.parquet", 0, "bad")


def test_json(bundle, source, tmp_path, call):
    code, said, err = call("predict", bundle, source, tmp_path / "out", "--json", "--workers", 1, "--batch-size", 2)
    assert (code, err) == (0, "")
    told = json.loads(said)
    assert told.pop("seconds") > 0
    assert told == {
        "destination": str(tmp_path / "out"),
        "errors_file": None,
        "rows": 3,
        "errors": 0,
        "parts": 2,
        "resumed": 0,
        "exact_axes": ["time"],
        "one_by_one": False,
    }


def test_options_reach_the_run(bundle, source, tmp_path, call, monkeypatch):
    from keras_attn_export._batch import predict as module

    seen = {}
    honest = module.run_parts

    def watched(parts, job, *rest):
        seen.update(vars(job))
        return honest(parts, job, *rest)

    monkeypatch.setattr(module, "run_parts", watched)
    more = ["--batch-size", 7, "--workers", 3, "--key", "id", "--limit-memory", "64M", "--outputs", "total,y"]
    assert call("predict", bundle, source, tmp_path / "out", *more)[0] == 0
    wanted = {"batch_size": 7, "workers": 3, "key": "id", "limit": memory_limit("64M"), "outputs": ("total", "y")}
    assert {name: seen[name] for name in wanted} == wanted


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--batch-size", 0], "`batch_size` must be a whole number of 1 or more. Received: 0."),
        (["--workers", -1], "`workers` must be a whole number of 1 or more. Received: -1."),
        (["--outputs", "z"], "Outputs ['z'] are unknown. The model gives ['y', 'total']."),
        (["--limit-memory", "lots"], "A limit of memory is a number of bytes, or a text such as '2G' or '512MiB'."),
        (["--key", "name"], "No part of {source} can be run: {source}/a.parquet has no column `name`"),
        (["--provider", "cuda"], "This onnxruntime has no CUDAExecutionProvider"),
    ],
)
def test_what_does_not_fit_is_said_and_nothing_is_written(bundle, source, tmp_path, call, arguments, sentence):
    code, said, err = call("predict", bundle, source, tmp_path / "out", *arguments)
    assert (code, said) == (1, "")
    assert_one_line(err, f"error: {sentence.format(source=source)}")
    assert names(tmp_path) == ["bundle", "in"]


@pytest.mark.parametrize(
    ("place", "sentence"),
    [
        ("in/out", "are one in the other"),
        ("in", "are one in the other"),
        (".", "are one in the other"),
        ("bundle/out", "is in the bundle. Choose another place."),
        ("in/a.parquet", "are one in the other"),
    ],
)
def test_places_where_outputs_may_not_go(bundle, source, tmp_path, call, place, sentence):
    before = names(tmp_path), names(source)
    code, said, err = call("predict", bundle, source, tmp_path / place)
    assert (code, said) == (1, "")
    assert_one_line(err, "error: ")
    assert sentence in err
    assert (names(tmp_path), names(source)) == before


@pytest.mark.parametrize("source", ["nothing", "empty", "*.parquet"])
def test_a_source_that_is_none(bundle, tmp_path, call, source):
    (tmp_path / "empty").mkdir()
    sentences = {
        "nothing": "There is no file or folder {}.",
        "empty": "{} holds no Parquet: no file in it or below ends in .parquet, .parq, .pq.",
        "*.parquet": "No file matches {}.",
    }
    code, said, err = call("predict", bundle, tmp_path / source, tmp_path / "out")
    assert (code, said) == (1, "")
    assert_one_line(err, f"error: {sentences[source].format(tmp_path / source)}")


def test_columns_that_do_not_fit_are_said(bundle, tmp_path, call):
    for columns, sentence in {
        "wrong": ({"ids": [1.5, 2.5]}, "column `ids` must hold lists of int64, nested 1 deep"),
        "absent": ({"tokens": [[1]]}, "has no column `ids`, an input of the model; it has ['tokens']"),
        "clash": ({"ids": [[1]], "total": [1]}, "has a column `total`, and an output is called so: rename the column"),
    }.values():
        pq.write_table(pa.table(columns), tmp_path / "x.parquet")
        code, said, err = call("predict", bundle, tmp_path / "x.parquet", tmp_path / "out")
        assert (code, said) == (1, "")
        assert sentence in err
        assert_one_line(err, f"error: No part of {tmp_path / 'x.parquet'} can be run: ")


def test_a_model_without_a_batch(tmp_path, call):
    bundle = onnx_bundle(tmp_path / "one", "y = Add (x, x)", {"x": ("float32", [2])}, {"y": ("float32", [2])})
    pq.write_table(pa.table({"x": [1.0, 2.0]}), tmp_path / "x.parquet")
    code, _, err = call("predict", bundle, tmp_path / "x.parquet", tmp_path / "out")
    assert code == 1
    assert_one_line(err, "error: Rows are put together along the first axis")


def test_without_pyarrow(bundle, source, tmp_path, call, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow.parquet", None)
    code, _, err = call("predict", bundle, source, tmp_path / "out")
    assert code == 1
    assert_one_line(err, "error: Parquet is read and written by pyarrow, which cannot be imported (")
    assert "Install keras-attn[batch]." in err


def test_without_ray(bundle, source, tmp_path, call, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    code, _, err = call("predict", bundle, source, tmp_path / "out", "--engine", "ray")
    assert code == 1
    assert_one_line(err, "error: Ray cannot be imported (")
    assert "Install keras-attn[ray]." in err
    assert not (tmp_path / "out").exists()
