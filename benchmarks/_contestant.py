"""Contestants: descriptions of the implementations that compute a case, and their runners in worker processes."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Contestant:
    """Implementation that computes a case.

    Attributes:
        label: Name in the tables.
        kind: Function that builds the runner, as `module.function`; see `_worker.py`.
        options: Options of that function.
        environment: Environment variables of the process.
        optional: Whether a failure or a different answer is only noted in the tables, instead of ending the benchmark.
        unavailable: Reason why the contestant cannot run; empty if it can.
        computes: Name of the result, if contestants of a case compute different results. Equal names, equal answers.
    """

    label: str
    kind: str
    options: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    optional: bool = False
    unavailable: str = ""
    computes: str = ""


@dataclass(frozen=True)
class Runner:
    """Contestant that is ready to run.

    `run` does the work once, `answer` returns the computed arrays, and `facts` returns further results.
    """

    run: Callable[[], Any]
    answer: Callable[[], list[np.ndarray]]
    facts: Callable[[], dict[str, Any]] = dict


Build = Callable[[Arrays], Runner]
