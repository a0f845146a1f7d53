"""`keras-attn predict`: what it prints and writes, and how it ends."""

import json
import re
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bundles import assert_one_line, names
from onnx_bundles import onnx_bundle

from keras_attn_export._batch.memory import memory_limit


@pytest.fixture
def bundle(tmp_path):
    """Return a bundle that looks up the numbers of three ids, and adds them up."""
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
        table = pa.table({"ids": ids, "id": [f"{name}{n}" for n in range(len(ids))]})
        pq.write_table(table, tmp_path / f"in/{name}.parquet")
    return tmp_path / "in"


def test_predict_writes_rows_and_resumes(bundle, source, tmp_path, succeeds, fails):
    out = tmp_path / "out"
    first, second = succeeds("predict", bundle, source, out).splitlines()
    assert re.fullmatch(rf"{re.escape(str(out))}: 3 rows in \d+\.\d s, [\d,]+ rows a second", first)
    assert second == "only rows of one length ran together along `time`: padding changes what the model gives"
    assert names(out) == ["_predict", "a.parquet", "b.parquet"]
    assert pq.read_table(out / "a.parquet").to_pydict() == {
        "id": ["a0", "a1"],
        "y": [[10], [20, 30]],
        "total": [10, 50],
    }
    (out / "b.parquet").unlink()
    assert succeeds("predict", bundle, source, out).splitlines()[1] == "1 of 2 parts were done before"
    assert pq.read_table(out / "b.parquet").column("total").to_pylist() == [90]
    said = f"error: {out} holds a run already, and it is not to be resumed. Choose another place."
    fails("predict", bundle, source, out, "--no-resume", said=said)


def test_predict_fails_for_a_bad_row_and_writes_the_others(bundle, source, tmp_path, call):
    pq.write_table(pa.table({"ids": [[9], [1]], "id": ["bad", "good"]}), source / "c.parquet")
    out = tmp_path / "out"
    code, said, err = call("predict", bundle, source, out, "--key", "id", "--outputs", "total")
    assert code == 1
    place = out / "_predict" / "errors.parquet"
    assert_one_line(err, f"error: 1 row or part failed; {place} says which and why. The first: c.parquet: row 0: [ONNX")
    assert said.startswith(f"{out}: 4 rows in ")
    assert pq.read_table(out / "c.parquet").to_pydict() == {"id": ["good"], "total": [20]}
    (error,) = pq.read_table(out / "_predict" / "errors.parquet").to_pylist()
    assert (error["part"], error["row"], error["key"]) == ("c.parquet", 0, "bad")


def test_json_reports_the_run_with_all_options(bundle, source, tmp_path, succeeds, monkeypatch):
    from keras_attn_export._batch import predict as module

    seen, honest = {}, module.run_parts
    monkeypatch.setattr(
        module, "run_parts", lambda parts, job, *rest: seen.update(vars(job)) or honest(parts, job, *rest)
    )
    more = ["--batch-size", 7, "--workers", 3, "--key", "id", "--limit-memory", "64M", "--outputs", "total,y", "--json"]
    told = json.loads(succeeds("predict", bundle, source, tmp_path / "out", *more))
    wanted = {"batch_size": 7, "workers": 3, "key": "id", "limit": memory_limit("64M"), "outputs": ("total", "y")}
    assert {name: seen[name] for name in wanted} == wanted
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


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("bundle in out --batch-size 0", "`batch_size` must be a whole number of 1 or more. Received: 0."),
        ("bundle in out --outputs z", "Outputs ['z'] are unknown. The model gives ['y', 'total']."),
        ("bundle in out --limit-memory lots", "A limit of memory is a number of bytes, or a text such as '2G'"),
        ("bundle in out --key name", "a.parquet has no column `name`"),
        ("bundle in in/out", "are one in the other"),
        ("bundle in bundle/out", "is in the bundle. Choose another place."),
        ("bundle nothing out", "There is no file or folder nothing."),
        ("bundle empty out", "empty holds no Parquet: no file in it or below ends in .parquet, .parq, .pq."),
        ("bundle wrong.pq out", "column `ids` must hold lists of int64, nested 1 deep"),
        ("bundle absent.pq out", "has no column `ids`, an input of the model; it has ['tokens']"),
        ("bundle clash.pq out", "has a column `total`, and an output is called so: rename the column"),
        ("one x.pq out", "error: Rows are put together along the first axis"),
    ],
)
def test_predict_refuses_bad_arguments(bundle, source, tmp_path, fails, monkeypatch, arguments, said):
    monkeypatch.chdir(tmp_path)
    onnx_bundle(tmp_path / "one", "y = Add (x, x)", {"x": ("float32", [2])}, {"y": ("float32", [2])})
    (tmp_path / "empty").mkdir()
    for name, columns in {
        "wrong": {"ids": [1.5, 2.5]},
        "absent": {"tokens": [[1]]},
        "clash": {"ids": [[1]], "total": [1]},
        "x": {"x": [1.0, 2.0]},
    }.items():
        pq.write_table(pa.table(columns), f"{name}.pq")
    before = names(tmp_path), names(source), names(bundle)
    fails("predict", *arguments.split(), said=said)
    assert (names(tmp_path), names(source), names(bundle)) == before


@pytest.mark.parametrize(
    ("module", "said", "extra"),
    [
        ("pyarrow.parquet", "Reading and writing Parquet needs more packages (", "tools"),
        ("ray", "Ray needs more packages (", "ray"),
    ],
)
def test_predict_names_the_extra_of_a_package(bundle, source, tmp_path, fails, monkeypatch, module, said, extra):
    monkeypatch.setitem(sys.modules, module, None)
    err = fails("predict", bundle, source, tmp_path / "out", "--engine", "ray", said=f"error: {said}")
    assert err.endswith(f'Install them: pip install "keras-attn[{extra}]"\n')
    assert not (tmp_path / "out").exists()
