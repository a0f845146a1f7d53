"""Race of contestants: each runs in its own worker process, and all take turns."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import _stats
import numpy as np
from _calibration import measure_speed
from _contestant import Contestant
from _process import Process

MAX_DIFFERENCE = 1e-4  # relative, between answers; a contestant with a larger difference is not timed
PAUSE_SECONDS = 0.01  # between turns, until the threads of the previous process sleep


@dataclass(frozen=True)
class Case:
    """Contestants on the same inputs. The answer of the first contestant of each `result` is the reference.

    Attributes:
        inputs: Arrays by name.
        contestants: Contestants in the order of the results.
        name: Name of the case in the results.
        peer: Label of the contestant that speeds are relative to.
    """

    inputs: dict[str, np.ndarray]
    contestants: list[Contestant]
    name: str
    peer: str = ""


class WrongAnswerError(Exception):
    """Error of a contestant whose answer differs from the reference answer."""


def race(case: Case, folder: Path, *, threads: int, rounds: int, turn_seconds: float) -> dict[str, Any]:
    """Measure the memory of all contestants, compare their answers, and time them in turns.

    Args:
        case: Contestants and inputs.
        folder: Empty folder for temporary files.
        threads: Number of threads of a run.
        rounds: Number of turns of a contestant. With 0, the results contain the seconds of the build instead.
        turn_seconds: Seconds of a turn; a turn has at least one run.

    Raises:
        WrongAnswerError: If a contestant that is not optional differs from the reference by more than `MAX_DIFFERENCE`.
    """
    np.savez(inputs := folder / "inputs.npz", **case.inputs)
    processes: dict[str, Process] = {}
    calibration = [measure_speed()]
    try:
        for contestant in case.contestants:
            if not contestant.unavailable:
                (worker_folder := folder / str(len(processes))).mkdir()
                processes[contestant.label] = Process(contestant, inputs, worker_folder, threads)
        _build_models(list(processes.values()))
        workers = [worker for worker in processes.values() if not worker.unavailable]
        calibration += _take_turns(workers, rounds, turn_seconds)
    finally:
        for worker in processes.values():
            worker.kill()
    calibration.append(measure_speed())
    rows = [
        processes[contestant.label].make_row(processes.get(case.peer))
        if contestant.label in processes
        else {"contestant": contestant.label, "unavailable": contestant.unavailable}
        for contestant in case.contestants
    ]
    return {"case": case.name, "peer": case.peer, "rows": rows, "calibration": calibration}


def _build_models(workers: list[Process]) -> None:
    """Build the models one at a time, measure their memory, and compare the answers."""
    references: dict[str, tuple[str, list[np.ndarray]]] = {}
    for worker in workers:
        worker.read_reply()
    for worker in workers:
        if not worker.unavailable:
            worker.build_results = worker.request(build=True)
        if worker.unavailable:
            continue
        with np.load(worker.answer_file) as arrays:
            answer = list(arrays.values())
        label, reference = references.setdefault(worker.contestant.result, (worker.contestant.label, answer))
        worker.difference = _stats.find_largest_difference(answer, reference)
        if not worker.difference <= MAX_DIFFERENCE and worker.contestant.optional:
            worker.unavailable = f"it differs from {label} by {worker.difference:.1e}, relative"
        elif not worker.difference <= MAX_DIFFERENCE:
            raise WrongAnswerError(
                f"{worker.contestant.label} differs from {label} by {worker.difference:.1e}, relative; "
                "nothing was timed."
            )


def _take_turns(workers: list[Process], rounds: int, turn_seconds: float) -> list[float]:
    """Time all workers in turns, in alternating order, and return the speed of the machine before each round."""
    order, calibrations = list(workers), []
    for _ in range(rounds):
        calibrations.append(measure_speed())
        for worker in order:
            reply = worker.request(seconds=turn_seconds)
            if "times" not in reply:
                raise RuntimeError(f"{worker.contestant.label} stopped while it was timed: {reply}")
            worker.rounds.append(reply["times"])
            time.sleep(PAUSE_SECONDS)
        order.reverse()
    return calibrations
