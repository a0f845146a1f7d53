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
from .._golden_cases.case_generation import CheckTrace, generate_golden_cases, skip_check
from .._golden_cases.coverage import summarize_coverage
from .._golden_cases.golden_cases import GoldenCases
from .._golden_cases.sample_inputs import flatten_samples
from .._options import FLOAT32, Options
from .._progress import ProgressCallback
from .._signature.attention_weight_outputs import find_attention_outputs, find_collected_weights
from .._signature.keras_messages import shorten_message
from .._signature.signature import Signature, build_signature
from .float32_clone import clone_to_float32, find_half_policies, measure_clone_difference
from .keras_implementations import run_predict
from .rounding_error import measure_limits


@dataclass(frozen=True)
class Reference:
    """Outputs of a model on the golden cases, and facts about the model for the bundle."""

    model: str  # the name
    inputs: tuple[Spec, ...]  # with names of dynamic axes
    golden_cases: GoldenCases
    weights_of: dict[str, str]  # path of the attention layer, by output with its weights
    backend: str  # Keras backend that computed the outputs
    unrequested_static: dict[str, str]  # reasons by name of axes that are static without a request of the user
    float32_clone: dict[str, Any] | None = None  # entry of the parity report, for a model that was cloned to float32
    converted_cases: list[Case] = field(default_factory=list)  # with limits of the precision of the file
    predict_outputs: Arrays | None = None  # outputs of `predict` in the first golden case, unless `predict` cannot run


def build_reference(
    model: keras.Model, options: Options, on_step: ProgressCallback, check: CheckTrace = skip_check
) -> tuple[Signature, Reference]:
    """Build the signature of the model in float32, and its golden cases with rounding limits.

    Args:
        model: A functional, sequential or subclassed model.
        options: The options of the export.
        on_step: Called with a description of each step.
        check: Called with the first golden case. It raises if the model cannot be exported, before Keras runs on the
            other cases, which may take minutes.

    Raises:
        UnsupportedModelError: If the model cannot be exported.
        InputError: If `samples` do not fit the model, or are required.
    """
    with _disable_tf32():
        original = build_signature(model, options.samples, options.file)
        is_half = bool(find_half_policies(original))
        if is_half:
            on_step("Cloning the model to float32")
        float32 = clone_to_float32(original) if is_half else original
        on_step("Running Keras on the golden cases")
        golden = generate_golden_cases(float32, options, check)
        signature = replace(float32, inputs=tuple(golden.get_dynamic_spec(spec) for spec in float32.inputs))
        on_step("Measuring rounding limits of the outputs")
        golden = replace(golden, cases=measure_limits(signature, golden.cases, FLOAT32))
        # Special values are beyond the range of a coarser precision.
        usual_cases = [case for case in golden.cases if case.name not in golden.injections_by_case]
        # Limits of an int8 file with static quantization come from the float32 graph of that file.
        is_measured = options.precision != FLOAT32 and options.calibration is None
        measured_cases = measure_limits(signature, usual_cases, options.precision) if is_measured else []
        converted_cases = measured_cases if is_measured or options.precision == FLOAT32 else usual_cases
        golden = replace(golden, coverage=summarize_coverage(golden, measured_cases))
        predict_outputs = run_predict(signature, golden.cases[0])
        clone_difference = measure_clone_difference(original, golden.cases) if is_half else None
        # The case with the most distinct sizes: equal axes could be confused in a comparison of shapes.
        num_sizes = [len({size for array in case.inputs.values() for size in array.shape}) for case in golden.cases]
        inputs = golden.cases[int(np.argmax(num_sizes))].inputs
        weights_of = find_attention_outputs(signature, inputs) | find_collected_weights(signature, inputs)
    return signature, Reference(
        model=signature.model.name,
        inputs=tuple(Spec(spec.name, spec.dtype, golden.axes[spec.name]) for spec in signature.inputs),
        golden_cases=golden,
        weights_of=weights_of,
        backend=keras.backend.backend(),
        unrequested_static=_find_unrequested_static(signature, golden, options),
        float32_clone=clone_difference,
        converted_cases=converted_cases,
        predict_outputs=predict_outputs,
    )


def _find_unrequested_static(signature: Signature, golden: GoldenCases, options: Options) -> dict[str, str]:
    # The axes of a subclassed model have no declared sizes, so an axis with a single working size is not reported.
    return {
        name: reason
        for name, reason in golden.static.items()
        if name in options.untraceable_axes or (name not in options.static_axes and signature.is_functional)
    }


def build_user_case(name: str, model: keras.Model, options: Options) -> Case:
    """Run Keras on arrays of the user, and measure rounding limits in the precision of a file.

    Raises:
        UnsupportedModelError: If the model cannot be exported.
        InputError: If `samples` do not fit the model, or lack an input.
    """
    with _disable_tf32():
        signature = build_signature(model, options.samples, options.file)
        if find_half_policies(signature):
            signature = clone_to_float32(signature)
        inputs = require_all_samples(signature)
        try:
            case = Case(name, inputs, signature.run(inputs))
        except Exception as error:
            # The model of the user may raise anything on arrays of a wrong size.
            raise InputError(
                f"Keras itself cannot run `{model.name}` on `samples`: {shorten_message(error)}"
            ) from error
        if not any(array.dtype.kind != "f" or np.isfinite(array).any() for array in case.outputs.values()):
            raise InputError("Keras returns only NaN and infinity on `samples`: nothing can be compared.")
        (case_with_limits,) = measure_limits(signature, [case], options.precision)
        if keras.backend.backend() != "tensorflow":
            return case_with_limits

        from .reassociation_error import widen_for_reassociation  # which needs TensorFlow

        return widen_for_reassociation(signature, [case_with_limits], {name})[0]


def require_all_samples(signature: Signature) -> Arrays:
    """Return the samples of all inputs by name; raise `InputError` if one is missing or does not fit."""
    inputs = flatten_samples(signature)
    if missing := [spec.name for spec in signature.inputs if spec.name not in inputs]:
        raise InputError(f"`samples` lack {missing}. The model takes {[spec.name for spec in signature.inputs]}.")
    return inputs


@contextlib.contextmanager
def _disable_tf32() -> Iterator[None]:
    """Disable TF32 in the Keras backend, which on a GPU rounds the factors of matrix products to 10 bits."""
    backend = keras.backend.backend()
    with contextlib.ExitStack() as stack:
        if backend == "jax":
            jax = importlib.import_module(backend)  # JAX and torch are optional dependencies
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
