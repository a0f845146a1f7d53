"""Output folder of a run: one output file per source file, and `_predict` with the manifest, the errors and a lock."""

import contextlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from .._bundle.atomic_writes import atomic_file
from .._bundle.output_paths import check_output_path, find_folder_objection
from .._errors import ExportError, InputError

try:
    import fcntl
except ImportError:  # Windows, where two runs can write to one folder at the same time
    fcntl = None  # type: ignore[assignment]

# An output file marks its own completion: `atomic_file` gives the file its name after the last row. A later run skips
# sources with an output. The manifest identifies the run: bundle, outputs, key, and size and time of the sources.
SCHEMA_VERSION = 2


class OutputFolder:
    """Paths and files of a run. `_predict` begins with `_`, so that readers of Parquet folders ignore it."""

    def __init__(self, folder: str | Path) -> None:
        """Define the paths, without creating the folder."""
        self.folder = Path(os.path.abspath(folder))
        self.private = self.folder / "_predict"
        self.errors, self.manifest = self.private / "errors.parquet", self.private / "manifest.json"

    def is_finished(self, name: str) -> bool:
        """Return True if the output of a source file is complete."""
        return (self.folder / name).is_file()

    @contextlib.contextmanager
    def lock(self, *, resume: bool) -> Iterator[None]:
        """Create the folder and lock it; refuse a folder with other files, a locked one, or a run without `resume`."""
        check_output_path(self.folder, lambda _: self._find_refusal(resume), error=InputError, needs_parent=False)
        try:
            self.private.mkdir(parents=True, exist_ok=True)
            lock_file = (self.private / "lock").open("a")
        except OSError as error:
            raise ExportError(f"Cannot write {self.folder}: {error.strerror}.") from error
        with lock_file:
            try:
                if fcntl is not None:
                    fcntl.flock(lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                # A network file system without locks raises another OSError: the run continues unlocked.
                if isinstance(error, BlockingIOError):
                    raise ExportError(f"Another run writes to {self.folder}. Wait until it has ended.") from error
            for stale_file in self.folder.rglob(f".{'[0-9a-f]' * 32}.partial"):  # of a run that was killed
                stale_file.unlink(missing_ok=True)
            yield

    def _find_refusal(self, resume: bool) -> str | None:
        names = {path.name for path in self.folder.iterdir()} if self.folder.is_dir() else set()
        if names - {self.private.name} and not self.manifest.is_file():
            return f"{self.folder} contains other files and no run. Choose another destination."
        if names and not resume:
            return f"{self.folder} holds a run, and `resume` is off. Choose another destination."
        return find_folder_objection(self.folder, "Outputs are written to a folder")

    def read_manifest(self, identity: Mapping[str, Any], files: Mapping[str, str]) -> dict[str, Any]:
        """Return the manifest of an earlier run, or an empty one; refuse another run, and changed finished sources."""
        if not self.manifest.is_file():
            return {}
        try:
            manifest: dict[str, Any] = json.loads(self.manifest.read_text(encoding="utf-8"))
        except ValueError as error:
            raise InputError(f"{self.manifest} is damaged. Choose another destination.") from error
        for name, value in {"schema_version": SCHEMA_VERSION, **identity}.items():
            if manifest.get(name) != value:
                reason = f"a run with another {name}: {manifest.get(name)!r:.99}, not {value!r:.99}"
                raise InputError(f"{self.folder} holds {reason}. Choose another destination.")
        for name, fingerprint in manifest["files"].items():
            if files.get(name) != fingerprint and self.is_finished(name):
                change = "has changed" if name in files else "is no longer in the source"
                reason = f"outputs of another source: `{name}` {change}"
                raise InputError(f"{self.folder} holds {reason}. Choose another destination.")
        return manifest

    def write_manifest(self, manifest: Mapping[str, Any]) -> None:
        """Write the manifest atomically."""
        with atomic_file(self.manifest) as file:
            file.write_text(json.dumps({"schema_version": SCHEMA_VERSION, **manifest}, indent=1), encoding="utf-8")

    def write_errors(self, name: str, tables: Sequence[Any]) -> None:
        """Write the errors of a source file; without errors, remove the table of an earlier run."""
        target = self.private / "errors" / name
        if not tables:
            target.unlink(missing_ok=True)
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        _write_tables(target, tables)

    def merge_errors(self, names: Iterable[str]) -> int:
        """Write the errors of all source files as one table, and return its number of rows."""
        from pyarrow import parquet

        files = [file for name in names if (file := self.private / "errors" / name).is_file()]
        self.errors.unlink(missing_ok=True)
        if not files:
            return 0
        return _write_tables(self.errors, (parquet.read_table(file, partitioning=None) for file in files))


def build_error_table(name: str, errors: Sequence[Mapping[str, Any]]) -> Any:
    """Build a `pyarrow.Table` of errors: source file, row and key (null for an unreadable file), and reason."""
    import pyarrow as pa

    types = {"file": pa.string(), "row": pa.int64(), "key": pa.string(), "reason": pa.string()}
    return pa.Table.from_pylist([{"file": name, **error} for error in errors], pa.schema(types))


def _write_tables(target: Path, tables: Iterable[Any]) -> int:
    """Write error tables to one file, one at a time, and return the number of rows."""
    from pyarrow import parquet

    count, schema = 0, build_error_table("", []).schema
    with atomic_file(target) as file, parquet.ParquetWriter(file, schema) as writer:
        for table in tables:
            writer.write_table(table)
            count += len(table)
    return count
