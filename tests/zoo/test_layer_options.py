"""Layers with each option of their constructors that changes the graph: exports in a model with attention."""

import inspect
import itertools
import re
from fnmatch import fnmatch
from importlib import import_module

import keras
import numpy as np
import pytest
from unchanged_variables_check import assert_variables_unchanged

from keras_attn_export import ExportError, export_model
from keras_attn_export._format.dtypes import decode_strings
from keras_attn_export._signature.signature import Signature
from keras_attn_export._signature.tensorflow_graph import trace_runner

from .layer_inputs import INPUT_KINDS, build_model, build_name, collect_arguments, find_class
from .layer_options import LAYERS_WITHOUT_ROW, REFUSAL_REASONS, ROWS, UNVARIED_OPTIONS

ROWS_PER_MODEL = 10
RELATIVE_TOLERANCE = 1e-3  # of the largest magnitude of an output


def group_rows():
    """Yield the rows of each model as a parameter: exported rows of one kind of input."""

    def model_key(row):
        return row.kind, row.package == "keras_hub"

    exported_rows = sorted((row for row in ROWS if not row.refusal_reason), key=model_key)
    for (kind, is_hub), group in itertools.groupby(exported_rows, model_key):
        rows, marks = [*group], pytest.mark.needs("keras_hub") if is_hub else ()
        for start in range(0, len(rows), ROWS_PER_MODEL):
            yield pytest.param(rows[start : start + ROWS_PER_MODEL], id=f"{'hub ' * is_hub}{kind}-{start}", marks=marks)


def run_traced_graphs(monkeypatch):
    """Replace `Signature.run`, which runs a model eagerly, by a traced graph: eager loops over time take minutes."""
    graphs = {}

    def run(signature, inputs):
        if id(signature) not in graphs:
            graphs[id(signature)] = trace_runner(signature)
        return graphs[id(signature)](inputs)

    monkeypatch.setattr(Signature, "run", run)


def describe_difference(output, expected):
    """Return a description of the difference between an output and Keras's, or an empty string."""
    if output.shape != expected.shape or output.dtype.kind != expected.dtype.kind:
        return f"{output.dtype} {output.shape} instead of {expected.dtype} {expected.shape}"
    if expected.dtype.kind != "f":
        return "" if np.array_equal(output, expected) else f"{output} instead of {expected}"
    difference, magnitude = np.abs(output - expected).max(initial=0), np.abs(expected).max(initial=0)
    return "" if difference <= RELATIVE_TOLERANCE * magnitude else f"differs by {difference:.1e}"


@pytest.mark.slow
@pytest.mark.parametrize("rows", [*group_rows()])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_outputs_equal_those_of_keras_at_other_sizes(rows, tmp_path, monkeypatch):
    model, kind = build_model(rows), INPUT_KINDS[rows[0].kind]
    if kind.is_traced:
        run_traced_graphs(monkeypatch)
    with assert_variables_unchanged(model):
        bundle = export_model(model, tmp_path / "bundle", sample_inputs=kind.samples)
    inputs = kind.draw(1, 5, 9)
    tensors = {name: keras.ops.convert_to_tensor(array) for name, array in inputs.items()}
    outputs, expected = bundle.run(inputs), model(tensors, training=False)
    arrays = {name: decode_strings(keras.ops.convert_to_numpy(tensor)) for name, tensor in expected.items()}
    differences = {name: describe_difference(outputs[name], array) for name, array in arrays.items()}
    assert not {name: difference for name, difference in differences.items() if difference}


@pytest.mark.slow
@pytest.mark.parametrize("row", [pytest.param(row, id=row.title) for row in ROWS if row.refusal_reason])
def test_refusal_names_layer_and_option(row, tmp_path):
    option = next(option for option in REFUSAL_REASONS if f"{option}=True" in row.option)
    with pytest.raises(ExportError, match=rf"^Layer `\w*{build_name(row)}\w*` .*{option}"):
        export_model(build_model([row]), tmp_path / "bundle", sample_inputs=INPUT_KINDS[row.kind].samples)


def collect_public_layers(package):
    """Return the public layer classes of a package with their first public name."""
    prefix = "" if package is keras.layers else package.__name__.removesuffix(".layers") + "."
    classes = [(name, value) for name, value in vars(package).items() if isinstance(value, type)]
    return {value: f"{prefix}{name}" for name, value in reversed(classes) if issubclass(value, keras.Layer)}


def find_missing_options(layer_class, name):
    """Return the options of a layer, or the layer itself, for which the table has neither a row nor a reason."""
    package = name.rpartition(".")[0]
    layer_rows = [row for row in ROWS if row.package == package and find_class(row) is layer_class]
    row_arguments = [collect_arguments(row) for row in layer_rows]
    titles = [
        f"{name}.{option.name}"
        for option in inspect.signature(layer_class).parameters.values()
        if all(repr(arguments.get(option.name, option.default)) == repr(option.default) for arguments in row_arguments)
    ]
    has_reason = any(fnmatch(name, pattern) for names in LAYERS_WITHOUT_ROW for pattern in names.split())
    missing = titles if layer_rows else [] if has_reason else [name]
    return [title for title in missing if not any(re.fullmatch(pattern, title) for pattern in UNVARIED_OPTIONS)]


HUB_LAYERS = pytest.param("keras_hub.layers", marks=[pytest.mark.slow, pytest.mark.needs("keras_hub")])


@pytest.mark.parametrize("package", ["keras.layers", "keras_attn", HUB_LAYERS])
def test_every_option_of_every_layer_is_in_the_table(package):
    layers = collect_public_layers(import_module(package))
    public = {*layers, *collect_public_layers(keras.layers)}
    aliases = {layer for layer in layers if not {"__init__", "call"} & {*vars(layer)} and layer.__base__ in public}
    own_layers = {layer: name for layer, name in layers.items() if layer not in aliases}
    assert not [title for layer, name in own_layers.items() for title in find_missing_options(layer, name)]
