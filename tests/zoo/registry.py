"""Registry of the zoo: the architectures by name, and the functions that add them."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
from hard_to_check_models import perturb_weights

Samples = Callable[[], Mapping[str, np.ndarray]]
LOW_PRECISIONS = ("float16", "int8")
# Shapes of inputs without the batch axis: one id, a sequence of ids of any length, one text.
ID, IDS, TEXT = ("int32",), (None, "int32"), ("string",)


@dataclass(frozen=True)
class Architecture:
    """An architecture of the zoo.

    Attributes:
        name: The name in tests and in docs/models.md.
        build: Builds the outputs from the inputs. The defaults of its parameters are the shapes of the inputs, with
            the dtype at the end if that is not float32. Or builds the model without arguments.
        kind: The name of the module that adds the architecture: `images`, `text` and so on.
        source: The authors, the year and the title of the description.
        samples: Draws inputs for the export, if the model restricts the values, such as ids below a number.
        precisions: The precisions of the exports besides float32.
        refusal: A pattern of the error message if the export refuses the model.
        nightly: True if the export takes more than 25 s.
    """

    name: str
    build: Callable[..., Any]
    kind: str
    source: str
    samples: Samples | None = None
    precisions: tuple[str, ...] = ()
    refusal: str | None = None
    nightly: bool = False

    def build_model(self, seed: int = 0) -> keras.Model:
        """Return the model with weights perturbed by this seed: no bias is zero, and no statistics are initial."""
        keras.backend.clear_session()
        keras.utils.set_random_seed(seed)
        shapes = {name: parameter.default for name, parameter in inspect.signature(self.build).parameters.items()}
        inputs = {
            name: keras.Input(
                [size for size in shape if not isinstance(size, str)],
                dtype=next((dtype for dtype in shape if isinstance(dtype, str)), None),
                name=name,
            )
            for name, shape in shapes.items()
        }
        outputs, tensors = self.build(**inputs), [*inputs.values()]
        is_model = isinstance(outputs, keras.Model)
        model = outputs if is_model else keras.Model(tensors if len(tensors) > 1 else tensors[0], outputs)
        return perturb_weights(model, seed)

    def draw_sample_inputs(self) -> Mapping[str, np.ndarray] | None:
        return self.samples() if self.samples else None

    @property
    def float32_and_low_precisions(self) -> tuple[str, ...]:
        """The precisions of all exports: float32, then `precisions`."""
        return ("float32", *self.precisions)


ZOO: dict[str, Architecture] = {}


def add_architecture(kind: str, name: str, source: str, build: Callable[..., Any], **options: Any) -> None:
    """Add an architecture to the zoo; the options are attributes of `Architecture`."""
    assert name not in ZOO, f"the zoo already has a model `{name}`: choose another name"
    assert source, f"model `{name}` has no source: give the authors, the year and the title"
    ZOO[name] = Architecture(name, build, kind, source, **options)


def architecture(**options: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add the decorated builder to the zoo under its name; the first line of its docstring is the source."""

    def decorate(build: Callable[..., Any]) -> Callable[..., Any]:
        source = (build.__doc__ or "").strip().partition("\n")[0]
        add_architecture(build.__module__.rpartition(".")[2], build.__name__, source, build, **options)
        return build

    return decorate


def draw_ids(count: int, *shape: int) -> np.ndarray:
    """Return random int32 ids from 0 to `count` - 1."""
    return np.random.default_rng(0).integers(0, count, shape).astype("int32")
