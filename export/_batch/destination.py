"""The folder that a run writes: what is done in it, and what the run was, so that another one can go on."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from .._errors import ExportError, InputError
from .._places import check_place, unless_a_folder
from .._whole_file import reason_of, removed, whole_file
from .parquet import UNREAD, as_text, open_parquet
from .source import Part

try:
    import fcntl
except ImportError:  # Windows: two runs at once to one folder are then not refused
    fcntl = None  # type: ignore[assignment]

# Readers of folders leave out what begins with `_`, so that tables hold outputs and nothing else.
OWN = "_predict"
MANIFEST = "manifest.json"
ERRORS = "errors.parquet"
SCHEMA_VERSION = 1


class Destination:
    """A folder with a file for each part that is done.

    `_predict/` in it holds the manifest, `errors.parquet`, the errors of each part, and files while they are written.
    """

    def __init__(self, folder: str | Path) -> None:
        """Name the folder; nothing is made yet."""
        self.folder = Path(os.path.abspath(folder))
        self.own = self.folder / OWN
        self.partial = self.own / "partial"

    def target(self, part: str) -> Path:
        """Return the file of a part, by its name."""
        return self.folder / part

    def errors_of(self, part: str) -> Path:
        """Return the file of the errors of a part, by its name."""
        return self.own / "errors" / part

    def is_done(self, part: str) -> bool:
        """Tell whether a part is written; one that could not all be read may be mended, and is to be tried again."""
        from pyarrow import compute

        if not self.target(part).exists():
            return False
        errors = self.errors_of(part)
        if not errors.is_file():
            return True
        with open_parquet(errors) as opened:
            found = opened.read(columns=["row", "reason"])
        unread = compute.match_substring_regex(found["reason"], rf"^(rows \d+ to \d+: )?{UNREAD}")
        return not (found["row"].null_count or compute.any(unread).as_py())

    @property
    def errors(self) -> Path:
        """The file of all errors, which is there after a run that had any."""
        return self.own / ERRORS

    @contextlib.contextmanager
    def begun(
        self, run: Mapping[str, Any], parts: Sequence[Part], *, resume: bool, more: Callable[[], Mapping[str, Any]]
    ) -> Iterator[dict[str, Any]]:
        """Make the folder, or go on in it; nobody else may meanwhile. Yields what stands in the manifest.

        Args:
            run: What the run is: its bundle, and what is asked of it.
            parts: The parts of its source.
            resume: Whether to go on where a run was begun.
            more: What else a run that is begun notes, for those that go on with it.

        Raises:
            InputError: It holds something else, the outputs of another bundle or source, or is not to be gone on with.
            ExportError: It cannot be written, or another run writes to it at this moment.
        """
        if as_text(str(self.folder)) != str(self.folder):
            raise InputError(f"The name of {as_text(str(self.folder))} is no text in UTF-8. Choose another place.")
        with contextlib.ExitStack() as held:
            try:
                refusal = partial(self._refusal, resume=resume)
                check_place(self.folder, refusal, error=InputError, in_a_folder=False)
                self.own.mkdir(parents=True, exist_ok=True)
                held.enter_context(self._alone())
                shutil.rmtree(self.partial, ignore_errors=True)  # what a killed run left
                self.partial.mkdir(exist_ok=True)  # a worker of it may still be writing there
                held.enter_context(removed(partial(shutil.rmtree, self.partial, ignore_errors=True)))
            except OSError as error:
                raise ExportError(f"Cannot write {self.folder}: {reason_of(error)}.") from error
            known = self._known(run, parts, more)
            with whole_file(self.own / MANIFEST, folder=self.partial) as file:
                file.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
            yield known

    def _refusal(self, there: Path, *, resume: bool) -> str | None:
        if said := unless_a_folder(there, "Outputs go to a folder, a file for each part"):
            return said
        held = {path.name for path in there.iterdir()}
        if held and held != {OWN} and not (self.own / MANIFEST).is_file():
            return f"{there} holds other files, and no run was begun there. Choose another place."
        if held and not resume:
            return f"{there} holds a run already, and it is not to be resumed. Choose another place."
        return None

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        with open(self.own / "lock", "a+", opener=_opened_where_it_is) as lock:
            if fcntl is not None:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # ends with the process, however that ends
                except BlockingIOError as error:
                    raise ExportError(f"Another run writes to {self.folder}. Wait until it is done.") from error
                except OSError:  # a shared file system without locks
                    pass
            yield

    def _known(
        self, run: Mapping[str, Any], parts: Sequence[Part], more: Callable[[], Mapping[str, Any]]
    ) -> dict[str, Any]:
        """Return the manifest, of the run that was begun here if it is this one."""
        named = {**run, "parts": [part.to_dict() for part in parts]}
        file = self.own / MANIFEST
        if not file.is_file():
            return {"schema_version": SCHEMA_VERSION, **named, **more()}
        try:
            before = json.loads(file.read_text(encoding="utf-8"))
            version, known = before["schema_version"], {part["name"]: part for part in before["parts"]}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(
                f"{file} is not the manifest of a run ({type(error).__name__}). Choose another place."
            ) from error
        if version != SCHEMA_VERSION:
            raise InputError(
                f"{file} has schema version {version!r}; this release knows {SCHEMA_VERSION}. Choose another place."
            )
        for name, value in run.items():
            if name in _IDENTITY and before.get(name) != value:
                raise InputError(
                    f"{self.folder} was begun with another {_IDENTITY[name]}: {before.get(name)!r:.99}, not "
                    f"{value!r:.99}. "
                    "Choose another place, or go on with that one."
                )
        self._check_parts(known, named["parts"])
        return {**before, "parts": named["parts"]}

    def _check_parts(self, known: Mapping[str, Any], parts: Iterable[Mapping[str, Any]]) -> None:
        names = {part["name"] for part in parts}
        odd = sorted(names ^ set(known))
        # a part that is not done may have been mended meanwhile
        changed = [] if odd else [part["name"] for part in parts if part != known[part["name"]]]
        odd += [name for name in changed if self.is_done(name)]
        if odd:
            raise InputError(
                f"{self.folder} was begun with another source: `{odd[0]}` was not the same there"
                f"{', and others' if len(odd) > 1 else ''}. Choose another place for this source."
            )


def _opened_where_it_is(path: str, flags: int) -> int:
    """Open a file, but not through a link, which may lead to a file of someone's; by these flags no pipe waits."""
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o666)


# What must be the same for a run to go on, and what messages call it.
_IDENTITY = {"bundle": "bundle", "outputs": "choice of outputs", "key": "key"}
