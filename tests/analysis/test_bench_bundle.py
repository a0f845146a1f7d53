"""`bench`: what is timed, on what, how fairly two models share the time, and what their memory is."""

import json
import re

import numpy as np
import onnx
import onnx.parser
import pytest
from bundles import read_manifest, small_inputs
from onnx import helper

from keras_attn_export import Bundle, BundleError, ExportError, InputError
from keras_attn_export._analysis import bench_bundle as bench
from keras_attn_export._analysis.bench_bundle import bench_bundle
from keras_attn_export._standalone import verify
from keras_attn_export._standalone.verify import Case, Spec

QUICK = {"seconds": 0.05, "threads": 1}


@pytest.fixture
def other(exported, tmp_path):
    """Return an ONNX file with the bundle's inputs whose output `context` is 2 higher."""
    model = onnx.load(exported / "model.onnx")
    (product,) = (node for node in model.graph.node if "context" in node.output)
    product.output[0] = "before"
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.float32(2), "two"))
    model.graph.node.append(helper.make_node("Add", ["before", "two"], ["context"]))
    onnx.save(model, tmp_path / "other.onnx")
    return tmp_path / "other.onnx"


def saved(file, graph):
    """Write a model that stands as text."""
    onnx.save(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 18]> one {graph}'), file)
    return file


@pytest.mark.slow
def test_one_bundle(exported):
    result = bench_bundle(exported, **QUICK)
    (timing,) = result.timings
    assert timing.runs >= bench.FEWEST_RUNS
    assert 0 < timing.p5 <= timing.median <= timing.p95
    assert timing.rows_per_second == pytest.approx(result.rows / timing.median * 1e3)
    assert 0 < timing.model_memory < timing.peak_memory
    assert timing.file_size == (exported / "model.onnx").stat().st_size
    assert (result.threads, result.provider, result.ratio, result.differences) == (1, "cpu", None, None)
    assert result.environment.keys() >= {"processor", "cpus", "python", "onnxruntime", "numpy", "keras-attn"}
    assert json.loads(result.to_json())["timings"][0]["median"] == timing.median


@pytest.mark.slow
def test_against_another_file(exported, other):
    bench = bench_bundle(exported, against=other, **QUICK)
    ours, theirs = bench.timings
    assert (ours.model, theirs.model) == (str(exported / "model.onnx"), str(other))
    assert ours.runs == theirs.runs
    assert bench.ratio == theirs.median / ours.median
    assert bench.differences == {"context": pytest.approx(2, rel=1e-5), "weights": 0}


@pytest.mark.slow
def test_memory_is_that_of_the_model_and_not_of_this_process(tmp_path):
    held = np.ones(400 << 17)  # 400 MiB here, which a process started from here must not be blamed for
    megabytes = 96
    graph = "(float[1, 1] a) => (float[n, m] out) <int64[2] shape = {96, 262144}> { out = Expand(a, shape) }"
    model = saved(tmp_path / "large.onnx", graph)
    measured = bench._peak_memory(model, {"a": np.ones((1, 1), "float32")}, "cpu", 1)
    assert megabytes <= measured["model"] / 2**20 < 3 * megabytes
    assert measured["model"] < measured["process"] < held.nbytes


@pytest.mark.slow
def test_a_model_that_fails_where_memory_is_measured(tmp_path):
    model = saved(tmp_path / "model.onnx", "(float[2] a) => (float[2] out) { out = Neg(a) }")
    with pytest.raises(ExportError, match=r"not in a fresh process that measures its memory: .*cannot run the model"):
        bench._peak_memory(model, {"a": np.ones(3, "float32")}, "cpu", 1)


def test_the_largest_golden_case_is_the_default_and_zeros_and_poison_are_not_chosen(tmp_path, exported):
    large = small_inputs(B=9)
    zeros = {name: np.zeros_like(array) for name, array in large.items()}
    poisoned = large | {"values": np.full_like(large["values"], np.nan)}
    made = {"zeros": zeros, "poisoned": poisoned, "small": small_inputs(B=2), "numbers": small_inputs(B=3)}
    (tmp_path / "parity").mkdir()
    outputs = verify.load_cases(exported / verify.CASES)[0].outputs
    cases = [Case(name, inputs, outputs) for name, inputs in made.items()]
    for of_these, wanted in ((cases, "numbers"), (cases[:2], "zeros")):
        verify.save_cases(tmp_path / verify.CASES, of_these)
        name, chosen = bench._chosen_inputs(Bundle(tmp_path, read_manifest(exported)), None)
        assert name == f"golden case `{wanted}`"
        assert all(np.array_equal(array, made[wanted][key]) for key, array in chosen.items())


@pytest.mark.slow
def test_given_inputs(exported):
    bench = bench_bundle(exported, inputs=small_inputs(B=5, Tk=11), **QUICK)
    assert (bench.rows, bench.inputs, bench.shapes["keys"]) == (5, "given", (5, 11, 6))
    with pytest.raises(InputError, match=r"Inputs \['queries'"):
        bench_bundle(exported, inputs={}, **QUICK)


@pytest.mark.parametrize(
    ("shapes", "rows"),
    [([["batch", 3]], 7), ([[4, 3], ["batch", 2]], 7), ([[], [4, 3]], 4), ([[]], 1), ([], 1)],
)
def test_rows(shapes, rows):
    specs = [Spec(str(index), "float32", tuple(shape)) for index, shape in enumerate(shapes)]
    arrays = [np.zeros([7 if size == "batch" else size for size in shape]) for shape in shapes]
    assert bench._rows(specs, {str(index): array for index, array in enumerate(arrays)}) == rows


def test_another_file_must_take_the_same_inputs(exported, other, tmp_path):
    model = saved(tmp_path / "neg.onnx", "(double[n] a) => (double[n] out) { out = Neg(a) }")
    said = r"must take the bundle's inputs, `keys` float32\[2, 7, 6\], .* It takes `a` float64\[n\]\. "
    with pytest.raises(InputError, match=said):
        bench_bundle(exported, against=model, inputs=small_inputs(), **QUICK)
    fixed = onnx.load(other)
    fixed.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 3
    onnx.save(fixed, other)
    said = r"`queries` float32\[2, 3, 4\].* It takes .*`queries` float32\[3, queries_length, 4\]"
    with pytest.raises(InputError, match=said):
        bench_bundle(exported, against=other, inputs=small_inputs(), **QUICK)


def test_what_cannot_be_timed(exported, tmp_path):
    (tmp_path / "text.onnx").write_text("no model")
    for error, said, arguments in (
        (InputError, "There is no file nowhere.onnx", {"against": "nowhere.onnx"}),
        (BundleError, r"cannot load .*text\.onnx", {"against": tmp_path / "text.onnx"}),
        (ExportError, "must be above 0. Received: 0 and 0.05", {"threads": 0}),
        (ExportError, "must be above 0. Received: 1 and 0", {"seconds": 0}),
        (ExportError, "must be above 0. Received: 1 and nan", {"seconds": float("nan")}),
    ):
        with pytest.raises(error, match=said):
            bench_bundle(exported, **{**QUICK, **arguments})
    with pytest.raises(BundleError, match="No bundle at"):
        bench_bundle(tmp_path, **QUICK)


@pytest.mark.slow
def test_the_command_prints_a_table(exported, other, samples, succeeds):
    command = ("bench", exported, "--against", other, "--inputs", samples, "--seconds", "0.05", "--threads", "1")
    printed = succeeds(*command)
    said = ("samples.npz, 2 rows", "cpu, 1 threads", "onnxruntime ", "the bundle is faster", "`context` differ")
    assert all(each in printed for each in said), printed
    for name, unit in (("median", "ms"), ("95th percentile", "ms"), ("throughput", "rows/s"), ("peak memory", "MB")):
        assert re.search(rf"(?m)^{name} +\S+ {unit} +\S+ {unit}", printed), printed


@pytest.mark.slow
def test_the_command_prints_json_and_fails_in_one_line(exported, succeeds, fails):
    command = ("bench", exported, "--seconds", "0.05", "--json")
    content = json.loads(succeeds(*command))
    assert content["bundle"] == str(exported)
    assert len(content["timings"]) == 1
    fails(*command, "--against", "nowhere.onnx", said="error: There is no file nowhere.onnx.")
