"""Models whose loop is in the graph, as one ONNX file."""

import numpy as np
import pytest
from decoding_models import END, END_GROWING, LENGTH, START, attending, firsts_of, growing, ids_of, recurrent
from unproven import Unproven

from keras_attn.decoding import beam, greedy
from keras_attn_export import export_model

OPTIONS = {"start": START, "end": END, "max_length": LENGTH}
CASES = {
    "attention": lambda: (greedy(*attending(), **{**OPTIONS, "max_length": 4}, outputs=["weights"]), ids_of),
    "a cache that grows": lambda: (greedy(*growing(), **{**OPTIONS, "end": END_GROWING}), firsts_of),
    "without an end": lambda: (greedy(*recurrent(), start=START, max_length=3, outputs=["weights"]), ids_of),
    "beam": lambda: (beam(*recurrent(), **{**OPTIONS, "max_length": 3}, width=2, outputs=["weights"]), ids_of),
}
IN_TURN = "attention"


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == IN_TURN else pytest.mark.out_of_turn) for name in CASES]
)
def test_the_proof_passes(name, tmp_path):
    model, inputs_of = CASES[name]()
    assert export_model(model, tmp_path / "bundle", sample_inputs=inputs_of(5, seed=1)).report.passed


@pytest.fixture(scope="module", params=CASES)
def written(request, tmp_path_factory):
    model, inputs_of = CASES[request.param]()
    traced = Unproven(model)
    return request.param, traced, traced.written(tmp_path_factory.mktemp("decoding")), inputs_of


@pytest.mark.parametrize("count", [1, 2, 9, 33])
def test_any_batch_is_decoded_as_by_keras(written, count):
    name, traced, file, inputs_of = written
    inputs = inputs_of(count)
    found, expected = file.run(inputs), traced.expected(inputs)
    for key, array in expected.items():
        assert found[key].shape == array.shape, key
        np.testing.assert_allclose(found[key], array, rtol=1e-4, atol=1e-5, err_msg=key)
    if count == 9 and name in ("attention", "a cache that grows"):
        assert len(set(found["lengths"].tolist())) > 2  # rows leave at different steps


def test_a_batch_without_rows_is_decoded_too(written):
    _, traced, file, inputs_of = written
    found = file.run(inputs_of(0))
    for name, spec in traced.model.output.items():
        assert found[name].shape == (0, *(5 if size is None else size for size in spec.shape[1:])), name


def loops(graph):
    for node in graph.node:
        bodies = [attribute.g for attribute in node.attribute if attribute.HasField("g")]
        if node.op_type == "Loop":
            yield node, bodies[0]
        for body in bodies:
            yield from loops(body)


def test_rows_leave_in_the_file_too(written):
    """A loop within a loop, unless all rows take all steps."""
    name, _, file, _ = written
    found = list(loops(file.finished.model.graph))
    assert len(found) == (1 if name == "without an end" else 2)
    inner = found[-1][1]
    assert not any(node.op_type == "NonZero" for node in inner.node)
    assert any(node.op_type == "NonZero" for node in found[0][1].node) == (name != "without an end")
