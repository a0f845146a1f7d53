"""Models whose loop is in the graph, as one ONNX file."""

import numpy as np
import pytest
from decoding_models import (
    END_GROWING,
    OPTIONS,
    START,
    build_attention_models,
    build_cache_models,
    build_recurrent_models,
    draw_first_inputs,
    draw_ids,
    fix_batch_size,
    to_arrays,
)
from unchecked_export import UncheckedExport

from keras_attn.decoding import beam, greedy
from keras_attn_export import export_model
from keras_attn_export._onnx.traversal import iter_nodes, iter_subgraphs

CASES = {
    "attention": lambda: (
        greedy(*build_attention_models(), **{**OPTIONS, "max_length": 4}, outputs=["weights"]),
        draw_ids,
    ),
    "a cache that grows": lambda: (greedy(*build_cache_models(), **{**OPTIONS, "end": END_GROWING}), draw_first_inputs),
    "without an end": lambda: (
        greedy(*build_recurrent_models(), start=START, max_length=3, outputs=["weights"]),
        draw_ids,
    ),
    "beam": lambda: (
        beam(*build_recurrent_models(), **{**OPTIONS, "max_length": 3}, width=2, outputs=["weights"]),
        draw_ids,
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_decoder_exports_and_matches(name, tmp_path):
    model, inputs_of = CASES[name]()
    assert export_model(model, tmp_path / "bundle", sample_inputs=inputs_of(5, seed=1)).report.passed


@pytest.fixture(scope="module", params=CASES)
def written(request, tmp_path_factory):
    model, inputs_of = CASES[request.param]()
    traced = UncheckedExport(model)
    return request.param, traced, traced.write(tmp_path_factory.mktemp("decoding")), inputs_of


@pytest.mark.slow
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


@pytest.mark.slow
def test_batch_without_rows_is_decoded(written):
    _, traced, file, inputs_of = written
    found = file.run(inputs_of(0))
    for name, spec in traced.model.output.items():
        assert file.finished.outputs[name] == spec.shape, name  # TensorFlow is told how many steps there are
        assert found[name].shape == (0, *(5 if size is None else size for size in spec.shape[1:])), name


@pytest.mark.slow
def test_ended_rows_leave_the_loop_of_the_file(written):
    """A loop within a loop, unless all rows take all steps."""
    name, _, file, _ = written
    found = [node for node in iter_nodes(file.finished.model.graph) if node.op_type == "Loop"]
    assert len(found) == (1 if name == "without an end" else 2)
    leaving = [any(node.op_type == "NonZero" for node in next(iter_subgraphs(loop)).node) for loop in found]
    assert leaving == [name != "without an end", False][: len(found)]


@pytest.mark.slow
def test_step_of_fixed_batch_is_exported_with_it(tmp_path):
    encoder, step, state = build_recurrent_models()
    model, inputs = (
        greedy(encoder, fix_batch_size(step, 4), state, **OPTIONS),
        {"ids": draw_ids(9)["ids"][[7, 0, 8, 1]]},
    )
    bundle = export_model(model, tmp_path / "bundle")
    assert bundle.manifest["inputs"] == [{"name": "ids", "dtype": "int32", "shape": [4, "ids_length"]}]
    first_sizes = {spec["name"]: spec["shape"][0] for spec in bundle.manifest["outputs"]}
    assert first_sizes == dict.fromkeys(("tokens", "lengths", "scores"), 4)
    found, expected = bundle.run(inputs), to_arrays(greedy(encoder, step, state, **OPTIONS)(inputs))
    assert len(set(expected["lengths"].tolist())) > 2  # so that rows would leave
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-5, err_msg=name)
