"""What a run of the check found: kept in `gpu.json` from the first row on, so that an end at any moment leaves it."""

import json
import math
from pathlib import Path
from typing import Any

from .index import Row
from .timing import with_ratios

FILE, PAGE = "gpu.json", "gpu.md"
STAGES = ("replay", "contract", "timing")
VERSION = 1


class Results:
    """The rows of all stages, written anew after each bundle."""

    def __init__(self, folder: Path, provider: str, *, quick: bool) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.content: dict[str, Any] = {
            "version": VERSION,
            "provider": provider,
            "quick": quick,
            "ended": "while it ran",
            "machine": {},
            "left_out": [],
            **{stage: [] for stage in STAGES},
        }

    def add(self, stage: str, rows: list[Row]) -> None:
        self.content[stage] += rows
        self.save()

    def save(self) -> None:
        content = {**self.content, "timing": with_ratios(self.content["timing"])}
        draft = self.folder / f"{FILE}.part"
        draft.write_text(json.dumps(_plain(content), indent=1, allow_nan=False) + "\n", encoding="utf-8")
        draft.replace(self.folder / FILE)


def failures(content: dict[str, Any]) -> list[tuple[str, Row]]:
    """The rows that did not pass, with their stage."""
    return [(stage, row) for stage in STAGES for row in content[stage] if not row["passed"]]


def told(row: Row) -> str:
    """A row that failed, as one line."""
    named = (row.get(key) for key in ("bundle", "output", "promise", "where", "size", "fill"))
    return f"{', '.join(str(each) for each in named if each)}: {row['problem']}"


def read(path: Path) -> dict[str, Any]:
    """The results of a run, from its file.

    Raises:
        ValueError: It is none of this version.
    """
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        version = content["version"]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is no {FILE} of scripts/gpu-check.") from error
    if version != VERSION:
        raise ValueError(f"{path} has version {version}, and this is version {VERSION}.")
    return content


def joined(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """One of several runs on the same machine: what comes later replaces what was run before."""
    first, *others = parts
    for other in others:
        again = {stage: {row["bundle"] or row["layer"] for row in other[stage]} for stage in STAGES}
        kept = {
            stage: [row for row in first[stage] if (row["bundle"] or row["layer"]) not in again[stage]]
            for stage in STAGES
        }
        first = {**other, **{stage: [*kept[stage], *other[stage]] for stage in STAGES}}
    return {**first, "timing": with_ratios(first["timing"])}


def _plain(value: Any) -> Any:
    """JSON has no infinity: there is no such number then, and the problem of the row tells."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
