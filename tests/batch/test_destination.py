"""A destination belongs to one run of one bundle over one source: other runs are refused."""

import shutil
import sys

import pyarrow.parquet as pq
import pytest
from batch_tables import make_table, plain_loop, same_rows, write_source
from bundles import alter_manifest, assert_one_line, finished

from keras_attn_export import ExportError, InputError, predict


@pytest.fixture(scope="module")
def kept(exported, tmp_path_factory):
    """Return a folder with a source, and with a destination where the first of four parts is done."""
    folder = tmp_path_factory.mktemp("begun")
    write_source(folder / "in", {f"part-{number}.parquet": 60 for number in range(4)})
    predict(exported, folder / "in", folder / "out", progress=False)
    for number in (1, 2, 3):
        (folder / "out" / f"part-{number}.parquet").unlink()
    return folder


@pytest.fixture
def begun(kept, tmp_path):
    """Return a source and a destination of such a kind that the test may alter."""
    return tuple(shutil.copytree(kept / name, tmp_path / name) for name in ("in", "out"))


def contents(folder):
    """Return what lies in a folder, and from when, but for what a run has while it holds the folder."""
    found = (path for path in sorted(folder.rglob("*")) if path.name not in ("lock", "partial"))
    return {path: path.stat().st_mtime_ns if path.is_file() else None for path in found}


def refused(match, bundle, source, target, kind=InputError, **options):
    """Check that a run is refused, in one line, and that its destination stays what it was."""
    before = contents(target)
    with pytest.raises(kind, match=match) as caught:
        predict(bundle, source, target, progress=False, **options)
    assert "\n" not in str(caught.value)
    assert contents(target) == before


def manifest(text):
    """Return a function that replaces the manifest of a destination."""
    return lambda source, target: (target / "_predict" / "manifest.json").write_text(text)


def other_files(source, target):
    shutil.rmtree(target)
    target.mkdir()
    (target / "thesis.tex").write_text("years of work")


REFUSED = {  # what is changed, options, what is said
    "another source": (
        lambda source, target: pq.write_table(make_table(60, seed=99), source / "part-0.parquet"),
        {},
        "was begun with another source: `part-0.parquet`",
    ),
    "one file more": (
        lambda source, target: shutil.copy(source / "part-0.parquet", source / "part-9.parquet"),
        {},
        "was begun with another source: `part-9.parquet`",
    ),
    "other outputs": (lambda *_: None, {"outputs": ["context"]}, "was begun with another choice of outputs"),
    "another key": (lambda *_: None, {"key": "id"}, "was begun with another key"),
    "not to be resumed": (lambda *_: None, {"resume": False}, "not to be resumed"),
    "other files": (other_files, {}, "holds other files"),
    "a later release": (manifest('{"schema_version": 2, "parts": []}'), {}, "has schema version 2"),
    "no manifest": (manifest(""), {}, "is not the manifest of a run"),
}


@pytest.mark.parametrize(("change", "options", "match"), REFUSED.values(), ids=REFUSED)
def test_destination_refuses_a_run_that_differs(exported, begun, change, options, match):
    change(*begun)
    refused(match, exported, *begun, **options)


def test_destination_refuses_another_bundle(bundle, begun):
    alter_manifest(bundle, model="another")
    refused("was begun with another bundle", bundle, *begun)


def test_run_resumes_after_both_folders_moved(exported, begun, tmp_path, monkeypatch):
    source, target = begun
    source.rename(tmp_path / "elsewhere")
    target.rename(tmp_path / "there")
    monkeypatch.chdir(tmp_path)
    assert predict(exported, "elsewhere/*.parquet", "there", progress=False).resumed == 1
    same_rows(tmp_path / "there", plain_loop(exported, tmp_path / "elsewhere"))


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="there two runs are not kept apart; CI runs Linux")
def test_second_run_to_a_destination_is_refused_meanwhile(exported, begun):
    source, target = begun
    seen = []

    def meanwhile(done, rows):
        if seen:
            return
        seen.append(done)
        refused("Another run writes to", exported, source, target, kind=ExportError)
        other = finished(sys.executable, "-m", "keras_attn_export", "predict", exported, source, target)
        assert (other.returncode, other.stdout) == (1, "")
        assert_one_line(other.stderr, "error: Another run writes to")

    done = predict(exported, source, target, progress=meanwhile)
    assert (done.errors, done.resumed, seen) == (0, 1, [60])
    same_rows(target, plain_loop(exported, source))
