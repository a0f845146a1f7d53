"""Export of every layer with every option of its constructor that changes a graph, beside an attention layer."""

import itertools

import numpy as np
import pytest
from variables_kept import variables_kept

from keras_attn_export import ExportError, export_model
from keras_attn_export._model.as_graph import graph_run
from keras_attn_export._model.signature import Signature

from .layer_inputs import KINDS, model_of, name_of
from .layer_options import ROWS

ROWS_IN_A_MODEL = 10
TOLERANCE = 1e-3  # of the largest number of an output


def models():
    """Yield the exported rows of every model, with a name."""
    for kind, rows in itertools.groupby((row for row in ROWS if not row.is_refused), lambda row: row.kind):
        listed = [*rows]
        for start in range(0, len(listed), ROWS_IN_A_MODEL):
            yield pytest.param(listed[start : start + ROWS_IN_A_MODEL], id=f"{kind}-{start}")


def trace_runs(monkeypatch):
    """Let the export run a graph of the model instead of the model, whose loops over time take minutes otherwise."""
    graphs = {}

    def run(signature, inputs):
        if id(signature) not in graphs:
            graphs[id(signature)] = graph_run(signature)
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


@pytest.mark.zoo
@pytest.mark.parametrize("rows", [*models()])
@pytest.mark.filterwarnings("ignore::UserWarning")  # of Keras and of the export
def test_outputs_equal_those_of_keras_at_other_sizes(rows, tmp_path, monkeypatch):
    model, kind = model_of(rows), KINDS[rows[0].kind]
    if kind.is_traced:
        trace_runs(monkeypatch)
    samples = kind.draw(0, 3, 6) if kind.has_samples else None
    with variables_kept(model):
        bundle = export_model(model, tmp_path / "bundle", sample_inputs=samples)
    inputs = kind.draw(1, 5, 9)
    outputs, expected = bundle.run(inputs), model.predict(inputs, verbose=0)
    differences = {name: difference(outputs[name], np.asarray(expected[name])) for name in expected}
    assert not {name: text for name, text in differences.items() if text}


@pytest.mark.zoo
@pytest.mark.parametrize("row", [pytest.param(row, id=row.title) for row in ROWS if row.is_refused])
def test_refusal_names_layer_and_option(row, tmp_path):
    model = model_of([row])
    with pytest.raises(ExportError) as refusal:
        export_model(model, tmp_path / "bundle")
    print(refusal.value)
    assert name_of(row) in str(refusal.value)
