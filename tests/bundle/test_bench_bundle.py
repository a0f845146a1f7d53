"""`bench`: times, memory and inputs of one model or two."""

import json
import re

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import helper
from small_bundle import draw_small_inputs, read_manifest

from keras_attn_export import Bundle, BundleError, ExportError, InputError
from keras_attn_export._bundle import bench_bundle as bench
from keras_attn_export._bundle.bench_bundle import bench_bundle
from keras_attn_export._format.case_writing import save_cases
from keras_attn_export._format.cases import load_cases
from keras_attn_export._format.names import CASES_FILE, Case

QUICK = {"seconds": 0.05, "threads": 1}


@pytest.fixture
def other_file(exported, tmp_path):
    """An ONNX file with the inputs of the bundle, whose output `context` is higher by 2."""
    model = onnx.load(exported / "model.onnx")
    (product,) = (node for node in model.graph.node if "context" in node.output)
    product.output[0] = "before"
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.float32(2), "two"))
    model.graph.node.append(helper.make_node("Add", ["before", "two"], ["context"]))
    onnx.save(model, tmp_path / "other.onnx")
    return tmp_path / "other.onnx"


def save_text_model(file, graph):
    """Write the model of a graph in ONNX's text format."""
    onnx.save(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 18]> one {graph}'), file)
    return file


@pytest.mark.slow
def test_bench_reports_times_and_memory_of_a_bundle(exported):
    result = bench_bundle(exported, **QUICK)
    (timing,) = result.timings
    assert timing.runs >= bench.MIN_ROUNDS
    assert 0 < timing.p5 <= timing.median <= timing.p95
    assert timing.rows_per_second == pytest.approx(result.rows / timing.median * 1e3)
    assert 0 < timing.model_memory < timing.peak_memory
    assert timing.file_size == (exported / "model.onnx").stat().st_size
    assert (result.threads, result.provider, result.ratio, result.differences) == (1, "cpu", None, None)
    assert result.environment.keys() >= {"processor", "cpus", "python", "onnxruntime", "numpy", "keras-attn"}
    assert json.loads(result.to_json())["timings"][0]["median"] == timing.median


@pytest.mark.slow
def test_bench_compares_with_another_file_on_user_inputs(exported, other_file):
    result = bench_bundle(exported, against=other_file, inputs=draw_small_inputs(B=5, Tk=11), **QUICK)
    first, second = result.timings
    assert (first.model, second.model) == (str(exported / "model.onnx"), str(other_file))
    assert first.runs == second.runs
    assert result.ratio == second.median / first.median
    assert result.differences == {"context": pytest.approx(2, rel=1e-5), "weights": 0}
    assert (result.rows, result.inputs, result.shapes["keys"]) == (5, "given", (5, 11, 6))


@pytest.mark.slow
def test_memory_of_the_model_excludes_this_process(tmp_path):
    ballast = np.ones(400 << 17)  # 400 MiB of this process, which must not count for the measured process
    megabytes = 96
    graph = "(float[1, 1] a) => (float[n, m] out) <int64[2] shape = {96, 262144}> { out = Expand(a, shape) }"
    model = save_text_model(tmp_path / "large.onnx", graph)
    memory = bench._measure_peak_memory(model, {"a": np.ones((1, 1), "float32")}, "cpu", 1)
    assert megabytes <= memory["model"] / 2**20 < 3 * megabytes
    assert memory["model"] < memory["process"] < ballast.nbytes


@pytest.mark.slow
def test_default_inputs_are_the_largest_golden_case_without_zeros_and_nan(tmp_path, exported):
    large_inputs = draw_small_inputs(B=9)
    zeros = {name: np.zeros_like(array) for name, array in large_inputs.items()}
    nan_inputs = large_inputs | {"values": np.full_like(large_inputs["values"], np.nan)}
    samples = {"zeros": zeros, "nan": nan_inputs, "small": draw_small_inputs(B=2), "numbers": draw_small_inputs(B=3)}
    (tmp_path / "parity").mkdir()
    outputs = load_cases(exported / CASES_FILE)[0].outputs
    cases = [Case(name, inputs, outputs) for name, inputs in samples.items()]
    for saved_cases, expected in ((cases, "numbers"), (cases[:2], "zeros")):
        save_cases(tmp_path / CASES_FILE, saved_cases)
        name, chosen_inputs = bench._choose_inputs(Bundle(tmp_path, read_manifest(exported)), None)
        assert name == f"golden case `{expected}`"
        assert all(np.array_equal(array, samples[expected][key]) for key, array in chosen_inputs.items())


def test_bench_refuses_another_file_with_other_inputs(exported, tmp_path):
    model = save_text_model(tmp_path / "neg.onnx", "(double[n] a) => (double[n] out) { out = Neg(a) }")
    message = r"must have the inputs of the bundle, `keys` float32\[2, 7, 6\], .* Received: `a` float64\[n\]\. "
    with pytest.raises(InputError, match=message):
        bench_bundle(exported, against=model, inputs=draw_small_inputs(), **QUICK)


def test_bench_refuses_bad_arguments(exported, tmp_path):
    (tmp_path / "text.onnx").write_text("no model")
    for error, message, arguments in (
        (InputError, "There is no file nowhere.onnx", {"against": "nowhere.onnx"}),
        (BundleError, r"cannot load .*text\.onnx", {"against": tmp_path / "text.onnx"}),
        (ExportError, "must be above 0. Received: 0 and 0.05", {"threads": 0}),
        (InputError, r"Inputs \['queries'", {"inputs": {}}),
        (ExportError, "must be above 0. Received: 1 and nan", {"seconds": float("nan")}),
    ):
        with pytest.raises(error, match=message):
            bench_bundle(exported, **{**QUICK, **arguments})
    with pytest.raises(BundleError, match="No bundle at"):
        bench_bundle(tmp_path, **QUICK)


@pytest.mark.slow
def test_bench_command_prints_a_table(exported, other_file, samples, succeeds):
    command = ("bench", exported, "--against", other_file, "--inputs", samples, "--seconds", "0.05", "--threads", "1")
    output = succeeds(*command)
    texts = ("samples.npz, 2 rows", "cpu, 1 threads", "onnxruntime ", "the bundle is faster")
    assert "`context` of the two models differ" in output
    assert all(text in output for text in texts), output
    for name, unit in (("median", "ms"), ("95th percentile", "ms"), ("throughput", "rows/s"), ("peak memory", "MB")):
        assert re.search(rf"(?m)^{name} +\S+ {unit} +\S+ {unit}", output), output
