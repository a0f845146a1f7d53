"""What an architecture of the zoo is, and the list that each file of the zoo puts its own on."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
from proof_models import perturbed

Build = Callable[[], keras.Model]
Samples = Callable[[], Mapping[str, np.ndarray]]
HALF = ("float16", "int8")


@dataclass(frozen=True)
class Architecture:
    """A model of the zoo.

    Attributes:
        build: Makes it, with the weights that Keras draws.
        kind: The file it is in: `images`, `text` and so on.
        source: Who described it and when, from the docstring's first line.
        samples: Inputs for the export, where what it would draw does not fit: ranges it cannot know.
        precisions: Beside float32.
        auto: Whether it is exported with the fastest lowerings too, because it has layers of ours.
        refused: What the export says, where it cannot take the model; a pattern.
        seeded: Whether `--seeds` draws its weights again and again.
    """

    build: Build
    kind: str
    source: str
    samples: Samples | None = None
    precisions: tuple[str, ...] = ()
    auto: bool = False
    refused: str | None = None
    seeded: bool = False

    @property
    def name(self) -> str:
        return self.build.__name__

    def model(self, seed: int = 0) -> keras.Model:
        """Return the model with weights of this seed: no bias is zero, no statistics are fresh."""
        keras.backend.clear_session()
        keras.utils.set_random_seed(seed)
        return perturbed(self.build(), seed)

    def sample_inputs(self) -> Mapping[str, np.ndarray] | None:
        return self.samples() if self.samples else None


ZOO: dict[str, Architecture] = {}


def architecture(**options: Any) -> Callable[[Build], Build]:
    """Put what the function builds on the list; the options are those of `Architecture`."""

    def listed(build: Build) -> Build:
        assert build.__name__ not in ZOO, f"there are two models called {build.__name__}"
        source = (build.__doc__ or "").strip().splitlines()[0]
        assert source, f"{build.__name__} does not say where it comes from"
        ZOO[build.__name__] = Architecture(build, build.__module__.rpartition(".")[2], source, **options)
        return build

    return listed


def ids(below: int, *shape: int, seed: int = 0) -> np.ndarray:
    """Return integers of the range [0, below), for samples."""
    return np.random.default_rng(seed).integers(0, below, shape).astype("int32")
