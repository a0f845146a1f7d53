"""Both engines of `predict`: every row of the reference loop once, in order, without padding."""

import pyarrow.parquet as pq
import pytest
from batch_tables import assert_rows_equal, insert_nulls, read_errors, run_reference_loop, write_source

from keras_attn_export import predict
from keras_attn_export._tables import parquet_files

FILES = {"a.parquet": 300, "b.parquet": 0, "sub/c.parquet": 150, "sub/deep/d.parquet": 1, "e.parquet": 90}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cases(exported, tmp_path_factory):
    """A source without lengths, which are then computed, and a source with lengths; each with its reference rows."""
    folders = [tmp_path_factory.mktemp("tables") / f"lens {lens}" for lens in (False, True)]
    return [(write_source(f, FILES, lens=f is folders[1]), run_reference_loop(exported, f)) for f in folders]


@pytest.mark.parametrize("options", [{}, {"outputs": ["weights"], "batch_size": 5, "key": "id"}, {"batch_size": 1}])
def test_engine_writes_the_rows_of_the_reference_loop(exported, cases, engine, tmp_path, options):
    source, oracle = cases[engine == "ray"]
    result = predict(exported, source, tmp_path / "out", engine=engine, workers=2, progress=False, **options)
    assert (result.rows, result.parts, result.resumed, result.errors, result.exact_axes) == (541, 5, 0, 0, ())
    if "outputs" in options:
        oracle = {name: [{k: row[k] for k in ("id", "name", "weights")} for row in oracle[name]] for name in oracle}
    assert_rows_equal(tmp_path / "out", oracle)


def test_chunks_do_not_change_rows(exported, cases, tmp_path, monkeypatch):
    source, oracle = cases[1]
    monkeypatch.setattr(parquet_files, "CHUNK_ROWS", 7)
    monkeypatch.setattr("keras_attn_export._batch.row_runner.CHUNK_BYTES", 10_000)
    predict(exported, source, tmp_path / "out", batch_size=3, progress=False)
    assert_rows_equal(tmp_path / "out", oracle)


def test_engines_write_equal_bytes(exported, cases, tmp_path, ray_address):
    contents = []
    for engine in ("local", "ray"):
        predict(exported, cases[0][0], tmp_path / engine, engine=engine, progress=False)
        contents.append({name: (tmp_path / engine / name).read_bytes() for name in FILES})
    assert contents[0] == contents[1]


def test_engine_lists_failed_rows_and_files(exported, engine, tmp_path, monkeypatch):
    monkeypatch.setattr(parquet_files, "CHUNK_ROWS", 7)
    source = write_source(tmp_path / "in", {"a.parquet": 40, "b.parquet": 3})
    oracle = run_reference_loop(exported, source)
    pq.write_table(insert_nulls(pq.read_table(source / "a.parquet"), 17), source / "a.parquet")
    (source / "c.parquet").write_bytes(b"this is no table")
    result = predict(exported, source, tmp_path / "out", engine=engine, key="name", progress=False)
    assert (result.rows, result.errors, result.parts) == (42, 2, 3)
    row, file = read_errors(tmp_path / "out")
    assert row == {"file": "a.parquet", "row": 17, "key": "row 17", "reason": "`keys` is null or contains a null"}
    assert (file["file"], file["row"], file["key"]) == ("c.parquet", None, None)
    assert file["reason"].startswith("cannot be read: ")
    assert_rows_equal(tmp_path / "out", oracle, excluded_ids=[17])
