"""Golden cases of a model, and inputs of such models."""

import keras

from keras_attn_export._format.names import Case
from keras_attn_export._golden_cases.case_generation import generate_golden_cases
from keras_attn_export._options import Options
from keras_attn_export._rounding.rounding_error import measure_limits
from keras_attn_export._signature.signature import build_signature


def cases_of(model, samples=None, **options):
    return generate_golden_cases(build_signature(model, samples), Options(**options))


def sequence(name="x", size=4):
    return keras.Input((None, size), name=name)


def integers(name, *shape, dtype="int32"):
    return keras.Input(shape, dtype=dtype, name=name)


def rounding(model, inputs, precision="float32", name="out"):
    """The rounding limits of one output for some inputs, and the output."""
    signature = build_signature(model)
    (case,) = measure_limits(signature, [Case("base", inputs, signature.run(inputs))], precision)
    return case.rounding[name], case.outputs[name]


def usual(found):
    """Its cases without that of special values."""
    return [case for case in found.cases if case.name not in found.injected_values]
