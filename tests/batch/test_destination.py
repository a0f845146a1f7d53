"""A destination belongs to one run of one bundle over one source: whatever else would write there is refused."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from batch_tables import make_table, plain_loop, same_rows, write_source
from bundles import alter_manifest, assert_one_line

from keras_attn_export import ExportError, InputError, predict

pytest_plugins = ("bundle_fixtures",)

FILES = {f"part-{number}.parquet": 60 for number in range(4)}


def predicted(bundle, source, target, **options):
    return predict(bundle, source, target, progress=False, **options)


def contents(folder):
    """Return what lies in a folder, and from when, but for what a run has while it holds the folder."""
    kept = (path for path in sorted(folder.rglob("*")) if path.name not in ("lock", "partial"))
    return {path: path.stat().st_mtime_ns if path.is_file() else None for path in kept}


def refused(match, *arguments, kind=InputError, **options):
    """Check that a run is refused, in one line, and that its destination stays what it was."""
    before = contents(Path(arguments[2]))
    with pytest.raises(kind, match=match) as caught:
        predicted(*arguments, **options)
    assert "\n" not in str(caught.value)
    assert contents(Path(arguments[2])) == before


@pytest.fixture
def begun(exported, tmp_path):
    """Return a source and a destination, where the first of four parts is done."""
    source = write_source(tmp_path / "in", FILES)
    predicted(exported, source, tmp_path / "out")
    for number in (1, 2, 3):
        (tmp_path / "out" / f"part-{number}.parquet").unlink()
    return source, tmp_path / "out"


def test_a_source_that_has_changed_is_refused(exported, begun):
    source, target = begun
    pq.write_table(make_table(60, seed=99), source / "part-0.parquet")
    refused("was begun with another source: `part-0.parquet`", exported, source, target)


@pytest.mark.parametrize("change", ["one more", "one less"])
def test_a_source_of_other_files_is_refused(exported, begun, change):
    source, target = begun
    if change == "one more":
        shutil.copy(source / "part-0.parquet", source / "part-9.parquet")
    else:
        (source / "part-3.parquet").unlink()
    refused("was begun with another source: `part-[93].parquet`", exported, source, target)


def test_another_bundle_is_refused(exported, bundle, begun):
    alter_manifest(bundle, model="another")
    refused("was begun with another bundle", bundle, *begun)


@pytest.mark.parametrize(
    ("options", "which"), [({"outputs": ["context"]}, "choice of outputs"), ({"key": "id"}, "key")]
)
def test_another_question_is_refused(exported, begun, options, which):
    refused(f"was begun with another {which}", exported, *begun, **options)


def test_what_is_not_to_be_resumed_is_refused(exported, begun):
    refused("not to be resumed", exported, *begun, resume=False)


def test_other_files_are_left_alone(exported, begun, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years of work")
    refused("holds other files", exported, begun[0], tmp_path / "mine")


@pytest.mark.parametrize("manifest", ["", "[]", "{}", '{"schema_version": 1, "parts": 3}', "null"])
def test_a_manifest_that_is_none_is_refused(exported, begun, manifest):
    (begun[1] / "_predict" / "manifest.json").write_text(manifest)
    refused("is not the manifest of a run|has schema version", exported, *begun)


def test_a_manifest_of_a_later_release_is_refused(exported, begun):
    file = begun[1] / "_predict" / "manifest.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"schema_version": 2}))
    refused("has schema version 2", exported, *begun)


def test_a_run_goes_on_elsewhere(exported, begun, tmp_path, monkeypatch):
    """Both folders may have been moved, and be named by another path."""
    source, target = begun
    source.rename(tmp_path / "elsewhere")
    target.rename(tmp_path / "there")
    monkeypatch.chdir(tmp_path)
    assert predicted(exported, "elsewhere/*.parquet", "there").resumed == 1
    same_rows(tmp_path / "there", plain_loop(exported, tmp_path / "elsewhere"))


@pytest.mark.skipif(sys.platform == "win32", reason="there two runs are not kept apart; CI runs Linux")
def test_two_runs_at_once(exported, begun):
    """The second is refused, in this process or another; the first one ends well."""
    source, target = begun
    seen = []

    def meanwhile(done, rows):
        if seen:
            return
        seen.append(done)
        refused("Another run writes to", exported, source, target, kind=ExportError)
        command = [sys.executable, "-m", "keras_attn_export", "predict", exported, source, target]
        other = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=120, check=False)
        assert (other.returncode, other.stdout) == (1, "")
        assert_one_line(other.stderr, "error: Another run writes to")

    done = predict(exported, source, target, progress=meanwhile)
    assert (done.errors, done.resumed, seen) == (0, 1, [60])
    same_rows(target, plain_loop(exported, source))


def test_a_destination_that_is_a_file(exported, tmp_path):
    source = write_source(tmp_path / "in", FILES)
    (tmp_path / "out").write_text("a file")
    with pytest.raises(InputError, match="is a file"):
        predicted(exported, source, tmp_path / "out")
    (tmp_path / "out").unlink()
    (tmp_path / "file").write_text("a file")
    with pytest.raises(ExportError, match=r"Cannot write .*Not a directory"):
        predicted(exported, source, tmp_path / "file" / "out")
