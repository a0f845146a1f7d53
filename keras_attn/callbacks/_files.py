"""Pictures in a folder: a file for each step."""

import os
from pathlib import Path
from typing import Any, Protocol


class PictureWriter(Protocol):
    """Takes PNG files. What it cannot write is an `OSError`."""

    def write(self, tag: str, step: int, png: bytes) -> None:
        """Keeps a picture, in such a way that it is there even if the process ends at once."""

    def close(self) -> None:
        """Lets go of what is open."""


class PictureFiles:
    """Writes `FOLDER/attention/TAG/STEP.png`.

    Raises:
        OSError: If there can be no such folder.
    """

    def __init__(self, folder: Any) -> None:
        self._folder = Path(folder) / "attention"
        self._folder.mkdir(parents=True, exist_ok=True)

    def write(self, tag: str, step: int, png: bytes) -> None:
        """Writes a file, which is there whole or not at all."""
        path = self._folder.joinpath(*tag.split("/"), f"{step}.png")
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        try:
            part.write_bytes(png)
            os.replace(part, path)
        finally:
            part.unlink(missing_ok=True)

    def close(self) -> None:
        """Nothing is open."""
