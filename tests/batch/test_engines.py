"""Both engines write the rows of a plain loop: each row once, in order, without padding."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from batch_processes import WORKERS
from batch_tables import LONGEST, make_table, own_files, plain_loop, same_rows, with_nulls, write_source, written_files

from keras_attn_export import predict
from keras_attn_export._batch import source as parts_of_a_source

FILES = {"a.parquet": 300, "b.parquet": 0, "sub/c.parquet": 150, "sub/deep/d.parquet": 1, "e.parquet": 90}


@pytest.fixture(scope="module")
def cases(exported, tmp_path_factory):
    """Return a source without lengths, which are filled in, and one with them, and what each of their rows gives."""
    folders = [tmp_path_factory.mktemp("tables") / f"lens {lens}" for lens in (False, True)]
    for folder in folders:
        write_source(folder, FILES, lens=folder is folders[1])
    return [(folder, plain_loop(exported, folder)) for folder in folders]


def run(bundle, source, folder, engine, **options):
    """Run all of a source, and return what was written."""
    options = {"workers": WORKERS, "progress": False, **options}
    done = predict(bundle, source, folder / "out", engine=engine, **options)
    assert (done.errors, done.errors_file, done.exact_axes) == (0, None, ())
    assert own_files(folder / "out") == ["lock", "manifest.json"]
    return done


EVERY = dict(zip(FILES, FILES, strict=True))
ASKED = {  # what of the source, options, which files are written and of which they are
    "a folder": ("", {}, EVERY),
    "some outputs": ("", {"outputs": ["weights"], "key": "id", "batch_size": 5}, EVERY),
    "a file": ("/sub/c.parquet", {"batch_size": 1}, {"c.parquet": "sub/c.parquet"}),
}


@pytest.mark.slow
@pytest.mark.parametrize(("which", "options", "files"), ASKED.values(), ids=ASKED)
def test_engines_write_the_rows_of_a_plain_loop(exported, cases, engine, tmp_path, which, options, files):
    source, oracle = cases[engine == "ray"]
    done = run(exported, f"{source}{which}", tmp_path, engine, **options)
    wanted = {name: oracle[of] for name, of in files.items()}
    if "outputs" in options:
        wanted = {
            name: [{k: row[k] for k in ("id", "name", "weights")} for row in rows] for name, rows in wanted.items()
        }
    assert (done.rows, done.parts, done.resumed) == (sum(map(len, wanted.values())), len(files), 0)
    same_rows(tmp_path / "out", wanted)
    assert set(written_files(tmp_path / "out")) == set(files)


@pytest.mark.slow
def test_files_are_cut_into_parts_at_row_groups(exported, cases, engine, tmp_path, monkeypatch):
    """Row groups of 40 rows, of which two or three make a part: ends of groups, of parts and of windows."""
    source, oracle = cases[0]
    table = pq.read_table(source / "a.parquet")
    (tmp_path / "in").mkdir()
    pq.write_table(table, tmp_path / "in" / "a.parquet", row_group_size=40)
    pq.write_table(table.slice(0, 50), tmp_path / "in" / "b.parquet", row_group_size=20)
    monkeypatch.setattr(parts_of_a_source, "PART_BYTES", 250_000)
    done = run(exported, tmp_path / "in", tmp_path, engine)
    same_rows(tmp_path / "out", {"a.parquet": oracle["a.parquet"], "b.parquet": oracle["a.parquet"][:50]})
    assert 4 <= done.parts <= 8
    assert len(written_files(tmp_path / "out")["b.parquet"]) == 1


@pytest.mark.slow
def test_rows_are_right_at_borders_of_windows(exported, cases, tmp_path, monkeypatch):
    source, oracle = cases[1]
    monkeypatch.setattr("keras_attn_export._batch.run_parts.WINDOW_ROWS", 7)
    monkeypatch.setattr("keras_attn_export._batch.windows.WINDOW_BYTES", 3 * 4 * LONGEST)
    run(exported, source, tmp_path, "local", batch_size=3)
    same_rows(tmp_path / "out", oracle)


@pytest.mark.slow
def test_engines_write_equal_bytes(exported, cases, tmp_path, ray_address):
    """One core or many, another process: the rows run in the same batches, so the numbers are the same too."""
    written = []
    for engine in ("local", "ray"):
        (tmp_path / engine).mkdir()
        run(exported, cases[0][0], tmp_path / engine, engine)
        found = written_files(tmp_path / engine / "out")
        written.append({name: [file.read_bytes() for file in files] for name, files in found.items()})
    assert written[0] == written[1]


@pytest.mark.slow
def test_failed_rows_keep_their_numbers_in_a_file_of_several_parts(exported, engine, tmp_path, monkeypatch):
    table = make_table(200, seed=3)
    keys = table.column("keys").to_pylist()
    keys[101] = keys[101][:-1] or [[0.0] * 6] * 2
    index = table.schema.get_field_index("keys")
    table = table.set_column(index, "keys", pa.array(keys, table.schema.field("keys").type))
    pq.write_table(with_nulls(table, 17), tmp_path / "in.parquet", row_group_size=40)
    monkeypatch.setattr(parts_of_a_source, "PART_BYTES", 1)
    done = predict(exported, tmp_path / "in.parquet", tmp_path / "out", engine=engine, key="name", progress=False)
    assert (done.rows, done.errors, done.parts) == (198, 2, 5)
    errors = pq.read_table(done.errors_file).to_pylist()
    assert [(each["row"], each["key"]) for each in errors] == [(17, "row 17"), (101, "row 101")]
    assert errors[0]["part"] != errors[1]["part"]
    assert "is null" in errors[0]["reason"]
    assert "both are `keys_length`" in errors[1]["reason"]
    (tmp_path / "good").mkdir()
    good = pa.concat_tables([table.slice(0, 17), table.slice(18, 83), table.slice(102)])
    pq.write_table(good, tmp_path / "good" / "in.parquet")
    same_rows(tmp_path / "out", plain_loop(exported, tmp_path / "good"))


@pytest.mark.slow
def test_engines_resume_runs_of_each_other(exported, cases, tmp_path, ray_address):
    source, oracle = cases[0]
    run(exported, source, tmp_path, "local")
    for name in ("a.parquet", "e.parquet"):
        (tmp_path / "out" / name).unlink()
    done = run(exported, source, tmp_path, "ray")
    assert (done.resumed, done.rows) == (3, 390)
    same_rows(tmp_path / "out", oracle)


@pytest.mark.parametrize("name", ["a-00001.parquet", "a/part-00001.parquet", "a.parquet.parquet"])
def test_parts_of_a_file_get_names_that_no_other_file_has(exported, tmp_path, monkeypatch, name):
    (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(make_table(80, seed=1), tmp_path / "in" / "a.parquet", row_group_size=40)
    pq.write_table(make_table(10, seed=2, first_id=80), tmp_path / "in" / name)
    monkeypatch.setattr(parts_of_a_source, "PART_BYTES", 1)
    done = run(exported, tmp_path / "in", tmp_path, "local")
    assert (done.rows, done.parts) == (90, 3)
    same_rows(tmp_path / "out", plain_loop(exported, tmp_path / "in"))
