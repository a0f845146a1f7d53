"""Strings in Parquet go in and come out, padded by empty ones where rows are of unequal lengths."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from onnx_bundles import onnx_bundle

from keras_attn_export import predict
from keras_attn_export._batch.columns import column_problem, read_column
from keras_attn_export._standalone.verify import Spec

# Each word by itself, and how many there are in a row: padding counts too.
SAME = """
    same = Identity (words)
    first = Identity (name)
    size = Shape <start = 1> (words)
"""
WORDS = ["batch", "most"]


@pytest.fixture
def bundle(tmp_path):
    inputs = {"words": ("string", WORDS), "name": ("string", ["batch", 1])}
    outputs = {"same": ("string", WORDS), "first": ("string", ["batch", 1])}
    return onnx_bundle(tmp_path / "bundle", SAME, inputs, outputs)


@pytest.mark.parametrize("of", [pa.string(), pa.large_string()])
def test_rows_of_strings(bundle, tmp_path, of):
    words = [["a", "grün"], [], ["世界"], None, ["x", None]]
    table = {"words": pa.array(words, pa.list_(of)), "name": pa.array(list("abcde"), of), "row": [*range(5)]}
    pq.write_table(pa.table(table), tmp_path / "given.parquet")
    done = predict(bundle, tmp_path / "given.parquet", tmp_path / "made", progress=False)
    assert (done.rows, done.errors) == (3, 2)
    found = pq.read_table(tmp_path / "made" / "given.parquet").to_pydict()
    assert found == {"row": [0, 1, 2], "same": words[:3], "first": [["a"], ["b"], ["c"]]}


def test_a_row_of_one_needs_no_list():
    spec = Spec("x", "float32", ("batch", 1, 1))
    assert column_problem(pa.float32(), spec) is None
    ragged, problems = read_column(pa.array([1.0, None, 3.0], pa.float32()), spec)
    assert ragged.row(2).tolist() == [[3.0]]
    assert [*problems] == [1]
    assert column_problem(pa.float32(), Spec("x", "float32", ("batch", 2))) is not None


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [(pa.string(), "float32"), (pa.int64(), "string"), (pa.binary(), "string"), (pa.null(), "string")],
)
def test_other_kinds_are_refused(kind, dtype):
    assert f"must hold {dtype}" in column_problem(kind, Spec("x", dtype, ("batch",)))
