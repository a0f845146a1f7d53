"""Both engines give what a plain loop gives, row by row: each row once, in order, without padding."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from batch_processes import WORKERS
from batch_tables import LONGEST, make_table, own_files, plain_loop, same_rows, write_source, written_files

from keras_attn_export import predict
from keras_attn_export._batch import source as parts_of_a_source

pytest_plugins = ("bundle_fixtures", "ray_fixtures")

FILES = {"a.parquet": 300, "b.parquet": 0, "sub/c.parquet": 150, "sub/deep/d.parquet": 1, "e.parquet": 90}


@pytest.fixture(scope="module", params=[False, True], ids=["lengths filled in", "lengths given"])
def case(request, exported, tmp_path_factory):
    """Return a source, and what each of its rows gives."""
    folder = write_source(tmp_path_factory.mktemp("tables") / "in", FILES, lens=request.param)
    return folder, plain_loop(exported, folder)


@pytest.fixture(params=["local", "ray"])
def engine(request):
    if request.param == "ray":
        request.getfixturevalue("ray_address")
    return request.param


def run(bundle, source, folder, engine, **options):
    """Run all of a source, and return what was written."""
    options = {"workers": WORKERS, "progress": False, **options}
    done = predict(bundle, source, folder / "out", engine=engine, **options)
    assert (done.errors, done.errors_file, done.exact_axes) == (0, None, ())
    assert own_files(folder / "out") == ["lock", "manifest.json"]
    return done


def test_a_folder_with_folders_below_it(exported, case, engine, tmp_path):
    source, oracle = case
    done = run(exported, source, tmp_path, engine)
    assert (done.rows, done.parts, done.resumed) == (541, 5, 0)
    same_rows(tmp_path / "out", oracle)
    assert set(written_files(tmp_path / "out")) == set(FILES)


def test_some_outputs(exported, case, engine, tmp_path):
    source, oracle = case
    run(exported, source, tmp_path, engine, outputs=["weights"], key="id", batch_size=5)
    of_weights = {
        name: [{key: row[key] for key in ("id", "name", "weights")} for row in rows] for name, rows in oracle.items()
    }
    same_rows(tmp_path / "out", of_weights)


def test_one_file(exported, case, engine, tmp_path):
    source, oracle = case
    run(exported, source / "sub" / "c.parquet", tmp_path, engine, batch_size=1)
    same_rows(tmp_path / "out", {"c.parquet": oracle["sub/c.parquet"]})


def test_a_pattern(exported, case, engine, tmp_path):
    source, oracle = case
    run(exported, f"{source}/**/[cde].parquet", tmp_path, engine)
    same_rows(tmp_path / "out", {name: oracle[name] for name in ("sub/c.parquet", "sub/deep/d.parquet", "e.parquet")})


def test_row_groups_make_one_part_or_several(exported, case, engine, tmp_path, monkeypatch):
    """Row groups of 40 rows, of which two or three make a part: ends of groups, of parts and of windows."""
    source, oracle = case
    table = pq.read_table(source / "a.parquet")
    (tmp_path / "in").mkdir()
    pq.write_table(table, tmp_path / "in" / "a.parquet", row_group_size=40)
    pq.write_table(table.slice(0, 50), tmp_path / "in" / "b.parquet", row_group_size=20)
    monkeypatch.setattr(parts_of_a_source, "PART_BYTES", 250_000)
    done = run(exported, tmp_path / "in", tmp_path, engine)
    same_rows(tmp_path / "out", {"a.parquet": oracle["a.parquet"], "b.parquet": oracle["a.parquet"][:50]})
    assert 4 <= done.parts <= 8
    assert len(written_files(tmp_path / "out")["b.parquet"]) == 1


def test_windows_of_a_few_rows(exported, case, tmp_path, monkeypatch):
    """What is read, run and written at once is as good as nothing: borders everywhere."""
    source, oracle = case
    monkeypatch.setattr("keras_attn_export._batch.run_parts.WINDOW_ROWS", 7)
    monkeypatch.setattr("keras_attn_export._batch.windows.WINDOW_BYTES", 3 * 4 * LONGEST)
    run(exported, source, tmp_path, "local", batch_size=3)
    same_rows(tmp_path / "out", oracle)


def test_both_engines_write_the_same_bytes(exported, case, tmp_path, ray_address):
    """One core or many, another process: the rows run in the same batches, so the numbers are the same too."""
    source, _ = case
    for engine in ("local", "ray"):
        (tmp_path / engine).mkdir()
        run(exported, source, tmp_path / engine, engine)
    here, there = (written_files(tmp_path / engine / "out") for engine in ("local", "ray"))
    assert [[file.read_bytes() for file in files] for files in here.values()] == [
        [file.read_bytes() for file in files] for files in there.values()
    ]


def test_rows_that_cannot_be_run_are_the_same_on_both(exported, engine, tmp_path):
    table = make_table(200, seed=3)
    keys = table.column("keys").to_pylist()
    keys[17], keys[101] = None, keys[101][:-1] or [[0.0] * 6] * 2
    table = table.set_column(
        table.schema.get_field_index("keys"), "keys", pa.array(keys, table.schema.field("keys").type)
    )
    pq.write_table(table, tmp_path / "in.parquet")
    done = predict(exported, tmp_path / "in.parquet", tmp_path / "out", engine=engine, key="name", progress=False)
    assert (done.rows, done.errors) == (198, 2)
    errors = pq.read_table(done.errors_file).to_pylist()
    assert [(each["part"], each["row"], each["key"]) for each in errors] == [
        ("in.parquet", 17, "row 17"),
        ("in.parquet", 101, "row 101"),
    ]
    assert "is null" in errors[0]["reason"]
    assert "both are `keys_length`" in errors[1]["reason"]
    (tmp_path / "good").mkdir()
    good = pa.concat_tables([table.slice(0, 17), table.slice(18, 83), table.slice(102)])
    pq.write_table(good, tmp_path / "good" / "in.parquet")
    same_rows(tmp_path / "out", plain_loop(exported, tmp_path / "good"))


def test_failing_rows_of_a_cut_file_are_named_by_their_place_in_it(exported, engine, tmp_path, monkeypatch):
    table = make_table(90, seed=4)
    keys = table.column("keys").to_pylist()
    keys[25] = keys[70] = None
    index = table.schema.get_field_index("keys")
    table = table.set_column(index, "keys", pa.array(keys, table.schema.field("keys").type))
    pq.write_table(table, tmp_path / "in.parquet", row_group_size=20)
    monkeypatch.setattr(parts_of_a_source, "PART_BYTES", 1)
    done = predict(exported, tmp_path / "in.parquet", tmp_path / "out", engine=engine, key="id", progress=False)
    assert (done.rows, done.errors, done.parts) == (88, 2, 5)
    errors = pq.read_table(done.errors_file).to_pylist()
    assert [(each["row"], each["key"]) for each in errors] == [(25, "25"), (70, "70")]
    assert len({each["part"] for each in errors}) == 2


def test_one_engine_goes_on_where_the_other_stopped(exported, case, tmp_path, ray_address):
    source, oracle = case
    run(exported, source, tmp_path, "local")
    (tmp_path / "out" / "a.parquet").unlink()
    (tmp_path / "out" / "e.parquet").unlink()
    done = run(exported, source, tmp_path, "ray")
    assert (done.resumed, done.rows) == (3, 390)
    same_rows(tmp_path / "out", oracle)


@pytest.mark.parametrize("name", ["a-00001.parquet", "a/part-00001.parquet", "a.parquet.parquet", "a/a.parquet"])
def test_names_of_cut_files_are_not_those_of_others(exported, tmp_path, monkeypatch, name):
    """What becomes of `a.parquet` in two parts must not be called as another file is."""
    (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(make_table(80, seed=1), tmp_path / "in" / "a.parquet", row_group_size=40)
    pq.write_table(make_table(10, seed=2, first_id=80), tmp_path / "in" / name)
    monkeypatch.setattr(parts_of_a_source, "PART_BYTES", 1)
    done = run(exported, tmp_path / "in", tmp_path, "local")
    assert (done.rows, done.parts) == (90, 3)
    same_rows(tmp_path / "out", plain_loop(exported, tmp_path / "in"))
