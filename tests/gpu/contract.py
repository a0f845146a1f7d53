"""The contract of attention layers on a bundle: the oracle's numbers, and promises 1 to 3 of docs/concepts.md."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tolerances import TOLERANCES

from .index import Entry, Row, read_weights
from .kinds import Arrays, Kind
from .masks import drawn
from .oracle import Expected, Oracle
from .promises import ALTERED, Altered
from .sessions import first_line, freed, opened
from .standalone import verify

NUMBERS, DISTRIBUTION = "numbers", "distribution"

SIZES = {  # B, Tq, Tk and how many seeds: all distinct; B == Tq; one key; more queries than a block has
    "full": (((2, 3, 5), 2), ((4, 4, 6), 1), ((3, 2, 1), 1), ((1, 5, 7), 1), ((2, 131, 37), 1)),
    "quick": (((2, 3, 5), 1), ((3, 3, 4), 1), ((3, 2, 1), 1)),
}
ALTERED_AT = 2  # of the sizes, the first so many: what is masked is altered there


class Told(NamedTuple):
    """What one comparison gave.

    Attributes:
        problem: What is wrong, or None.
        of_limit: The largest difference as a share of what is allowed, where numbers were compared.
    """

    problem: str | None
    of_limit: float | None = None


class Tally:
    """The rows of one bundle: for each output and promise the number of runs, the worst, and the first problem."""

    def __init__(self, entry: Entry) -> None:
        self.facts = {key: entry[key] for key in ("layer", "form", "precision")} | {"bundle": entry["name"]}
        self.rows: dict[tuple[str, str], Row] = {}

    def add(self, output: str, promise: str, told: Told, where: str = "") -> None:
        new = {**self.facts, "output": output, "promise": promise, "runs": 0, "of_limit": None, "problem": None}
        row = self.rows.setdefault((output, promise), new)
        row["runs"] += 1
        if told.of_limit is not None:
            row["of_limit"] = max(told.of_limit, row["of_limit"] or 0.0)
        if told.problem is not None and row["problem"] is None:
            row["problem"] = f"{told.problem} ({where})" if where else told.problem

    def finished(self) -> list[Row]:
        return [{**row, "passed": row["problem"] is None} for row in self.rows.values()]


def checked(folder: Path, entry: Entry, provider: str, quick: bool = False) -> list[Row]:
    """The rows of a bundle; where it cannot be run at all, one that says so."""
    tally = Tally(entry)
    try:
        kind, weights = Kind.from_json(entry["kind"]), read_weights(folder, entry["name"])
        session = opened(folder / entry["name"], provider)
        for number, (sizes, seeds) in enumerate(SIZES["quick" if quick else "full"]):
            for seed in range(seeds):
                arrays = drawn(kind, entry["masks"], *sizes, seed=seed)
                _one_draw(tally, entry, session, Oracle(kind, weights, arrays), provider, altered=number < ALTERED_AT)
    except Exception as error:  # noqa: BLE001 - whatever fails is a row, and the others go on
        tally.add("all outputs", "runs", Told(first_line(error)))
    session = None
    freed()
    return tally.finished()


def _one_draw(tally: Tally, entry: Entry, session: Any, oracle: Oracle, provider: str, *, altered: bool) -> None:
    arrays = oracle.arrays
    B, Tq, Tk = *arrays["queries"].shape[:2], arrays["keys"].shape[1]
    where = f"B {B}, Tq {Tq}, Tk {Tk}"
    clean = verify.run_session(session, arrays)
    tolerance = _tolerance(entry["precision"], provider)
    for mask in entry["masks"]:
        expected = oracle.expected(mask)
        tally.add(mask, NUMBERS, compared(clean, mask, expected, tolerance), where)
        if entry["weights"]:
            told = distribution(clean[f"{mask}_weights"], expected, oracle.kind, tolerance)
            tally.add(mask, DISTRIBUTION, told, where)
        for promise, change in ALTERED.items() if altered else ():
            for alteration in change(mask, arrays, expected.keep):
                dirty = verify.run_session(session, alteration.arrays)
                told = unchanged(clean, dirty, mask, alteration, tolerance)
                tally.add(mask, promise, told, f"{alteration.told}; {where}" if alteration.told else where)


def _tolerance(precision: str, provider: str) -> tuple[float, float]:
    relative, absolute = TOLERANCES[precision]
    lenience = verify.LENIENCE[provider]
    return lenience * relative, lenience * absolute


def compared(found: Arrays, mask: str, expected: Expected, tolerance: tuple[float, float]) -> Told:
    """Hold an output, and its weights where they are returned, to the oracle's."""
    worst = 0.0
    for name, wanted in ((mask, expected.output), (f"{mask}_weights", expected.weights)):
        if name not in found:
            continue
        actual = found[name]
        if actual.shape != wanted.shape:
            return Told(f"`{name}` has shape {actual.shape}, must be {wanted.shape}", float("inf"))
        if not np.isfinite(actual).all():
            return Told(f"`{name}` is not finite in {int(np.sum(~np.isfinite(actual)))} places", float("inf"))
        limit = tolerance[1] + tolerance[0] * np.abs(wanted)
        worst = max(worst, float(np.max(np.abs(actual.astype("float64") - wanted) / limit, initial=0.0)))
        empty = ~expected.keep.any(-1)
        if name == mask and np.any(actual[empty] != 0):
            return Told(f"`{name}` is not zero in rows without a key", worst)
    return Told(f"differs by {worst:.2g} times what is allowed" if worst > 1 else None, worst)


def distribution(weights: np.ndarray, expected: Expected, kind: Kind, tolerance: tuple[float, float]) -> Told:
    """Promise 1: zeros, no small numbers, where a pair does not take part; a sum of 1 where a query sees a key."""
    keep = expected.keep if weights.ndim == 3 else expected.keep[:, None]
    leaked = int(np.sum((weights != 0) & ~keep))
    if leaked:
        return Told(f"{leaked} weights of pairs that do not take part are not zero")
    if kind.normalizer == "sigmoid":  # whose weights have any sum
        return Told(None)
    off = float(np.max(np.abs(weights.astype("float64").sum(-1) - keep.any(-1)), initial=0.0))
    limit = tolerance[1] + tolerance[0]
    return Told(f"a row of weights sums to 1 but for {off:.2g}" if off > limit else None, off / limit)


def unchanged(clean: Arrays, dirty: Arrays, mask: str, alteration: Altered, tolerance: tuple[float, float]) -> Told:
    """Promises 2 and 3: rows that must not change are the same, and those that lost all keys are zeros."""
    for name in (each for each in (mask, f"{mask}_weights") if each in clean):
        for rows, problem in _differing(clean[name], dirty[name], alteration, tolerance, is_weights=name != mask):
            if rows:
                return Told(f"`{name}` {problem} in {rows} numbers")
    return Told(None)


def _differing(
    clean: np.ndarray, dirty: np.ndarray, alteration: Altered, tolerance: tuple[float, float], *, is_weights: bool
) -> Iterator[tuple[int, str]]:
    def of(rows: np.ndarray) -> np.ndarray:
        shape = rows[:, None, :, None] if is_weights and clean.ndim == 4 else rows[..., None]
        return np.broadcast_to(shape, clean.shape)

    relative, absolute = (0.0, 0.0) if alteration.exactly else tolerance
    with np.errstate(invalid="ignore"):  # of what is not finite nothing is close
        is_same = (clean == dirty) | (np.abs(clean - dirty) <= absolute + relative * np.abs(clean))
    yield int(np.sum(of(alteration.same) & ~is_same)), "changes"
    yield int(np.sum(of(alteration.zero) & ~(dirty == 0))), "is not zero"
