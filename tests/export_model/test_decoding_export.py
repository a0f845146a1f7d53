"""Models whose loop is in the graph, as one ONNX file."""

import numpy as np
import onnx
import pytest
from decoding_models import (
    END,
    END_GROWING,
    LENGTH,
    START,
    arrays,
    attending,
    firsts_of,
    growing,
    ids_of,
    recurrent,
)

from keras_attn.decoding import beam, greedy
from keras_attn_export import export_model

OPTIONS = {"start": START, "end": END, "max_length": LENGTH}


CASES = {
    "attention": lambda: (greedy(*attending(), **{**OPTIONS, "max_length": 4}, outputs=["weights"]), ids_of),
    "a cache that grows": lambda: (greedy(*growing(), **{**OPTIONS, "end": END_GROWING}), firsts_of),
    "without an end": lambda: (greedy(*recurrent(), start=START, max_length=3, outputs=["weights"]), ids_of),
    "beam": lambda: (beam(*recurrent(), **{**OPTIONS, "max_length": 3}, width=2, outputs=["weights"]), ids_of),
}


# A beam is exported with `--pairs rest`: its proof takes as long as those of the others together.
LONG = {"beam": pytest.mark.out_of_turn}
PARAMS = [pytest.param(name, marks=LONG.get(name, ())) for name in CASES]


@pytest.fixture(scope="module", params=PARAMS)
def exported(request, tmp_path_factory):
    model, inputs_of = CASES[request.param]()
    path = tmp_path_factory.mktemp("decoding") / "bundle"
    return request.param, model, export_model(model, path, sample_inputs=inputs_of(5, seed=1)), inputs_of


def test_the_proof_passes(exported):
    _, _, bundle, _ = exported
    assert bundle.report.passed


@pytest.mark.parametrize("count", [1, 2, 9, 33])
def test_any_batch_is_decoded_as_by_keras(exported, count):
    name, model, bundle, inputs_of = exported
    inputs = inputs_of(count)
    found, expected = bundle.run(inputs), arrays(model(inputs))
    for key, array in expected.items():
        assert found[key].shape == array.shape, key
        np.testing.assert_allclose(found[key], array, rtol=1e-4, atol=1e-5, err_msg=key)
    if count == 9 and name in ("attention", "a cache that grows"):
        assert len(set(found["lengths"].tolist())) > 2  # rows leave at different steps


def test_a_batch_without_rows_is_decoded_too(exported):
    _, model, bundle, inputs_of = exported
    found = bundle.run(inputs_of(0))
    for name, spec in model.output.items():
        assert found[name].shape == (0, *(5 if size is None else size for size in spec.shape[1:])), name


def loops(graph):
    for node in graph.node:
        bodies = [attribute.g for attribute in node.attribute if attribute.HasField("g")]
        if node.op_type == "Loop":
            yield node, bodies[0]
        for body in bodies:
            yield from loops(body)


def test_rows_leave_in_the_file_too(exported):
    """A loop within a loop, unless all rows take all steps."""
    name, _, bundle, _ = exported
    found = list(loops(onnx.load(str(bundle.path / "model.onnx")).graph))
    assert len(found) == (1 if name == "without an end" else 2)
    inner = found[-1][1]
    assert not any(node.op_type == "NonZero" for node in inner.node)
    assert any(node.op_type == "NonZero" for node in found[0][1].node) == (name != "without an end")
