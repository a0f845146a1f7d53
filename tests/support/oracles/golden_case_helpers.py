"""Helpers that generate golden cases and measure rounding limits of small models."""

import keras

from keras_attn_export._format.names import Case
from keras_attn_export._golden_cases.case_generation import generate_golden_cases
from keras_attn_export._options import Options
from keras_attn_export._rounding.rounding_error import measure_limits
from keras_attn_export._signature.signature import build_signature


def generate_cases(model, samples=None, **options):
    return generate_golden_cases(build_signature(model, samples), Options(**options))


def build_sequence_input(name="x", num_features=4):
    return keras.Input((None, num_features), name=name)


def build_integer_input(name, *shape, dtype="int32"):
    return keras.Input(shape, dtype=dtype, name=name)


def measure_output_limits(model, inputs, precision="float32", name="out"):
    """Return the rounding limits of the output `name` for these inputs, and the output itself."""
    model_signature = build_signature(model)
    (case,) = measure_limits(model_signature, [Case("base", inputs, model_signature.run(inputs))], precision)
    return case.rounding_limits[name], case.outputs[name]


def select_finite_cases(golden_cases):
    """Return the golden cases into whose inputs no special values, such as NaN, were injected."""
    return [case for case in golden_cases.cases if case.name not in golden_cases.injections_by_case]
