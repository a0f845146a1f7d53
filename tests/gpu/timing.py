"""Time a bundle with its inputs and outputs on the device, and hold what it gives to what the plain form gives."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from .index import Entry, Row
from .kinds import Kind
from .machine import memory_used
from .plans import PORTABLE
from .sessions import bound, first_line, freed, opened, results, timed
from .sizes import ALL, FILLS, MOST_ON_CPU, Size, elements, inputs_of, part_of, sizes_of

TOO_LARGE = ("out of memory", "failed to allocate", "bad allocation", "cudamalloc", "available memory")
DOES_NOT_FIT = "does not fit"
LARGEST_DIFFERENCE = {"float32": 1e-4, "TF32": 2e-2, "float16": 2e-2}  # of the largest number of the output


def timings(folder: Path, entry: Entry, provider: str, scratch: Path, quick: bool = False) -> list[Row]:
    """The rows of a bundle: on the provider; beside a GPU with TF32 too, and on the CPU where that is no wait."""
    ways = [(provider, False)]
    if provider == "cuda":
        ways += [("cuda", True), ("cpu", False)] if entry["precision"] == "float32" else []
    return [row for device, tf32 in ways for row in _rows(folder, entry, device, scratch, tf32=tf32, quick=quick)]


def _rows(folder: Path, entry: Entry, device: str, scratch: Path, *, tf32: bool, quick: bool) -> Iterator[Row]:
    kind = Kind.from_json(entry["kind"])
    aside = device == "cpu"
    for size in sizes_of(entry["layer"], quick=quick):
        if aside and elements(kind, size) >= MOST_ON_CPU:
            continue
        for fill in (ALL,) if tf32 else FILLS:
            row = {key: entry[key] for key in ("layer", "form", "precision")} | {"bundle": entry["name"]}
            row |= {"where": device, "tf32": tf32, "size": str(size), "fill": fill, "problem": None}
            try:
                row |= _timed(folder / entry["name"], row, kind, size, scratch, quick=quick)
            except Exception as error:  # noqa: BLE001 - whatever fails is a row, and the others go on
                row["problem"] = problem_of(error)
            freed()
            yield {**row, "passed": row["problem"] in (None, DOES_NOT_FIT)}


def _timed(bundle: Path, row: Row, kind: Kind, size: Size, scratch: Path, *, quick: bool) -> Row:
    """Open a session, run it and let it go: one is alive at a time."""
    before = memory_used() if row["where"] == "cuda" else None
    session = opened(bundle, row["where"], tf32=row["tf32"])
    run, binding = bound(session, inputs_of(kind, size, row["fill"]), row["where"])
    times = timed(run, quick=quick)
    after = memory_used() if before is not None else None
    told: Row = {"ms": times.median, "p10": times.p10, "p90": times.p90, "runs": times.runs}
    if before is not None and after is not None:
        told["memory_mib"] = after - before
    (output,) = results(session, binding).values()
    return told | held_to_plain(output, row, scratch)


def held_to_plain(output: np.ndarray, row: Row, scratch: Path) -> Row:
    """Compare with what the plain form gave in float32, which is kept when it is what was run."""
    file = scratch / f"{row['layer']} {row['size']} {row['fill']} {row['where']}.npy".replace(" ", "_")
    found = part_of(output).astype("float64")
    if (row["form"], row["precision"], row["tf32"]) == (PORTABLE, "float32", False):
        np.save(file, found)
        return {} if np.isfinite(found).all() else {"problem": "The output is not finite."}
    if not file.exists():
        return {}
    plain = np.load(file)
    difference = float(np.max(np.abs(found - plain)) / np.max(np.abs(plain)))
    limit = LARGEST_DIFFERENCE["TF32" if row["tf32"] else row["precision"]]
    problem = None if difference <= limit else f"differs from the plain form by {difference:.1e} of its largest number"
    return {"difference": difference if np.isfinite(difference) else None, "problem": problem}


def problem_of(error: Exception) -> str:
    """What a run failed of: one sentence, or that it does not fit the memory."""
    said = str(error).lower()
    return DOES_NOT_FIT if any(words in said for words in TOO_LARGE) else first_line(error)


def with_ratios(rows: list[Row]) -> list[Row]:
    """Add how many times as fast each is as the plain form: of the same call and precision, on the same device."""
    alike = ("layer", "precision", "where", "tf32", "size", "fill")
    plain = {tuple(row[key] for key in alike): row.get("ms") for row in rows if row["form"] == PORTABLE}
    found = []
    for row in rows:
        at = {**row, "where": row["where"].removeprefix("torch ")}
        least = plain.get(tuple(at[key] for key in alike))
        found.append({**row, "faster": least / row["ms"] if least and row.get("ms") else None})
    return found
