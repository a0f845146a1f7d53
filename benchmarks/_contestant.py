"""One way to compute a case: what is said of it before its process starts, and what it is there."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Contestant:
    """One way to compute one case.

    Attributes:
        label: What the tables call it.
        kind: The function that makes it, as `module.function`; see `_worker.py`.
        options: What that function needs.
        environment: Variables that its process gets.
        optional: Whether a failure, or another answer, is told in the tables instead of ending the benchmark.
        unavailable: Why it cannot take part; empty if it can.
        computes: What it computes, where not all of a case compute the same; those that do must agree.
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
    """A contestant that is ready: `run` does the work once, to its end; `answer` gives what it computes.

    `facts` are what else the results say of it where it is not timed.
    """

    run: Callable[[], Any]
    answer: Callable[[], list[np.ndarray]]
    facts: Callable[[], dict[str, Any]] = dict


Build = Callable[[Arrays], Runner]
