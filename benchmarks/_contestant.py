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
        builder: Function that builds the runner, as `module.function`; see `_worker.py`.
        options: Options of that function.
        environment: Environment variables of the process.
        optional: True if a failure or a wrong answer becomes a note in the tables instead of ending the benchmark.
        unavailable: Reason why the contestant cannot run; empty if it can.
        result: Name of the result, if contestants of a case compute different results. Answers of a name are compared.
    """

    label: str
    builder: str
    options: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    optional: bool = False
    unavailable: str = ""
    result: str = ""


@dataclass(frozen=True)
class Runner:
    """Contestant that is ready to run.

    `run` computes the case once, `get_answer` returns the computed arrays, and `get_facts` further results by name.
    """

    run: Callable[[], Any]
    get_answer: Callable[[], list[np.ndarray]]
    get_facts: Callable[[], dict[str, Any]] = dict


Build = Callable[[Arrays], Runner]
