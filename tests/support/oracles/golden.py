"""Golden cases of a model, and inputs of such models."""

import keras

from keras_attn_export._model.golden_cases import golden_cases
from keras_attn_export._model.signature import model_signature
from keras_attn_export._options import Options


def cases_of(model, samples=None, **options):
    return golden_cases(model_signature(model, samples), Options(**options))


def sequence(name="x", size=4):
    return keras.Input((None, size), name=name)


def integers(name, *shape, dtype="int32"):
    return keras.Input(shape, dtype=dtype, name=name)


def usual(found):
    """Its cases without that of special values."""
    return [case for case in found.cases if case.name not in found.trials]
