"""Find the fastest lowering of each attention layer, by running the whole model with it on what the model will get.

A layer is timed in its place: what it takes alone says little about what a model gains, since caches, threads and what
onnxruntime fuses differ. Layers that are alike get one lowering, so that a gain shows however small the share of one.
"""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .._bundle.parity import compared
from .._errors import ExportError
from .._machine import usable_cpus
from .._model.golden_cases import Cases
from .._options import PORTABLE, Options
from .._progress import Progress
from .._standalone import verify
from .._standalone.verify import Arrays, Case
from .._tracing.attention_calls import Call
from .._tracing.onnx_file import write
from .bodies import candidates
from .lowered import Choice, Lowered

SECONDS = 2.0  # for one lowering against another
FEWEST_ROUNDS, MOST_ROUNDS, RUNS = 6, 300, 2
MARGIN = 0.97  # a lowering stays unless another takes less than this share of its time
SURE = 2.0  # standard deviations of a count: the median is in the range that is given in 95 of 100 cases


class Ratio(NamedTuple):
    """Time of a lowering over that of another: the median over rounds, and the range it is in."""

    low: float
    median: float
    high: float

    @property
    def is_clear(self) -> bool:
        """Whether the range is on one side of the margin."""
        return self.high < MARGIN or self.low >= MARGIN


@dataclass(frozen=True)
class _Track:
    """Where lowerings race: what the model is run on, and how.

    Attributes:
        golden: The golden cases.
        cases: Those of them that a lowering must give Keras's outputs for.
        timed: The inputs of the one to measure on.
        options: What was asked of the export.
        folder: An empty folder.
    """

    golden: Cases
    cases: Sequence[Case]
    timed: Arrays
    options: Options
    folder: Path


def fastest(
    lowered: Lowered, usable: Collection[str], golden: Cases, options: Options, folder: Path, step: Progress
) -> Lowered:
    """Return a traced model with each of its calls in the fastest lowering, and what was measured.

    Args:
        lowered: The model in the lowerings to start from, which stay where no other is clearly faster.
        usable: The lowerings to try.
        golden: The cases; times are taken on the samples, or else on the largest.
        options: Say where to measure.
        folder: An empty folder, for files that are not kept.
        step: Is told what is being done.
    """
    cases, timed = _cases_to_run(golden.cases)
    track = _Track(golden, cases, cases[timed].inputs, options, folder)
    alike = _alike(lowered.lowerings)
    lowered = _that_runs(lowered, alike, track)
    for calls in alike:
        layers = ", ".join(dict.fromkeys(call.layer for call in calls))
        step(f"Timing {layers}")
        choice = _choice(lowered, calls, usable, track)
        for name in choice.unclear:
            step(f"Could not tell whether {name} is faster for {layers}, which stays {choice.lowering}")
        lowered = lowered.with_lowering(calls, choice.lowering, choice)
    return lowered


def _cases_to_run(cases: Sequence[Case]) -> tuple[list[Case], int]:
    """Return the cases to run, and the number of the one to measure on.

    Cases of more than twice its size are left to the parity of the whole model: plain primitives of additive attention
    take gigabytes, several times here.
    """
    sizes = [sum(array.nbytes for array in case.inputs.values()) for case in cases]
    samples = [number for number, case in enumerate(cases) if case.name == "samples"]
    plain = [number for number, case in enumerate(cases) if all(map(_is_plain, case.inputs.values()))]
    timed = max(samples or plain or range(len(cases)), key=sizes.__getitem__)
    kept = [number for number in range(len(cases)) if sizes[number] <= 2 * sizes[timed]]
    return [cases[number] for number in kept], kept.index(timed)


def _is_plain(array: np.ndarray) -> bool:
    """Tell whether an array is neither poisoned nor all zeros, which may be faster or slower than numbers are."""
    return bool(np.any(array) and (array.dtype.kind != "f" or np.isfinite(array).all()))


def _alike(calls: Iterable[Call]) -> list[list[Call]]:
    """Return the calls, those together that take the same shapes and mean the same."""
    groups: dict[str, list[Call]] = {}
    for call in calls:
        means = (call.name, call.shapes, call.dtypes, call.options, call.heads, call.pairs, call.returns_weights)
        groups.setdefault(repr((means, sorted(call.constants))), []).append(call)
    return list(groups.values())


def _that_runs(lowered: Lowered, alike: Sequence[Sequence[Call]], track: _Track) -> Lowered:
    """Return the model with some calls in plain primitives, where it does not run or differs from Keras as it is."""
    for calls in ((), *alike):
        lowered = lowered.with_lowering(calls, PORTABLE)
        if _session(lowered, track) is not None:
            break
    return lowered


def _choice(lowered: Lowered, calls: Sequence[Call], usable: Collection[str], track: _Track) -> Choice:
    """Return the fastest lowering of calls that are alike: the one they have, or one that is clearly faster."""
    start = lowered.lowerings[calls[0]]
    standing = _session(lowered, track)
    if standing is None:  # the file of the bundle will be found wrong, and why
        return Choice(start)
    best, shortest = start, MARGIN
    milliseconds: dict[str, float] = {}
    unclear = []
    for name in candidates(calls[0], track.options.provider):
        if name == start or name not in usable:
            continue
        session = _session(lowered.with_lowering(calls, name), track)
        if session is None:
            continue
        seconds, ratio = _raced(standing, session, track.timed)
        milliseconds.setdefault(start, seconds * 1e3)
        milliseconds[name] = milliseconds[start] * ratio.median
        if not ratio.is_clear:
            unclear.append(name)
        elif ratio.median < shortest:
            best, shortest = name, ratio.median
    return Choice(best, milliseconds, unclear)


def _session(lowered: Lowered, track: _Track) -> Any:
    """Return a session of the model, or None where it cannot be written, does not run, or differs from Keras."""
    track.folder.mkdir()
    file = track.folder / verify.MODEL
    try:
        finished, _ = lowered.finished(track.golden, track.options.opset)
        write(finished, file, check=False)  # the file of the bundle is checked in full
        provider = track.options.provider
        session = verify.open_session(file, provider, threads=usable_cpus())
        if provider == "cpu":
            actual = [verify.run_session(session, case.inputs) for case in track.cases]
        else:  # in another session, whose profile tells whether all of attention ran there
            actual = verify.run_cases(file, track.cases, provider)
    except ExportError:
        return None
    finally:
        shutil.rmtree(track.folder)
    return session if _agree(track.cases, actual, track.options.tolerance, track.options.provider) else None


def _agree(cases: Sequence[Case], actual: Sequence[Arrays], tolerance: Mapping[str, float], provider: str) -> bool:
    return all(row.passed for row in compared(cases, actual, tolerance, provider))


def _raced(standing: Any, other: Any, arrays: Arrays) -> tuple[float, Ratio]:
    """Return the median seconds of one session, and the times of another over its own.

    They take turns of a few runs, of which the first finds the caches as the other left them and does not count. Each
    round gives one ratio, so that a slow minute of the machine counts for both. It ends when the choice is clear.
    """
    taken: list[float] = []
    ratios: list[float] = []
    order = [standing, other]
    end = time.perf_counter() + SECONDS
    while True:
        seconds = {id(session): _seconds(session, arrays) for session in order}
        order.reverse()
        taken.append(seconds[id(standing)])
        ratios.append(seconds[id(other)] / taken[-1])
        ratio = ratio_of(ratios)
        if ratio.is_clear or len(ratios) == MOST_ROUNDS or time.perf_counter() > end:
            return float(np.median(taken)), ratio


def _seconds(session: Any, arrays: Arrays) -> float:
    """Return the shortest of a few runs, which others on the machine have slowed the least."""
    session.run(None, arrays)
    shortest = math.inf
    for _ in range(RUNS):
        start = time.perf_counter()
        session.run(None, arrays)
        shortest = min(shortest, time.perf_counter() - start)
    return shortest


def ratio_of(ratios: Sequence[float]) -> Ratio:
    """Return the median of the ratios of some rounds, and the range in which that of all rounds is.

    Of a few rounds, as of a model that takes long, nothing is known.
    """
    ordered = sorted(ratios)
    if len(ordered) < FEWEST_ROUNDS:
        return Ratio(0.0, float(np.median(ordered)), math.inf)
    outside = max(int((len(ordered) - SURE * math.sqrt(len(ordered))) / 2), 0)
    return Ratio(ordered[outside], float(np.median(ordered)), ordered[-1 - outside])
