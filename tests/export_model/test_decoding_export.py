"""Greedy and beam decoding models as one ONNX file: outputs, empty batches, and rows that end early."""

import numpy as np
import pytest
from decoding_models import (
    GROWING_CACHE_END,
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
    "a cache that grows": lambda: (
        greedy(*build_cache_models(), **{**OPTIONS, "end": GROWING_CACHE_END}),
        draw_first_inputs,
    ),
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
    model, draw_inputs = CASES[name]()
    assert export_model(model, tmp_path / "bundle", sample_inputs=draw_inputs(5, seed=1)).report.passed


@pytest.fixture(scope="module", params=CASES)
def exported_decoder(request, tmp_path_factory):
    """Case name, traced model, ONNX file, and the function that draws inputs."""
    model, draw_inputs = CASES[request.param]()
    traced = UncheckedExport(model)
    return request.param, traced, traced.write(tmp_path_factory.mktemp("decoding")), draw_inputs


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 2, 9, 33])
def test_any_batch_is_decoded_as_by_keras(exported_decoder, count):
    case, traced, file, draw_inputs = exported_decoder
    inputs = draw_inputs(count)
    outputs, expected = file.run(inputs), traced.compute_expected(inputs)
    for name, array in expected.items():
        assert outputs[name].shape == array.shape, name
        np.testing.assert_allclose(outputs[name], array, rtol=1e-4, atol=1e-5, err_msg=name)
    if count == 9 and case in ("attention", "a cache that grows"):
        assert len(set(outputs["lengths"].tolist())) > 2  # rows end at different steps


@pytest.mark.slow
def test_batch_without_rows_is_decoded(exported_decoder):
    _, traced, file, draw_inputs = exported_decoder
    outputs = file.run(draw_inputs(0))
    for name, spec in traced.model.output.items():
        assert file.traced.outputs[name] == spec.shape, name  # the number of steps is static
        assert outputs[name].shape == (0, *(5 if size is None else size for size in spec.shape[1:])), name


@pytest.mark.slow
def test_ended_rows_leave_the_loop_of_the_file(exported_decoder):
    """Assert that an outer loop drops ended rows around the loop over steps, unless all rows take all steps."""
    name, _, file, _ = exported_decoder
    loops = [node for node in iter_nodes(file.traced.model.graph) if node.op_type == "Loop"]
    assert len(loops) == (1 if name == "without an end" else 2)
    drops_rows = [any(node.op_type == "NonZero" for node in next(iter_subgraphs(loop)).node) for loop in loops]
    assert drops_rows == [name != "without an end", False][: len(loops)]


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
    outputs, expected = bundle.run(inputs), to_arrays(greedy(encoder, step, state, **OPTIONS)(inputs))
    assert len(set(expected["lengths"].tolist())) > 2  # rows would end at different steps
    for name, array in expected.items():
        np.testing.assert_allclose(outputs[name], array, rtol=1e-5, err_msg=name)
