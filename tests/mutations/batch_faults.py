"""Faults in batch inference."""

from .fault import fault

BATCH_FAULTS = (
    fault(
        "a part is written where it is read",
        "file = self._whole.enter_context(whole_file(target, folder=self._destination.partial))",
        "(file := target).parent.mkdir(parents=True, exist_ok=True)",
        "test_batch_kills -k rename",
    ),
    fault(
        "the errors of a part come after it",
        "again = target.exists()",
        "again = True",
        "test_batch_kills -k rename",
    ),
    fault(
        "a part that is taken again loses its errors first",
        "again = target.exists()",
        "again = False",
        "test_batch_kills --pairs every -k mended",
    ),
    fault(
        "what is done is done again",
        "left = [part for part in parts if not place.is_done(part.name)]",
        "left = list(parts)",
        "test_disk_and_files -k hundred",
    ),
    fault(
        "a part that could not all be read counts as done",
        'return not any(each["row"] is None or each["reason"].startswith(UNREAD) for each in found)',
        "return True",
        "test_disk_and_files -k flipped",
    ),
    fault(
        "rows stand in the order in which they were run",
        "places = rows - self.start",
        "places = np.sort(rows) - self.start",
        "test_engines -k windows",
    ),
    fault(
        "a row is lost where a window ends",
        "start, taken = row, 0.0\n        taken += size",
        "start, taken = row + 1, 0.0\n        taken += size",
        "test_engines -k windows",
    ),
    fault(
        "the first row of a part is that of its file",
        "first = part.first_row\n",
        "first = 0\n",
        "test_engines -k place_in_it",
    ),
    fault(
        "lengths that are filled in are one too small",
        "return Ragged(lengths.astype(dtype), np.arange(",
        "return Ragged((lengths - 1).astype(dtype), np.arange(",
        "test_engines -k windows",
    ),
    fault(
        "lengths that are given count padding",
        "Ragged(np.minimum(given.values, most), given.starts",
        "Ragged(given.values, given.starts",
        "test_engines -k windows",
    ),
    fault(
        "what is cut off is not the padding",
        "return output[tuple(slice(size if size >= 0 else None) for size in sizes)]",
        "return output[tuple(slice(-size if size > 0 else None, None) for size in sizes)]",
        "test_engines -k windows",
    ),
    fault(
        "rows that cannot be run are written",
        "table.slice(before + 1, after - before - 1)",
        "table.slice(before + 1, after - before)",
        "test_rows -k takes_no_other",
    ),
    fault(
        "two runs at once write to one folder",
        "fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)",
        "fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)",
        "test_destination -k at_once",
    ),
    fault(
        "checksums of pages are not looked at",
        "page_checksum_verification=True",
        "page_checksum_verification=False",
        "test_disk_and_files -k flipped",
    ),
    fault(
        "a run goes on with another bundle",
        '_IDENTITY = {"bundle": "bundle", ',
        "_IDENTITY = {",
        "test_destination -k another_bundle",
    ),
    fault(
        "a run goes on with a part that has changed",
        "odd += [name for name in changed if self.is_done(name)]",
        "odd += [name for name in changed if False]",
        "test_destination -k has_changed",
    ),
    fault(
        "what is cut is called as another file may be",
        'name / f"part-{number:05d}.parquet"',
        'name.with_name(f"{name.stem}-{number:05d}.parquet")',
        "test_engines -k names",
    ),
    fault(
        "errors of an earlier run stay",
        "    if not errors:\n        file.unlink(missing_ok=True)\n        return\n",
        "    if not errors:\n        return\n",
        "test_disk_and_files -k hundred",
    ),
    fault(
        "a part whose worker dies is given up",
        "max_retries=TRIES - 1",
        "max_retries=0",
        "test_batch_kills -k costs_time_only",
    ),
    fault(
        "what a killed worker left stays",
        "finally:\n                shutil.rmtree(self.partial, ignore_errors=True)",
        "finally:\n                pass",
        "test_batch_kills --pairs every --kills 10 -k workers_of_ray",
    ),
)
