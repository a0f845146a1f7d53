"""Bundles of every form and precision, replayed by `verify.mjs` in onnxruntime-node and in onnxruntime-web."""

import warnings

import keras
import pytest
from bundles import small_model
from export_models import boolean_and_causal_mask, per_query_lengths
from proof_models import integer_outputs

from keras_attn import DotProductAttention
from keras_attn_export import export_model
from keras_attn_export._standalone import verify
from web import VERIFY, Answers, node

pytest_plugins = ("bundle_fixtures",)
pytestmark = pytest.mark.web


def half_inputs_and_outputs():
    x = keras.Input((None, 4), name="x", dtype="float16")
    return keras.Model(x, DotProductAttention(name="context", dtype="float16")(x, x, x))


KINDS = {
    "fused float16": (small_model, {"lowering": "fused", "precision": "float16"}),
    "ragged int8, int64 input": (per_query_lengths, {"lowering": "ragged", "precision": "int8"}),
    "adaptive, weights outside": (small_model, {"lowering": "adaptive"}),
    "auto, boolean input": (boolean_and_causal_mask, {"lowering": "auto"}),
    "integer outputs": (integer_outputs, {"lowering": "portable"}),
    "half inputs and outputs": (half_inputs_and_outputs, {}),
}


@pytest.fixture(scope="module")
def bundles(exported, tmp_path_factory):
    """Return a bundle of each kind by its name."""
    folder = tmp_path_factory.mktemp("kinds")
    found = {"portable": exported}
    for name, (build, options) in KINDS.items():
        with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a softmax over one key
            if "outside" in name:
                patch.setattr("keras_attn_export._tracing.weights.LIMIT", 10)
                patch.setattr("keras_attn_export._tracing.weights.LARGE", 20)
            found[name] = export_model(build(), folder / name, **options).path
    return found


REPLAY = """
import { createRequire } from 'node:module'
const ort = createRequire(process.cwd() + '/x.js')('onnxruntime-node')

async function answer(bundle) {
  const manifest = await verify.checkManifest(fs.readFileSync(bundle + '/manifest.json', 'latin1'))
  const session = await ort.InferenceSession.create(bundle + '/model.onnx')
  const cases = await verify.readCases(new Uint8Array(fs.readFileSync(bundle + '/parity/cases.npz')))
  const seen = []
  const onCase = (one, rows, outputs) => { seen.push([one.name, rows.length, outputs.size]) }
  const rows = await verify.replay(ort, session, cases, manifest.parity.tolerance, { onCase })
  return { rows, seen, inputs: [...cases[0].inputs.values()].map((array) => array.dtype) }
}
"""


def test_every_kind_of_bundle_matches(bundles):
    answers = Answers(REPLAY)
    types = set()
    for name, bundle in bundles.items():
        answer = answers.ask(str(bundle))
        assert "error" not in answer, f"{name}: {answer}"
        rows, theirs = answer["rows"], verify.replay(bundle, verify.read_manifest(bundle))
        for row, other in zip(rows, theirs, strict=True):
            assert row["passed"], f"{name}: {row}"
            for key in ("case", "name", "shape", "dtype", "tolerance"):
                assert row[key] == other[key]
        cases = list(dict.fromkeys(row["case"] for row in rows))
        outputs = len(rows) // len(cases)
        assert answer["seen"] == [[case, outputs, outputs] for case in cases]
        types |= {*answer["inputs"], *(row["dtype"] for row in rows)}
    answers.close()
    assert types >= {"float16", "float32", "int32", "int64", "bool"}, types
    assert (bundles["adaptive, weights outside"] / "model.onnx.data").is_file()


WEB_RUNTIME = """
import * as ort from './node_modules/onnxruntime-web/dist/ort.node.min.mjs'
ort.env.wasm.numThreads = 1

async function answer(bundle) {
  const read = (name) => new Uint8Array(fs.readFileSync(`${bundle}/${name}`))
  const { parity } = await verify.checkManifest(new TextDecoder().decode(read('manifest.json')))
  const session = await ort.InferenceSession.create(read('model.onnx'), { executionProviders: ['wasm'] })
  return verify.replay(ort, session, await verify.readCases(read('parity/cases.npz')), parity.tolerance)
}
"""


def test_bundles_match_in_the_runtime_of_browsers(bundles):
    """Which is compiled to WebAssembly, and runs in Node too."""
    answers = Answers(WEB_RUNTIME)
    for name in "portable", "ragged int8, int64 input", "auto, boolean input", "half inputs and outputs":
        rows = answers.ask(str(bundles[name]))
        assert "error" not in rows, rows
        assert rows
        assert not [row for row in rows if not row["passed"]]
    answers.close()


def test_half_as_newer_javascript_has_it():
    """Node 24 gives `Float16Array`, which Node 20 lacks; here another array of two bytes stands for it."""
    answers = Answers("""
async function answer(bits) {
  const given = Int16Array.from([0, ...bits]).subarray(1)
  const { data, ...rest } = verify.fromTensor({ type: 'float16', dims: [2], data: given })
  return { ...rest, bits: data instanceof Uint16Array, numbers: Array.from(verify.numbers({ ...rest, data })) }
}
""")
    assert answers.ask([0x3C00, -0x4000]) == {"dtype": "float16", "shape": [2], "bits": True, "numbers": [1, -2]}
    answers.close()


def test_weights_outside_the_file_are_found(bundles):
    done = node(VERIFY, bundles["adaptive, weights outside"])
    assert (done.returncode, done.stderr) == (0, "")
