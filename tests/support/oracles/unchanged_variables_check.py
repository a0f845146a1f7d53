"""Comparison of the variables of a model before and after an export."""

from contextlib import contextmanager

import numpy as np
from keras import ops


@contextmanager
def assert_variables_unchanged(model):
    """Assert that every variable has the same value at the end of the context as at its start."""
    before = [ops.convert_to_numpy(variable).copy() for variable in model.variables]
    yield
    for variable, value in zip(model.variables, before, strict=True):
        np.testing.assert_array_equal(ops.convert_to_numpy(variable), value, err_msg=variable.path)
