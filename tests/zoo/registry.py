"""What an architecture of the zoo is, and the list that each file of the zoo puts its own on."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
from hard_to_check_models import perturb_weights

Samples = Callable[[], Mapping[str, np.ndarray]]
HALF = ("float16", "int8")
ID, IDS = ("int32",), (None, "int32")  # inputs of ids: one for each example, and as many as there are
TEXT = ("string",)


@dataclass(frozen=True)
class Architecture:
    """A model of the zoo.

    Attributes:
        name: Its name in tests and in docs/models.md.
        make: Makes its outputs from its inputs, the parameters: their defaults are shapes, with the dtype at the end
            where it is not float32. Or makes the model, with the weights that Keras draws.
        kind: The file it is in: `images`, `text` and so on.
        source: Who described it and when.
        samples: Inputs for the export, where what it would draw does not fit: ranges it cannot know.
        precisions: Beside float32.
        refused: What the export says, where it cannot take the model; a pattern.
        nightly: Whether its export takes more than 25 s.
    """

    name: str
    make: Callable[..., Any]
    kind: str
    source: str
    samples: Samples | None = None
    precisions: tuple[str, ...] = ()
    refused: str | None = None
    nightly: bool = False

    def model(self, seed: int = 0) -> keras.Model:
        """Return the model with weights of this seed: no bias is zero, no statistics are fresh."""
        keras.backend.clear_session()
        keras.utils.set_random_seed(seed)
        shapes = {name: each.default for name, each in inspect.signature(self.make).parameters.items()}
        inputs = {
            name: keras.Input(
                [size for size in shape if not isinstance(size, str)],
                dtype=next((each for each in shape if isinstance(each, str)), None),
                name=name,
            )
            for name, shape in shapes.items()
        }
        made = self.make(**inputs)
        if not isinstance(made, keras.Model):
            made = keras.Model([*inputs.values()] if len(inputs) > 1 else inputs.popitem()[1], made)
        return perturb_weights(made, seed)

    def sample_inputs(self) -> Mapping[str, np.ndarray] | None:
        return self.samples() if self.samples else None

    @property
    def ways(self) -> tuple[str, ...]:
        """The precisions in which it is exported."""
        return ("float32", *self.precisions)


ZOO: dict[str, Architecture] = {}


def add(kind: str, name: str, source: str, make: Callable[..., Any], **options: Any) -> None:
    """Put an architecture on the list; the options are those of `Architecture`."""
    assert name not in ZOO, f"there are two models called {name}"
    assert source, f"{name} does not say where it comes from"
    ZOO[name] = Architecture(name, make, kind, source, **options)


def architecture(**options: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Put what the function makes on the list by its name, with the docstring's first line as the source."""

    def listed(make: Callable[..., Any]) -> Callable[..., Any]:
        source = (make.__doc__ or "").strip().partition("\n")[0]
        add(make.__module__.rpartition(".")[2], make.__name__, source, make, **options)
        return make

    return listed


def ids(below: int, *shape: int) -> np.ndarray:
    """Return integers of the range [0, below), for samples."""
    return np.random.default_rng(0).integers(0, below, shape).astype("int32")
