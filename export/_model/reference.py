"""What an export must agree with: a model, its golden cases, and what Keras gives for them on its backend."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import keras
import numpy as np

from .._errors import InputError, UnsupportedModelError
from .._internals.keras_internals import functional_of
from .._options import PRECISIONS
from .._progress import Progress
from .._standalone.verify import Arrays, Case
from .coverage import coverage_of
from .dynamic_axes import Static
from .float32_clone import distance, float32_clone, half_policies
from .golden_cases import Cases, golden_cases
from .in_float64 import outputs_in_float64
from .input_sources import flat_samples
from .keras_messages import first_line
from .rounding import with_rounding
from .signature import Signature, model_signature, with_input
from .trial_runs import outputs_of


@dataclass(frozen=True)
class Reference:
    """A model and what it gives.

    Attributes:
        model: The model to write; it computes in float32.
        signature: Its signature, with `None` where an axis is dynamic.
        golden: Its golden cases.
        backend: The Keras backend that gave their outputs.
        float32_clone: As in the parity report, for a model that was cloned to float32.
        converted_cases: The golden cases with what rounding does in another precision, if one was asked for.
    """

    model: keras.Model
    signature: Signature
    golden: Cases
    backend: str
    float32_clone: dict[str, Any] | None = None
    converted_cases: list[Case] = field(default_factory=list)


def with_weights(model: keras.Model, file: Path, samples: Mapping[str, Any] | None) -> keras.Model:
    """Return a model that was loaded from a file with its weights.

    A subclassed model may have none before its first call, so that Keras leaves them in the file.

    Raises:
        InputError: `samples` do not fit, or are needed.
        UnsupportedModelError: The file holds other weights.
    """
    if functional_of(model) is not None or isinstance(model, keras.Sequential):
        return model
    model_signature(model, samples)
    try:
        model.load_weights(file)
    except ValueError as error:
        raise UnsupportedModelError(f"Keras cannot load the weights of {file}: {first_line(error)}") from error
    return model


def reference_of(
    given: keras.Model,
    samples: Mapping[str, Any] | None,
    step: Progress,
    precision: str = PRECISIONS[0],
    static: Static | None = None,
) -> Reference:
    """Return the reference of a model.

    Args:
        given: A model of any kind.
        samples: Arrays by input name.
        step: Is told what is being done.
        precision: That of the file to write.
        static: Axes that shall not be dynamic.

    Raises:
        UnsupportedModelError: The model cannot be exported.
        InputError: `samples` do not fit, or are needed.
    """
    given = model = with_input(given, samples)
    if half_policies(given):
        step("Cloning the model to float32")
        model = float32_clone(given, samples)
    step("Running Keras on the golden cases")
    with _full_float32():
        signature = model_signature(model, samples)
        golden = golden_cases(model, signature, samples, static)
        signature = replace(signature, inputs=tuple(golden.dynamic(spec) for spec in signature.inputs))
        step("Measuring what rounding does to the outputs")
        outputs = outputs_of(signature)
        exact = outputs_in_float64(model, samples, golden.cases)
        rounded = partial(with_rounding, model, outputs, golden.cases, exact=exact, signature=signature)
        golden = replace(golden, cases=rounded(PRECISIONS[0]))
        converted = rounded(precision) if precision != PRECISIONS[0] else []
        golden = replace(golden, coverage=coverage_of(golden, converted))
        clone = None if model is given else distance(given, samples, golden.cases)
    return Reference(model, signature, golden, keras.backend.backend(), clone, converted)


def case_of(name: str, given: keras.Model, samples: Mapping[str, Any], precision: str = PRECISIONS[0]) -> Case:
    """Return what a model gives for a user's own arrays, with what rounding does in a precision.

    Raises:
        UnsupportedModelError: The model cannot be exported.
        InputError: `samples` do not fit, or not all inputs are among them.
    """
    model = with_input(given, samples)
    if half_policies(model):
        model = float32_clone(model, samples)
    with _full_float32():
        signature = model_signature(model, samples)
        inputs, outputs = whole_samples(signature, samples), outputs_of(signature)
        try:
            case = Case(name, inputs, outputs(inputs))
        except Exception as error:
            # whatever the user's own model does with arrays that it is not made for
            raise InputError(f"Keras itself cannot run `{model.name}` on `samples`: {first_line(error)}") from error
        if not any(array.dtype.kind != "f" or np.isfinite(array).any() for array in case.outputs.values()):
            raise InputError("Keras gives NaN or infinity everywhere on `samples`: nothing can be compared.")
        exact = outputs_in_float64(model, samples, [case])
        return with_rounding(model, outputs, [case], precision, exact)[0]


def whole_samples(signature: Signature, samples: Mapping[str, Any]) -> Arrays:
    """Return samples by input name, of which none is missing.

    Raises:
        InputError: One is, or they do not fit.
    """
    inputs = flat_samples(signature, samples)
    if missing := [spec.name for spec in signature.inputs if spec.name not in inputs]:
        raise InputError(f"`samples` lack {missing}. The model takes {[spec.name for spec in signature.inputs]}.")
    return inputs


@contextlib.contextmanager
def _full_float32() -> Iterator[None]:
    """Keep Keras's backend from rounding what it multiplies to 10 bits (TF32), as it may on a GPU."""
    backend = keras.backend.backend()
    if backend == "jax":
        jax = importlib.import_module(backend)  # neither need be installed
        with jax.default_matmul_precision("highest"):
            yield
    elif backend == "torch":
        torch = importlib.import_module(backend)
        products = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("highest")
        try:
            with torch.backends.cudnn.flags(enabled=torch.backends.cudnn.enabled, allow_tf32=False):
                yield
        finally:
            torch.set_float32_matmul_precision(products)
    elif backend == "tensorflow":
        config = importlib.import_module(backend).config.experimental
        allowed = config.tensor_float_32_execution_enabled()
        config.enable_tensor_float_32_execution(False)
        try:
            yield
        finally:
            config.enable_tensor_float_32_execution(allowed)
    else:
        yield
