"""Reference outputs of an export: Keras on the golden cases, with error limits."""

import contextlib
import importlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import keras
import numpy as np

from .._errors import InputError
from .._format.manifest import Spec
from .._format.names import Arrays, Case
from .._golden_cases.case_generation import Check, golden_cases, unchecked
from .._golden_cases.coverage import coverage_of
from .._golden_cases.golden_cases import Cases
from .._golden_cases.sample_inputs import flat_samples
from .._options import FLOAT32, Options
from .._progress import Progress
from .._signature.attention_weight_outputs import attention_outputs, collected_weights
from .._signature.keras_messages import first_line
from .._signature.signature import Signature, model_signature
from .float32_clone import distance, float32_clone, half_policies
from .keras_implementations import outputs_of_predict
from .rounding_error import with_rounding


@dataclass(frozen=True)
class Reference:
    """The outputs of a model on the golden cases, and what a bundle says of the model."""

    model: str  # the name
    inputs: tuple[Spec, ...]  # with names of dynamic axes
    golden: Cases
    weights_of: dict[str, str]  # by output with attention weights, the path of the layer
    backend: str  # of Keras, that gave the outputs
    unrequested_static: dict[str, str]  # axes that are static although the user did not ask for it, with the reasons
    float32_clone: dict[str, Any] | None = None  # as in the parity report, for a model that was cloned to float32
    converted_cases: list[Case] = field(default_factory=list)  # with limits of another precision, if one was asked for
    predicted: Arrays | None = None  # outputs of `predict` in the first golden case, unless `predict` cannot run


def reference_of(
    model: keras.Model, options: Options, step: Progress, check: Check = unchecked
) -> tuple[Signature, Reference]:
    """Return the signature of the model in float32, and its golden cases with rounding limits.

    Args:
        model: A model of any kind.
        options: The options of the export.
        step: Called with the name of each step.
        check: Called with the first golden case; raises if the model cannot be exported, before Keras runs on the other
            cases, which may take minutes.

    Raises:
        UnsupportedModelError: The model cannot be exported.
        InputError: `samples` do not fit, or are needed.
    """
    with _full_float32():
        original = model_signature(model, options.samples, options.file)
        is_half = bool(half_policies(original))
        if is_half:
            step("Cloning the model to float32")
        float32 = float32_clone(original) if is_half else original
        step("Running Keras on the golden cases")
        unmeasured = golden_cases(float32, options, check)
        signature = replace(float32, inputs=tuple(unmeasured.dynamic(spec) for spec in float32.inputs))
        step("Measuring what rounding does to the outputs")
        limited = replace(unmeasured, cases=with_rounding(signature, unmeasured.cases, FLOAT32))
        usual = [case for case in limited.cases if case.name not in limited.trials]  # a coarser precision ends sooner
        # an int8 file with fixed ranges is compared with the outputs of its own graph
        is_measured = options.precision != FLOAT32 and options.calibration is None
        measured = with_rounding(signature, usual, options.precision) if is_measured else []
        converted = measured if is_measured or options.precision == FLOAT32 else usual
        golden = replace(limited, coverage=coverage_of(limited, measured))
        predicted = outputs_of_predict(signature, golden.cases[0])
        clone = distance(original, golden.cases) if is_half else None
        varied = max(
            golden.cases, key=lambda case: len({size for array in case.inputs.values() for size in array.shape})
        )
        weights_of = attention_outputs(signature, varied.inputs) | collected_weights(signature, varied.inputs)
    return signature, Reference(
        model=signature.model.name,
        inputs=tuple(Spec(spec.name, spec.dtype, golden.axes[spec.name]) for spec in signature.inputs),
        golden=golden,
        weights_of=weights_of,
        backend=keras.backend.backend(),
        unrequested_static=_unrequested_static(signature, golden, options),
        float32_clone=clone,
        converted_cases=converted,
        predicted=predicted,
    )


def _unrequested_static(signature: Signature, golden: Cases, options: Options) -> dict[str, str]:
    # Nothing suggested that an axis is dynamic if Keras runs a subclassed model on one size only.
    return {
        name: reason
        for name, reason in golden.static.items()
        if name in options.untraceable or (name not in options.static_axes and signature.is_functional)
    }


def case_of(name: str, model: keras.Model, options: Options) -> Case:
    """Return a case of the user's arrays, with Keras's outputs and the rounding limits in the precision of a file.

    Raises:
        UnsupportedModelError: The model cannot be exported.
        InputError: `samples` do not fit, or not all inputs are among them.
    """
    with _full_float32():
        signature = model_signature(model, options.samples, options.file)
        if half_policies(signature):
            signature = float32_clone(signature)
        inputs = whole_samples(signature)
        try:
            case = Case(name, inputs, signature.run(inputs))
        except Exception as error:
            # whatever the user's own model does with arrays that it is not made for
            raise InputError(f"Keras itself cannot run `{model.name}` on `samples`: {first_line(error)}") from error
        if not any(array.dtype.kind != "f" or np.isfinite(array).any() for array in case.outputs.values()):
            raise InputError("Keras gives NaN or infinity everywhere on `samples`: nothing can be compared.")
        (measured,) = with_rounding(signature, [case], options.precision)
        if keras.backend.backend() != "tensorflow":
            return measured

        from .reassociation_error import with_reordering  # which needs TensorFlow

        return with_reordering(signature, [measured], {name})[0]


def whole_samples(signature: Signature) -> Arrays:
    """Return samples by input name, of which none is missing.

    Raises:
        InputError: One is, or they do not fit.
    """
    inputs = flat_samples(signature)
    if missing := [spec.name for spec in signature.inputs if spec.name not in inputs]:
        raise InputError(f"`samples` lack {missing}. The model takes {[spec.name for spec in signature.inputs]}.")
    return inputs


@contextlib.contextmanager
def _full_float32() -> Iterator[None]:
    """Keep Keras's backend from rounding what it multiplies to 10 bits (TF32), as it may on a GPU."""
    backend = keras.backend.backend()
    with contextlib.ExitStack() as stack:
        if backend == "jax":
            jax = importlib.import_module(backend)  # neither need be installed
            stack.enter_context(jax.default_matmul_precision("highest"))
        elif backend == "torch":
            torch = importlib.import_module(backend)
            stack.callback(torch.set_float32_matmul_precision, torch.get_float32_matmul_precision())
            torch.set_float32_matmul_precision("highest")
            stack.enter_context(torch.backends.cudnn.flags(enabled=torch.backends.cudnn.enabled, allow_tf32=False))
        elif backend == "tensorflow":
            config = importlib.import_module(backend).config.experimental
            stack.callback(config.enable_tensor_float_32_execution, config.tensor_float_32_execution_enabled())
            config.enable_tensor_float_32_execution(False)
        yield
