"""`keras-attn predict`: printed results, written rows, and refused arguments."""

import json
import re
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from handwritten_bundles import write_onnx_bundle
from small_bundle import assert_one_line, list_names

from keras_attn_export._batch import row_runner

original_init = row_runner.RowRunner.__init__


@pytest.fixture
def bundle(tmp_path):
    """A bundle that returns the numbers of ids, and their sum."""
    nodes = """
        numbers = Constant <value = float[3] {10, 20, 30}> ()
        y = Gather <axis = 0> (numbers, ids)
        last = Constant <value = int64[1] {1}> ()
        total = ReduceSum <keepdims = 0> (y, last)
    """
    outputs = {"y": ("float32", ["batch", "time"]), "total": ("float32", ["batch"])}
    return write_onnx_bundle(tmp_path / "bundle", nodes, {"ids": ("int64", ["batch", "time"])}, outputs)


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
    assert second == "only rows of equal length share a batch along `time`: padding changes outputs of the model"
    assert list_names(out) == ["_predict", "a.parquet", "b.parquet"]
    assert pq.read_table(out / "a.parquet").to_pydict() == {
        "id": ["a0", "a1"],
        "y": [[10], [20, 30]],
        "total": [10, 50],
    }
    (out / "b.parquet").unlink()
    assert succeeds("predict", bundle, source, out).splitlines()[1] == "1 of 2 files were finished before"
    assert pq.read_table(out / "b.parquet").column("total").to_pylist() == [90]
    message = f"error: {out} holds a run, and `resume` is off. Choose another destination."
    fails("predict", bundle, source, out, "--no-resume", message=message)


def test_predict_fails_for_a_bad_row_and_writes_the_others(bundle, source, tmp_path, call):
    pq.write_table(pa.table({"ids": [[9], [1]], "id": ["bad", "good"]}), source / "c.parquet")
    out = tmp_path / "out"
    code, summary, err = call("predict", bundle, source, out, "--key", "id", "--outputs", "total")
    assert code == 1
    assert_one_line(
        err,
        f"error: failed rows or files: 1, in {out / '_predict' / 'errors.parquet'}; the first: c.parquet, row 0: [ONNX",
    )
    assert summary.startswith(f"{out}: 4 rows in ")
    assert pq.read_table(out / "c.parquet").to_pydict() == {"id": ["good"], "total": [20]}
    (error,) = pq.read_table(out / "_predict" / "errors.parquet").to_pylist()
    assert (error["file"], error["row"], error["key"]) == ("c.parquet", 0, "bad")


def test_json_reports_the_run_with_all_options(bundle, source, tmp_path, succeeds, monkeypatch):
    jobs = []
    monkeypatch.setattr(
        row_runner.RowRunner, "__init__", lambda self, job, *args: jobs.append(job) or original_init(self, job, *args)
    )
    arguments = "--batch-size 7 --workers 3 --key id --limit-memory 64M --outputs total,y --json"
    summary = json.loads(succeeds("predict", bundle, source, tmp_path / "out", *arguments.split()))
    options = {"batch_size": 7, "workers": 3, "key": "id", "memory_limit": 2**26, "outputs": ("total", "y")}
    assert {name: getattr(jobs[0], name) for name in options} == options
    assert summary.pop("seconds") > 0
    assert summary == {
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
    ("arguments", "message"),
    [
        ("bundle in out --batch-size 0", "`batch_size` must be an integer of 1 or more. Received: 0."),
        ("bundle in out --outputs z", "`outputs` must be a list of names among ['y', 'total']. Received: ['z']."),
        (
            "bundle in out --limit-memory lots",
            "`limit_memory` must be bytes or a text such as '2G', of 1 MiB or more. Received: lots.",
        ),
        ("bundle in out --key name", "a.parquet has no column `name`"),
        ("bundle in in/out", "overlap. Choose another destination."),
        ("bundle in bundle/out", "is in a bundle, which holds only the files in its manifest."),
        ("bundle nothing out", "There is no Parquet file at 'nothing'"),
        ("bundle empty out", "There is no Parquet file at 'empty' (in a folder: .parquet, .parq, .pq;"),
        ("bundle wrong.pq out", "column `ids` must hold lists of int64, nested 1 deep"),
        ("bundle absent.pq out", "has no column `ids`, an input of the model; it has ['tokens']"),
        ("bundle clash.pq out", "has a column `total`, which is also the name of an output: rename the column"),
        ("one x.pq out", "error: Rows share a batch along the first axis"),
    ],
)
def test_predict_refuses_bad_arguments(bundle, source, tmp_path, fails, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    write_onnx_bundle(tmp_path / "one", "y = Add (x, x)", {"x": ("float32", [2])}, {"y": ("float32", [2])})
    (tmp_path / "empty").mkdir()
    for name, columns in {
        "wrong": {"ids": [1.5, 2.5]},
        "absent": {"tokens": [[1]]},
        "clash": {"ids": [[1]], "total": [1]},
        "x": {"x": [1.0, 2.0]},
    }.items():
        pq.write_table(pa.table(columns), f"{name}.pq")
    old_names = list_names(tmp_path), list_names(source), list_names(bundle)
    fails("predict", *arguments.split(), message=message)
    assert (list_names(tmp_path), list_names(source), list_names(bundle)) == old_names


@pytest.mark.parametrize(
    ("module", "message", "extra"),
    [
        ("pyarrow.parquet", "Reading and writing Parquet needs more packages (", "tools"),
        ("ray", "Ray needs more packages (", "ray"),
    ],
)
def test_predict_names_the_extra_of_a_package(bundle, source, tmp_path, fails, monkeypatch, module, message, extra):
    monkeypatch.setitem(sys.modules, module, None)
    err = fails("predict", bundle, source, tmp_path / "out", "--engine", "ray", message=f"error: {message}")
    assert err.endswith(f'Install them: pip install "keras-attn[{extra}]"\n')
    assert not (tmp_path / "out").exists()
