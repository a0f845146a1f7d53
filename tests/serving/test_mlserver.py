"""MLServer, started as `keras-attn layout` says, gives Keras's outputs to NVIDIA's client and refuses what is wrong."""

import itertools
import json
import shutil
import subprocess
import warnings
from collections import Counter
from pathlib import Path

import keras
import numpy as np
import pytest
from bundles import flip_byte
from serving import LOOPBACK, in_serving, serving_python, started

from keras_attn import AdditiveAttention
from keras_attn_export import export_model, load_bundle
from keras_attn_export._serving.layout import write_layout
from keras_attn_export._standalone import verify

pytestmark = pytest.mark.serving
pytest_plugins = ("bundle_fixtures",)

CLIENT = Path(__file__).with_name("v2_client.py")
WORDS = 11
# What leaks grows in each part of the requests; the arenas of malloc and onnxruntime do in some, by up to 20 MB seen.
PARTS, GROWTH = 4, 2 * 2**20


def words_model():
    """Return a model of ids and a boolean mask, with an output that has no axis but the batch's."""
    ids = keras.Input((None,), dtype="int32", name="ids")
    keep = keras.Input((None,), dtype="bool", name="keep")
    x = keras.layers.Embedding(WORDS, 6)(ids)
    context = AdditiveAttention(5)(x, x, x, attention_mask=keras.ops.expand_dims(keep, 1))
    outputs = {"context": context, "largest": keras.ops.max(context, axis=(1, 2))}
    return keras.Model({"ids": ids, "keep": keep}, outputs, name="words")


@pytest.fixture(scope="module")
def bundles(exported, tmp_path_factory):
    """Return two bundles by the names of their models."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        words = export_model(words_model(), tmp_path_factory.mktemp("words") / "bundle").path
    return {"small": load_bundle(exported), "words": load_bundle(words)}


@pytest.fixture(scope="module")
def server(bundles, tmp_path_factory):
    """Return a server of both, in a repository with a space in its name."""
    folder = tmp_path_factory.mktemp("served")
    for bundle in bundles.values():
        layout = write_layout(bundle.path, folder / "my models", target="mlserver")
    with started(layout.command, folder) as server:
        assert server.ready(), server.log.read_text()[-3000:]
        yield server


def tensor(name, datatype, shape, data):
    return {"name": name, "datatype": datatype, "shape": shape, "data": data}


IDS = tensor("ids", "INT32", [1, 3], [1, 2, 3])
KEEP = tensor("keep", "BOOL", [1, 3], [True, True, False])
QUERIES = tensor("queries", "FP32", [1, 1, 4], [0.5] * 4)
KEYS = tensor("keys", "FP32", [1, 2, 6], [0.5] * 12)
VALUES = tensor("values", "FP32", [1, 2, 5], [0.5] * 10)
LENS = tensor("valid_lens", "INT32", [1], [2])


def of(*inputs, **more):
    return {"inputs": [*inputs], **more}


# What is refused, and what is said of it, over both protocols.
BAD = {
    "words": {
        "unknown input": (of(IDS, KEEP, IDS | {"name": "idz"}), "idz"),
        "missing input": (of(IDS), "keep"),
        "wrong rank": (of(tensor("ids", "INT32", [3], [1, 2, 3]), KEEP), "rank"),
        "wrong dtype": (of(tensor("ids", "FP32", [1, 3], [1.0, 2.0, 3.0]), KEEP), "data type"),
        "wider dtype": (of(tensor("ids", "INT64", [1, 3], [1, 2, 3]), KEEP), "data type"),
        "id out of range": (of(tensor("ids", "INT32", [1, 3], [1, WORDS, 3]), KEEP), "out of data bounds"),
        "disagreeing lengths": (of(IDS, tensor("keep", "BOOL", [1, 1], [True])), "has size 1 where"),
        "unknown output": (of(IDS, KEEP, outputs=[{"name": "smallest"}]), "smallest"),
    },
    "small": {
        "wrong feature size": (of(QUERIES, tensor("keys", "FP32", [1, 2, 5], [0.5] * 10), VALUES, LENS), "keys"),
        "disagreeing batch": (of(QUERIES, KEYS, VALUES, tensor("valid_lens", "INT32", [2], [1, 1])), "`batch` is 1"),
        "disagreeing keys": (of(QUERIES, KEYS, tensor("values", "FP32", [1, 1, 5], [0.5] * 5), LENS), "keys_length"),
    },
}
# The same over HTTP alone, where a body can be anything.
BAD_JSON = {
    "words": {
        "broken JSON": ('{"inputs": [', "JSON decode error"),
        "no JSON object": ("[]", "valid dictionary"),
        "NaN": ('{"inputs": [{"name": "ids", "data": [NaN]}]}', "JSON decode error"),
        "unknown dtype": (json.dumps(of(IDS | {"datatype": "INT3"}, KEEP)), "datatype"),
        "given twice": (json.dumps(of(IDS, KEEP, IDS | {"data": [3, 2, 1]})), "twice"),
        "fraction": (json.dumps(of(IDS | {"data": [1, 1.5, 3]}, KEEP)), "not numbers of its datatype"),
        "too large": (json.dumps(of(IDS | {"data": [1, 2**32 + 1, 3]}, KEEP)), "not numbers of its datatype"),
        "text": (json.dumps(of(IDS | {"data": ["1", "2", "3"]}, KEEP)), "not numbers of its datatype"),
        "truth as text": (json.dumps(of(IDS, KEEP | {"data": ["no", "no", "no"]})), "not numbers of its datatype"),
        "null": (json.dumps(of(IDS, KEEP | {"data": [True, None, False]})), "not numbers of its datatype"),
        "too few": (json.dumps(of(IDS | {"data": [1, 2]}, KEEP)), "reshape"),
        "ragged": (json.dumps(of(IDS | {"data": [[1, 2], [3]]}, KEEP)), "inhomogeneous"),
        "bytes": (
            json.dumps(of(IDS | {"datatype": "BYTES", "data": ["a", "b", "c"]}, KEEP)),
            "not numbers of its datatype",
        ),
    },
    "small": {},
}


@pytest.fixture
def ask(server, bundles, tmp_path):
    """Return a function that runs the client and gives what it was answered."""

    def run(action, timeout=120, **more):
        models = {
            model: {
                "cases": str(bundle.path / verify.CASES),
                "bad": {name: request for name, (request, _) in BAD[model].items()},
                "bad_json": {name: body for name, (body, _) in BAD_JSON[model].items()},
            }
            for model, bundle in bundles.items()
        }
        job = {"http": server.address("HTTP"), "grpc": server.address("GRPC"), "models": models, **more}
        (tmp_path / "job.json").write_text(json.dumps(job))
        in_serving(CLIENT, action, tmp_path / "job.json", tmp_path / "out", timeout=timeout)
        return verify.read_arrays(tmp_path / "out.npz"), json.loads((tmp_path / "out.json").read_text())

    return run


def grouped(answers):
    """Return arrays by output, of each answer."""
    found = {}
    for key, array in answers.items():
        answer, _, output = key.rpartition("/")
        found.setdefault(answer, {})[output] = array
    return found


def outside_the_limits(bundles, answers):
    """Return what differs from Keras's outputs by more than `verify` allows."""
    wrong = []
    for answer, outputs in grouped(answers).items():
        model, _, index, _ = answer.split("/")
        bundle = bundles[model]
        case = verify.load_cases(bundle.path / verify.CASES)[int(index)]
        rows = verify.compare(case, outputs, bundle.manifest["parity"]["tolerance"])
        wrong += [f"{answer}: {row['name']} {row['problem']}" for row in rows if not row["passed"]]
    return wrong


def finite(case):
    return all(np.isfinite(array).all() for array in case.inputs.values() if array.dtype.kind == "f")


def test_golden_cases_over_both_protocols(ask, bundles):
    answers, told = ask("replay")
    assert outside_the_limits(bundles, answers) == []
    wanted, left_out = set(), []
    for model, bundle in bundles.items():
        for index, case in enumerate(verify.load_cases(bundle.path / verify.CASES)):
            protocols = ("grpc", "http") if finite(case) else ("grpc",)
            wanted |= {f"{model}/{protocol}/{index}/0" for protocol in protocols}
            left_out += [["http", model, case.name]] if not finite(case) else []
    assert set(grouped(answers)) == wanted
    assert told["left_out"] == left_out == [["http", "small", "poisoned padding"]]  # JSON has no NaN


def test_what_is_judged_can_be_wrong(ask, bundles):
    answers, _ = ask("replay")
    key = next(key for key in answers if key.startswith("words/grpc/") and key.endswith("/largest"))
    assert len(outside_the_limits(bundles, answers | {key: answers[key] + np.float32(1e-3)})) == 1
    assert len(outside_the_limits(bundles, {key: answers[key]})) == 1, "an output is missing"


def test_metadata_is_the_manifests(ask, bundles):
    names = {"float32": "FP32", "int32": "INT32", "bool": "BOOL"}
    metadata = ask("replay")[1]["metadata"]
    for model, bundle in bundles.items():
        for side in ("inputs", "outputs"):
            wanted = [
                (s["name"], names[s["dtype"]], [-1 if isinstance(n, str) else n for n in s["shape"]])
                for s in bundle.manifest[side]
            ]
            for protocol in ("http", "grpc"):
                told = metadata[protocol][model][side]
                assert [(s["name"], s["datatype"], [*map(int, s["shape"])]) for s in told] == wanted


def test_bad_requests_are_refused_in_a_sentence(ask):
    refusals = ask("bad")[1]["refusals"]
    said = {(protocol, model, name): (status, text) for protocol, model, name, status, text in refusals}
    for model in BAD:
        for name, (_, words) in {**BAD[model], **BAD_JSON[model]}.items():
            status, text = said.pop(("http", model, name))
            assert status in (400, 422), (name, text)
            assert words in text, (name, text)
        for name, (_, words) in BAD[model].items():
            status, text = said.pop(("grpc", model, name))
            assert status == "StatusCode.INVALID_ARGUMENT", (name, text)
            assert words in text, (name, text)
    assert said == {}


def test_serving_needs_nothing_of_ours():
    names = ("tensorflow", "keras", "keras_attn", "keras_attn_export", "onnx", "mlserver")
    code = f"import importlib.util as found; print(*(name for name in {names} if found.find_spec(name)))"
    done = subprocess.run([serving_python(), "-P", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["mlserver"]


def test_it_listens_on_this_machine_alone(server):
    found = server.listening()
    assert set(found) == set(server.ports)
    assert set(found.values()) <= LOOPBACK


def test_many_clients_at_once(ask, bundles, server, request):
    count = request.config.getoption("--requests") // PARTS
    ask("load", requests=600)  # until what grows with the number of clients has grown
    sizes, answered, refused = [server.resident()], Counter(), Counter()
    for _ in range(PARTS):
        answers, told = ask("load", timeout=60 + count / 10, requests=count)
        sizes.append(server.resident())
        assert told["failures"] == []
        assert outside_the_limits(bundles, answers) == []
        for protocol, model, name, status, text, times in told["refusals"]:
            _, words = {**BAD[model], **BAD_JSON[model]}[name]
            assert status in (400, 422, "StatusCode.INVALID_ARGUMENT"), (protocol, name, status, text)
            assert words in text
            refused[protocol] += times
        answered.update(told["answered"])
    print(f"answered {dict(answered)}, refused {dict(refused)}, memory in MB {[size // 2**20 for size in sizes]}")
    assert sum(refused.values()) + sum(answered.values()) == PARTS * count
    assert min(refused.values()) > PARTS * count / 20
    assert min(answered.values()) > PARTS * count / 4
    least = min(after - before for before, after in itertools.pairwise(sizes))
    assert least < GROWTH, f"memory grows with every request: {sizes}"
    assert server.ready()


def test_an_altered_file_is_not_served(exported, tmp_path):
    layout = write_layout(exported, tmp_path / "models", target="mlserver")
    shutil.copytree(layout.folder, tmp_path / "models" / "altered")
    settings = tmp_path / "models" / "altered" / "model-settings.json"
    settings.write_text(settings.read_text().replace('"small"', '"altered"'))
    flip_byte(tmp_path / "models" / "altered" / "bundle" / "model.onnx")
    with started(layout.command, tmp_path, wait=15) as server:
        assert not server.ready("/v2/models/altered/ready")
        assert "bundle/model.onnx is not the file that was exported." in server.log.read_text()


def test_a_provider_that_is_absent_is_not_replaced(exported, tmp_path):
    layout = write_layout(exported, tmp_path / "models", target="mlserver", provider="cuda")
    with started(layout.command, tmp_path, wait=15) as server:
        assert not server.ready("/v2/models/small/ready")
        assert "CUDAExecutionProvider" in server.log.read_text()
