"""What a contestant is made of."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Runner:
    """A contestant that is ready: `run` does the work once, to its end; `answer` gives what it computes."""

    run: Callable[[], Any]
    answer: Callable[[], list[np.ndarray]]


Build = Callable[[Arrays], Runner]
