"""Bundles of every form and precision, replayed by `verify.mjs` in onnxruntime-node and in onnxruntime-web."""

import warnings

import keras
import pytest
from bundles import read_manifest, small_model
from export_models import boolean_and_causal_mask, per_query_lengths
from proof_models import integer_outputs
from text_models import of_texts

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
    "int8, int64 input": (per_query_lengths, {"precision": "int8"}),
    "adaptive, weights outside": (small_model, {"lowering": "adaptive"}),
    "boolean input": (boolean_and_causal_mask, {}),
    "integer outputs": (integer_outputs, {"lowering": "portable"}),
    "half inputs and outputs": (half_inputs_and_outputs, {}),
    "strings": (of_texts, {}),
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
                patch.setattr("keras_attn_export._graphs.external_data.LIMIT", 10)
                patch.setattr("keras_attn_export._tracing.weights.LARGE", 20)
            found[name] = export_model(build(), folder / name, **options).path
    return found


RUNTIMES = {  # what loads it, what opens a model, and which kinds it runs
    "onnxruntime-node": (
        "import { createRequire } from 'node:module'\n"
        "const ort = createRequire(process.cwd() + '/x.js')('onnxruntime-node')",
        "bundle + '/model.onnx'",
        ("portable", *KINDS),
    ),
    "onnxruntime-web, which is compiled to WebAssembly": (
        "import * as ort from './node_modules/onnxruntime-web/dist/ort.node.min.mjs'\nort.env.wasm.numThreads = 1",
        "new Uint8Array(fs.readFileSync(bundle + '/model.onnx')), { executionProviders: ['wasm'] }",
        ("portable", "int8, int64 input", "boolean input", "half inputs and outputs", "strings"),
    ),
}
REPLAY = """
LOADED

async function answer(bundle) {
  const manifest = await verify.checkManifest(fs.readFileSync(bundle + '/manifest.json', 'latin1'))
  const session = await ort.InferenceSession.create(MODEL)
  const cases = await verify.readCases(new Uint8Array(fs.readFileSync(bundle + '/parity/cases.npz')))
  const seen = []
  const onCase = (one, rows, outputs) => { seen.push([one.name, rows.length, outputs.size]) }
  const rows = await verify.replay(ort, session, cases, manifest.parity.tolerance, { onCase })
  return { rows, seen, inputs: [...cases[0].inputs.values()].map((array) => array.dtype) }
}
"""


@pytest.mark.parametrize(("loaded", "model", "kinds"), RUNTIMES.values(), ids=RUNTIMES)
def test_every_kind_of_bundle_matches(bundles, loaded, model, kinds):
    answers = Answers(REPLAY.replace("LOADED", loaded).replace("MODEL", model))
    types = set()
    for name in kinds:
        answer, theirs = answers.ask(str(bundles[name])), verify.replay(bundles[name], read_manifest(bundles[name]))
        assert "error" not in answer, f"{name}: {answer}"
        for row, other in zip(answer["rows"], theirs, strict=True):
            assert row["passed"], f"{name}: {row}"
            for key in ("case", "name", "shape", "dtype", "tolerance"):
                assert row[key] == other[key]
        cases = list(dict.fromkeys(row["case"] for row in theirs))
        outputs = len(theirs) // len(cases)
        assert answer["seen"] == [[case, outputs, outputs] for case in cases]
        types |= {*answer["inputs"], *(row["dtype"] for row in theirs)}
    answers.close()
    assert types >= {"float16", "float32", "int32", "int64", "bool", "string"}, types


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
    assert (bundles["adaptive, weights outside"] / "model.onnx.data").is_file()
    done = node(VERIFY, bundles["adaptive, weights outside"])
    assert (done.returncode, done.stderr) == (0, "")
