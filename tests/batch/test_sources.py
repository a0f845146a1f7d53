"""Sources: folders, links, patterns, and those that are refused."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from batch_tables import floats
from onnx_bundles import onnx_bundle

from keras_attn_export import InputError, predict


def rows_of(folder):
    return sorted(value for file in folder.rglob("*.parquet") for value in pq.read_table(file).column("y").to_pylist())


def write(file, *rows):
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"x": floats(rows)}), file)


def test_linked_folders_are_read_once(sums, tmp_path):
    write(tmp_path / "in" / "a.parquet", [1.0])
    write(tmp_path / "elsewhere" / "b.parquet", [2.0])
    (tmp_path / "in" / "linked").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "in" / "round").symlink_to(tmp_path / "in")
    predict(sums, tmp_path / "in", tmp_path / "out", progress=False)
    assert rows_of(tmp_path / "out") == [1, 2]


def test_files_that_a_pattern_matches_twice_are_read_once(sums, tmp_path):
    write(tmp_path / "in" / "year=1" / "a.parquet", [1.0])
    write(tmp_path / "in" / "year=2" / "b.parquet", [2.0])
    done = predict(sums, f"{tmp_path}/in/**/**/*.parquet", tmp_path / "out", progress=False)
    assert (done.parts, rows_of(tmp_path / "out")) == (2, [1, 2])


@pytest.mark.parametrize(
    ("source", "target", "said"),
    [
        ("in/**/*.parquet", "in/out", "is where .* looks for files"),  # which would find what is written
        ("in/_x.parquet", "out", r"_x.parquet begins with `_` or `\.`"),  # which readers leave out
    ],
)
def test_unsuitable_sources_are_refused(sums, tmp_path, source, target, said):
    write(tmp_path / "in" / "a.parquet", [1.0])
    write(tmp_path / "in" / "_x.parquet", [1.0])
    with pytest.raises(InputError, match=said):
        predict(sums, f"{tmp_path}/{source}", tmp_path / target, progress=False)


def test_run_does_not_resume_over_another_source_of_the_same_size(tmp_path):
    ids, file = ("int32", ["batch", 16]), tmp_path / "x.parquet"
    bundle = onnx_bundle(tmp_path / "bundle", "y = Add (ids, ids)", {"ids": ids}, {"y": ids})
    sizes = set()
    for seed in (1, 2):
        numbers = np.random.default_rng(seed).integers(0, 1000, (20000, 16)).astype("int32")
        pq.write_table(pa.table({"ids": list(numbers)}), file)
        sizes.add(file.stat().st_size)
        if seed == 1:
            predict(bundle, file, tmp_path / "out", progress=False)
    assert len(sizes) == 1, "sizes that differ would tell them apart"
    with pytest.raises(InputError, match=r"begun with another source"):
        predict(bundle, file, tmp_path / "out", progress=False)
