"""A file that appears whole or not at all."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator
from pathlib import Path

from ._errors import ExportError
from ._standalone.verify import removed


@contextlib.contextmanager
def whole_file(target: Path, *, folder: Path | None = None) -> Iterator[Path]:
    """Yield a path to write to; when the block ends well, that file becomes `target`, else it is removed.

    Args:
        target: The file to write or replace.
        folder: Where the file lies while it is written, on the same disk; `None` for beside `target`, hidden.

    Raises:
        ExportError: The file cannot be written; `target` is what it was.
    """
    # a name of its own, since that of `target` may be as long as names may be
    partial = (target.parent if folder is None else folder) / f".{uuid.uuid4().hex}.partial"
    with removed(lambda: _removed(partial)):
        try:
            yield partial
            put_in_place(partial, target)
        except OSError as error:
            raise ExportError(f"Cannot write {target}: {reason_of(error)}.") from error


def _removed(partial: Path) -> None:
    with contextlib.suppress(OSError):
        partial.unlink()


def put_in_place(partial: Path, target: Path) -> None:
    """Rename a file, once all of it is on the disk."""
    with partial.open("rb+") as file:
        os.fsync(file.fileno())
    partial.replace(target)


def reason_of(error: OSError) -> str:
    """Return what the system says of an error, in its own words where it has a number."""
    return os.strerror(error.errno) if error.errno else str(error).partition("\n")[0]
