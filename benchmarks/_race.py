"""Run contestants in turns, each in a process of its own."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import _stats
import numpy as np
from _process import Contestant, Process

TOLERANCE = 1e-4  # relative; whoever computes something else is not timed
PAUSE = 0.01  # seconds between turns, in which the threads of the one before fall asleep


@dataclass
class Case:
    """Contestants on the same inputs. The first that computes something gives the answer that all who do must give.

    Attributes:
        inputs: Arrays by name.
        contestants: Who runs.
        facts: What the results say of the case.
        peer: The label that ratios are against.
    """

    inputs: dict[str, np.ndarray]
    contestants: list[Contestant]
    facts: dict[str, Any]
    peer: str


class WrongAnswerError(Exception):
    """A contestant does not compute what the others do."""


def race(
    cases: list[Case], work: Path, *, provider: str, threads: int, rounds: int, turn: float
) -> list[dict[str, Any]]:
    """Measure the memory of every contestant of every case, check their answers, and time them all in turns.

    Args:
        cases: What to run.
        work: A folder for files of no further use.
        provider: `"cpu"` or `"cuda"`.
        threads: How many threads a run uses.
        rounds: How often each has its turn.
        turn: How many seconds a turn lasts; at least one run.

    Raises:
        WrongAnswerError: A contestant differs from the first of its case by more than `TOLERANCE`.
    """
    teams: list[list[Process]] = []
    try:
        for case in cases:
            teams.append(_start(case, work, provider, threads))
        for team in teams:
            _build(team)
        _take_turns([worker for team in teams for worker in team if not worker.contestant.unavailable], rounds, turn)
    finally:
        for team in teams:
            for worker in team:
                worker.end()
    return [_result(case, team) for case, team in zip(cases, teams, strict=True)]


def _start(case: Case, work: Path, provider: str, threads: int) -> list[Process]:
    folder = work / f"case{len(list(work.glob('case*')))}"
    folder.mkdir()
    np.savez(folder / "inputs.npz", **case.inputs)
    team = []
    for contestant in case.contestants:
        if contestant.unavailable:
            continue
        (own := folder / str(len(team))).mkdir()
        team.append(Process(contestant, folder / "inputs.npz", own, provider, threads))
    return team


def _build(team: list[Process]) -> None:
    """Build one at a time, measure the memory, and compare the answers."""
    references: dict[str, tuple[str, list[np.ndarray]]] = {}
    for worker in team:
        worker.reply()
    for worker in team:
        if worker.contestant.unavailable:
            continue
        worker.memory = worker.ask(build=True).get("memory", 0)
        if worker.contestant.unavailable:
            continue
        with np.load(worker.answer) as arrays:
            answer = list(arrays.values())
        first, reference = references.setdefault(worker.contestant.computes, (worker.contestant.label, answer))
        worker.difference = _stats.largest_difference(answer, reference)
        if not worker.difference <= TOLERANCE:
            raise WrongAnswerError(
                f"{worker.contestant.label} differs from {first} by {worker.difference:.1e}, relative; "
                "nothing is timed."
            )


def _take_turns(workers: list[Process], rounds: int, turn: float) -> None:
    """Let each run in turns; who begins changes each round."""
    order = list(workers)
    for _ in range(rounds):
        for worker in order:
            reply = worker.ask(seconds=turn)
            if "times" not in reply:
                raise RuntimeError(f"{worker.contestant.label} stopped while it was timed: {reply}")
            worker.rounds.append(reply["times"])
            time.sleep(PAUSE)
        order.reverse()


def _result(case: Case, team: list[Process]) -> dict[str, Any]:
    live = {worker.contestant.label: worker for worker in team if not worker.contestant.unavailable}
    rows = []
    for contestant in case.contestants:
        worker, row = live.get(contestant.label), {"contestant": contestant.label}
        rows.append(worker.row(live.get(case.peer)) if worker else {**row, "unavailable": contestant.unavailable})
    return {**case.facts, "peer": case.peer, "rows": rows}
