"""Tests of `backends.py` and `backend_neutral_tests.py`, two helpers of the layer tests.

Layer tests run on every backend of Keras. `backends.py` hides the differences between the backends.
`backend_neutral_tests.py` selects the files of layer tests. They import only packages that every backend has.
"""

import subprocess
import sys

import keras
import numpy as np
import pytest
from backend_neutral_tests import SUPPORT_FOLDER, find_imports, is_layer_test
from backends import attach_mask, compile_function, compute_gradients, every_compilation_mode, read_mask
from keras import ops
from layer_contract import to_numpy
from tolerances import assert_close, assert_identical


@pytest.mark.slow
def test_layer_tests_import_tensorflow_only_within_tests():
    """An import at module level would exclude all tests of the file from the other backends."""
    for path in SUPPORT_FOLDER.parent.rglob("test_*.py"):
        if "tensorflow" in find_imports(path) and "keras_attn" in find_imports(path):
            assert "keras_attn_export" in find_imports(path), f"{path.name} must import tensorflow within its tests"


def test_selection_finds_the_tests_of_every_layer():
    selected_files = {path.name for path in SUPPORT_FOLDER.parent.rglob("test_*.py") if is_layer_test(path)}
    contract_tests = {path.name for path in SUPPORT_FOLDER.parent.rglob("test_contract*.py")}
    layer_tests = {"test_additive.py", "test_backends.py", "test_heatmaps.py", "test_attention_pooling.py"}
    assert contract_tests | layer_tests <= selected_files
    assert selected_files.isdisjoint({"test_export_model.py", "test_date_normaliser.py", "test_readme.py"})


@pytest.mark.slow
def test_keras_attn_imports_no_further_backend():
    script = "import sys, keras; before = {*sys.modules}; import keras_attn; print(*{*sys.modules} - before)"
    process = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True)
    loaded_modules = set(process.stdout.split())
    assert "keras_attn" in loaded_modules
    assert loaded_modules.isdisjoint({"tensorflow", "jax", "torch", "flax", "paddle"})


@every_compilation_mode
def test_gradients_cover_arguments_and_variables(mode):
    """The loss x y v^2 z is differentiated by x and y, which are arguments, and by the variable v.

    Its gradients are y v^2 z, x v^2 z and 2 x y v z. The program computes them at x = 2, y = 3, z = 5 and v = 7. Then v
    is set to 11, and the compiled program is called again.
    """
    variable = keras.Variable(7.0)

    def loss(x, y, z):
        return x * y * variable**2 * z

    program = compile_function(compute_gradients(loss, 2, [variable]), mode, variables=[variable])
    arguments = [ops.convert_to_tensor(np.float32(number)) for number in (2, 3, 5)]
    assert [float(to_numpy(gradient)) for gradient in program(*arguments)] == [3 * 49 * 5, 2 * 49 * 5, 2 * 3 * 14 * 5]
    variable.assign(11.0)
    assert [float(to_numpy(gradient)) for gradient in program(*arguments)] == [3 * 121 * 5, 2 * 121 * 5, 2 * 3 * 22 * 5]


@every_compilation_mode
def test_gradients_of_gradients_are_computed(mode):
    """d/dx (d/dx x^3)^2 = 36 x^3."""
    inner = compute_gradients(lambda x: x**3, 1)
    outer = compile_function(compute_gradients(lambda x: inner(x)[0] ** 2, 1), mode)
    assert to_numpy(outer(ops.convert_to_tensor(np.float32(2)))[0]) == 36 * 8


def test_attached_mask_reaches_the_next_layer():
    array, mask = np.ones((2, 3, 4), "float32"), np.array([[True, False, True], [False, True, True]])
    tensor = attach_mask(array, mask)
    assert_identical(to_numpy(tensor), array)
    assert_identical(to_numpy(read_mask(tensor)), mask)
    assert read_mask(ops.convert_to_tensor(array)) is None
    mean = keras.layers.GlobalAveragePooling1D()(attach_mask(array * np.arange(3)[:, None], mask))
    assert_close(to_numpy(mean)[:, 0], np.float32([1, 1.5]))
