"""Export of every layer with every option of its constructor that changes a graph, beside an attention layer."""

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

from .layer_inputs import KINDS, arguments_of, class_of, model_of, name_of
from .layer_options import NO_ROW, NOT_VARIED, REASONS, ROWS

MAX_ROWS = 10  # of a model
TOLERANCE = 1e-3  # of the largest number of an output


def models():
    """Yield the exported rows of every model, with a name."""

    def model(row):
        return row.kind, row.package == "keras_hub"

    for (kind, is_hub), group in itertools.groupby(sorted((row for row in ROWS if not row.refused), key=model), model):
        rows, marks = [*group], pytest.mark.needs("keras_hub") if is_hub else ()
        for start in range(0, len(rows), MAX_ROWS):
            yield pytest.param(rows[start : start + MAX_ROWS], id=f"{'hub ' * is_hub}{kind}-{start}", marks=marks)


def trace_runs(monkeypatch):
    """Let the export run a graph of the model instead of the model, whose loops over time take minutes otherwise."""
    graphs = {}

    def run(signature, inputs):
        if id(signature) not in graphs:
            graphs[id(signature)] = trace_runner(signature)
        return graphs[id(signature)](inputs)

    monkeypatch.setattr(Signature, "run", run)


def difference(output, expected):
    """Return the difference of an output from Keras's, empty if there is none."""
    if output.shape != expected.shape or output.dtype.kind != expected.dtype.kind:
        return f"{output.dtype} {output.shape} instead of {expected.dtype} {expected.shape}"
    if expected.dtype.kind != "f":
        return "" if np.array_equal(output, expected) else f"{output} instead of {expected}"
    largest = np.abs(output - expected).max(initial=0)
    return "" if largest <= TOLERANCE * np.abs(expected).max(initial=0) else f"differs by {largest:.1e}"


@pytest.mark.slow
@pytest.mark.parametrize("rows", [*models()])
@pytest.mark.filterwarnings("ignore::UserWarning")  # of Keras and of the export
def test_outputs_equal_those_of_keras_at_other_sizes(rows, tmp_path, monkeypatch):
    model, kind = model_of(rows), KINDS[rows[0].kind]
    if kind.is_traced:
        trace_runs(monkeypatch)
    with assert_variables_unchanged(model):
        bundle = export_model(model, tmp_path / "bundle", sample_inputs=kind.samples)
    inputs = kind.draw(1, 5, 9)
    tensors = {name: keras.ops.convert_to_tensor(array) for name, array in inputs.items()}
    outputs, expected = bundle.run(inputs), model(tensors, training=False)
    differences = {
        name: difference(outputs[name], decode_strings(keras.ops.convert_to_numpy(expected[name]))) for name in expected
    }
    assert not {name: text for name, text in differences.items() if text}


@pytest.mark.slow
@pytest.mark.parametrize("row", [pytest.param(row, id=row.title) for row in ROWS if row.refused])
def test_refusal_names_layer_and_option(row, tmp_path):
    named = next(option for option in REASONS if f"{option}=True" in row.option)
    with pytest.raises(ExportError, match=rf"^Layer `\w*{name_of(row)}\w*` .*{named}"):
        export_model(model_of([row]), tmp_path / "bundle", sample_inputs=KINDS[row.kind].samples)


def public_layers(package):
    """Return the public layers of a package by class, with the first of their names."""
    prefix = "" if package is keras.layers else package.__name__.removesuffix(".layers") + "."
    classes = [(name, kind) for name, kind in vars(package).items() if isinstance(kind, type)]
    return {kind: f"{prefix}{name}" for name, kind in reversed(classes) if issubclass(kind, keras.Layer)}


def unvaried(kind, name):
    """Return the options of a layer, or the layer itself, for which the table has neither a row nor a reason."""
    package = name.rpartition(".")[0]
    passed = [arguments_of(row) for row in ROWS if row.package == package and class_of(row) is kind]
    titles = [
        f"{name}.{option.name}"
        for option in inspect.signature(kind).parameters.values()
        if all(repr(arguments.get(option.name, option.default)) == repr(option.default) for arguments in passed)
    ]
    is_left_out = any(fnmatch(name, pattern) for names in NO_ROW for pattern in names.split())
    missing = titles if passed else [] if is_left_out else [name]
    return [title for title in missing if not any(re.fullmatch(pattern, title) for pattern in NOT_VARIED)]


OF_HUB = pytest.param("keras_hub.layers", marks=[pytest.mark.slow, pytest.mark.needs("keras_hub")])


@pytest.mark.parametrize("package", ["keras.layers", "keras_attn", OF_HUB])
def test_every_option_of_every_layer_is_in_the_table(package):
    layers = public_layers(import_module(package))
    public = {*layers, *public_layers(keras.layers)}
    inherited = {kind for kind in layers if not {"__init__", "call"} & {*vars(kind)} and kind.__base__ in public}
    assert not [title for kind, name in layers.items() if kind not in inherited for title in unvaried(kind, name)]
