"""Run contestants in turns, each in a process of its own."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import _stats
import numpy as np
from _calibration import calibrate
from _contestant import Contestant
from _process import Process

TOLERANCE = 1e-4  # relative; whoever computes something else is not timed
PAUSE = 0.01  # seconds between turns, in which the threads of the one before fall asleep


@dataclass(frozen=True)
class Case:
    """Contestants on the same inputs. The first that computes something gives the answer that all who do must give.

    Attributes:
        inputs: Arrays by name.
        contestants: Who runs.
        name: Name of the case in the results.
        peer: Label of the contestant that speeds are relative to.
    """

    inputs: dict[str, np.ndarray]
    contestants: list[Contestant]
    name: str
    peer: str = ""


class WrongAnswerError(Exception):
    """A contestant does not compute what the others do."""


def race(case: Case, work: Path, *, threads: int, rounds: int, turn: float) -> dict[str, Any]:
    """Measure the memory of every contestant, check the answers, and time all of them in turns.

    Args:
        case: What to run.
        work: An empty folder for files of no further use.
        threads: How many threads a run uses.
        rounds: How often each has its turn. With none, the results say what making each and its first runs took.
        turn: How many seconds a turn lasts; at least one run.

    Raises:
        WrongAnswerError: A contestant that is not optional differs from the first one by more than `TOLERANCE`.
    """
    np.savez(inputs := work / "inputs.npz", **case.inputs)
    started: dict[str, Process] = {}
    calibration = [calibrate()]
    try:
        for contestant in case.contestants:
            if not contestant.unavailable:
                (own := work / str(len(started))).mkdir()
                started[contestant.label] = Process(contestant, inputs, own, threads)
        _build(list(started.values()))
        workers = [worker for worker in started.values() if not worker.unavailable]
        calibration += _take_turns(workers, rounds, turn)
    finally:
        for worker in started.values():
            worker.end()
    calibration.append(calibrate())
    rows = [
        started[each.label].row(started.get(case.peer))
        if each.label in started
        else {"contestant": each.label, "unavailable": each.unavailable}
        for each in case.contestants
    ]
    return {"case": case.name, "peer": case.peer, "rows": rows, "calibration": calibration}


def _build(team: list[Process]) -> None:
    """Build one at a time, measure the memory, and compare the answers."""
    references: dict[str, tuple[str, list[np.ndarray]]] = {}
    for worker in team:
        worker.reply()
    for worker in team:
        if not worker.unavailable:
            worker.built = worker.ask(build=True)
        if worker.unavailable:
            continue
        with np.load(worker.answer) as arrays:
            answer = list(arrays.values())
        first, reference = references.setdefault(worker.contestant.computes, (worker.contestant.label, answer))
        worker.difference = _stats.largest_difference(answer, reference)
        if not worker.difference <= TOLERANCE and worker.contestant.optional:
            worker.unavailable = f"it differs from {first} by {worker.difference:.1e}, relative"
        elif not worker.difference <= TOLERANCE:
            raise WrongAnswerError(
                f"{worker.contestant.label} differs from {first} by {worker.difference:.1e}, relative; "
                "nothing is timed."
            )


def _take_turns(workers: list[Process], rounds: int, turn: float) -> list[float]:
    """Let each run in turns; who begins changes each round. Return the calibrations before each round."""
    order, calibrations = list(workers), []
    for _ in range(rounds):
        calibrations.append(calibrate())
        for worker in order:
            reply = worker.ask(seconds=turn)
            if "times" not in reply:
                raise RuntimeError(f"{worker.contestant.label} stopped while it was timed: {reply}")
            worker.rounds.append(reply["times"])
            time.sleep(PAUSE)
        order.reverse()
    return calibrations
