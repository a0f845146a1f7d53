"""MLServer, started as `keras-attn layout` says, gives Keras's outputs to NVIDIA's client and refuses what is wrong."""

import itertools
import json
import signal
import subprocess
import time
import urllib.request
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import keras
import numpy as np
import pytest
from bundles import PACKAGES, flip_byte
from onnx_bundles import COUNTING, ENDLESS, onnx_bundle
from serving import LOOPBACK, in_serving, serving_python, started
from text_models import of_texts

from keras_attn import AdditiveAttention
from keras_attn_export import export_model, load_bundle
from keras_attn_export._serving.layout import write_layout
from keras_attn_export._standalone import verify

pytestmark = pytest.mark.serving
pytest_plugins = ("bundle_fixtures",)

CLIENT = Path(__file__).with_name("v2_client.py")
WORDS, JSON = 11, {"Content-Type": "application/json"}
# What leaks grows in each part of the requests; the arenas of malloc and onnxruntime do in some, by up to 20 MB seen.
CLIENTS, PARTS, GROWTH = 8, 5, 2 * 2**20
DATATYPES = {"float32": "FP32", "int32": "INT32", "bool": "BOOL", "string": "BYTES"}


@pytest.fixture(scope="module")
def bundles(exported, tmp_path_factory):
    """Return two bundles by the names of their models; of `words`, ids and a boolean mask go in."""
    ids = keras.Input((None,), dtype="int32", name="ids")
    keep = keras.Input((None,), dtype="bool", name="keep")
    x = keras.layers.Embedding(WORDS, 6)(ids)
    context = AdditiveAttention(5)(x, x, x, attention_mask=keras.ops.expand_dims(keep, 1))
    outputs = {"context": context, "largest": keras.ops.max(context, axis=(1, 2))}  # one has no axis but the batch's
    words = keras.Model({"ids": ids, "keep": keep}, outputs, name="words")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {
            "small": load_bundle(exported),
            "words": export_model(words, tmp_path_factory.mktemp("words") / "bundle"),
            "texts": export_model(of_texts(), tmp_path_factory.mktemp("texts") / "bundle"),
        }


@pytest.fixture(scope="module")
def server(bundles, tmp_path_factory):
    """Return a server of both, in a repository with a space in its name."""
    folder = tmp_path_factory.mktemp("served")
    for bundle in bundles.values():
        layout = write_layout(bundle.path, folder / "my models", target="mlserver")
    with started(layout.command, folder) as server:
        assert server.ready(), server.log.read_text()[-3000:]
        yield server


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_while_a_model_computes_for_ever(tmp_path, number):
    kind = ("float32", ["batch"])
    bundle = onnx_bundle(tmp_path / "bundle", COUNTING, {"x": kind}, {"y": kind})
    layout = write_layout(bundle, tmp_path / "models", target="mlserver", name="endless")
    with ThreadPoolExecutor() as pool, started(layout.command, tmp_path) as server:
        assert server.ready(), server.log.read_text()[-3000:]
        body = json.dumps(of(tensor("x", "FP32", [1], [ENDLESS]))).encode()
        address = f"http://{server.address('HTTP')}/v2/models/endless/infer"
        asked = pool.submit(urllib.request.urlopen, urllib.request.Request(address, body, JSON))
        time.sleep(1)  # until it computes
        assert not asked.done()
        server.process.send_signal(number)
        server.process.wait(10)
        assert asked.exception()


def tensor(name, datatype, shape, data):
    return {"name": name, "datatype": datatype, "shape": shape, "data": data}


COLOUR = tensor("colour", "BYTES", [1, 1], ["red"])
TWO = tensor("numbers", "FP32", [1, 2], [0.5, 1.5])
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
    "texts": {
        "numbers for strings": (of(tensor("text", "INT32", [1], [1]), COLOUR, TWO), "not strings"),
        "disagreeing batch": (of(tensor("text", "BYTES", [2], ["a", "b"]), COLOUR, TWO), "has size 1 where"),
    },
    "small": {
        "wrong feature size": (of(QUERIES, tensor("keys", "FP32", [1, 2, 5], [0.5] * 10), VALUES, LENS), "keys"),
        "disagreeing batch": (of(QUERIES, KEYS, VALUES, tensor("valid_lens", "INT32", [2], [1, 1])), "`batch` is 1"),
        "disagreeing keys": (of(QUERIES, KEYS, tensor("values", "FP32", [1, 1, 5], [0.5] * 5), LENS), "keys_length"),
    },
}
# The same of `words` over HTTP alone, where a body can be anything.
NO_NUMBERS = "not numbers of its datatype"
BAD_JSON = {
    "broken JSON": ('{"inputs": [', "JSON decode error"),
    "no JSON object": ("[]", "valid dictionary"),
    "NaN": ('{"inputs": [{"name": "ids", "data": [NaN]}]}', "JSON decode error"),
    **{
        name: (json.dumps(of(IDS | ids, KEEP | keep)), said)
        for name, ids, keep, said in (
            ("unknown dtype", {"datatype": "INT3"}, {}, "datatype"),
            ("fraction", {"data": [1, 1.5, 3]}, {}, NO_NUMBERS),
            ("too large", {"data": [1, 2**32 + 1, 3]}, {}, NO_NUMBERS),
            ("text", {"data": ["1", "2", "3"]}, {}, NO_NUMBERS),
            ("truth as text", {}, {"data": ["no", "no", "no"]}, NO_NUMBERS),
            ("null", {}, {"data": [True, None, False]}, NO_NUMBERS),
            ("too few", {"data": [1, 2]}, {}, "reshape"),
            ("ragged", {"data": [[1, 2], [3]]}, {}, "inhomogeneous"),
            ("deep", {"data": json.loads("[" * 40 + "]" * 40)}, {}, NO_NUMBERS),
            ("many", {"data": [1] * (2**20 + 1)}, {}, "more than 1048576 numbers"),
            ("bytes", {"datatype": "BYTES", "data": ["a", "b", "c"]}, {}, NO_NUMBERS),
        )
    },
    "given twice": (json.dumps(of(IDS, KEEP, IDS | {"data": [3, 2, 1]})), "twice"),
}
HTTP = [400, 422]
REFUSED = [  # protocol, model, name, body, what is said, and the statuses
    (protocol, model, name, body if protocol == "grpc" else json.dumps(body), said, statuses)
    for protocol, statuses in (("grpc", ["StatusCode.INVALID_ARGUMENT"]), ("http", HTTP))
    for model, requests in BAD.items()
    for name, (body, said) in requests.items()
]
REFUSED += [("http", "words", name, body, said, HTTP) for name, (body, said) in BAD_JSON.items()]


@pytest.fixture
def ask(server, bundles, tmp_path):
    """Return a function that runs the client and gives what it was answered."""
    cases = {model: str(bundle.path / verify.CASES) for model, bundle in bundles.items()}
    bad = [(protocol, model, body) for protocol, model, _, body, *_ in REFUSED]
    job = {"http": server.address("HTTP"), "grpc": server.address("GRPC"), "cases": cases, "bad": bad}
    (tmp_path / "job.json").write_text(json.dumps(job))

    def run(action, number=0):
        out = tmp_path / f"{action}-{number}"
        in_serving(CLIENT, action, tmp_path / "job.json", out, timeout=120)
        answers = verify.read_arrays(out.with_suffix(".npz"))
        answers = {key: array.astype(object) if array.dtype.kind == "U" else array for key, array in answers.items()}
        return answers, json.loads(out.with_suffix(".json").read_text())

    return run


def outside_the_limits(bundles, answers):
    """Return what differs from Keras's outputs by more than `verify` allows."""
    wrong, grouped = [], {}
    for key, array in answers.items():
        answer, _, output = key.rpartition("/")
        grouped.setdefault(answer, {})[output] = array
    for answer, outputs in grouped.items():
        model, _, index = answer.split("/")
        bundle = bundles[model]
        case = verify.load_cases(bundle.path / verify.CASES)[int(index)]
        rows = verify.compare(case, outputs, bundle.manifest["parity"]["tolerance"])
        wrong += [f"{answer}: {row['name']} {row['problem']}" for row in rows if not row["passed"]]
    return wrong


def wrongly_refused(told):
    """Return what of the answers to bad requests is not as it should be."""
    return [
        (protocol, model, name, status, text)
        for (protocol, model, name, _, said, statuses), (status, text) in zip(REFUSED, told["refusals"], strict=True)
        if status not in statuses or said not in text
    ]


def test_golden_cases_over_both_protocols(ask, bundles):
    answers, told = ask("replay")
    assert outside_the_limits(bundles, answers) == []
    wanted = {
        f"{model}/{protocol}/{index}"
        for model, bundle in bundles.items()
        for index in range(len(verify.load_cases(bundle.path / verify.CASES)))
        for protocol in ("grpc", "http")
    }
    assert len(wanted - {key.rpartition("/")[0] for key in answers}) == len(told["left_out"])
    assert told["left_out"] == [["http", "small", "poisoned padding"]]  # JSON has no NaN
    key = next(key for key in answers if key.startswith("words/grpc/") and key.endswith("/largest"))
    assert len(outside_the_limits(bundles, answers | {key: answers[key] + np.float32(1e-3)})) == 1
    assert len(outside_the_limits(bundles, {key: answers[key]})) == 1, "an output is missing"
    for protocol, model, side in itertools.product(("http", "grpc"), bundles, ("inputs", "outputs")):
        specs = bundles[model].manifest[side]
        shapes = [[-1 if isinstance(size, str) else size for size in spec["shape"]] for spec in specs]
        metadata = told["metadata"][protocol][model][side]
        assert [each["name"] for each in metadata] == [spec["name"] for spec in specs]
        assert [each["datatype"] for each in metadata] == [DATATYPES[spec["dtype"]] for spec in specs]
        assert [[*map(int, each["shape"])] for each in metadata] == shapes


def test_bad_requests_are_refused_in_a_sentence(ask):
    assert wrongly_refused(ask("bad")[1]) == []


def test_serving_needs_nothing_of_ours():
    code = (
        f"from importlib.util import find_spec; print([name for name in {[*PACKAGES, 'mlserver']} if find_spec(name)])"
    )
    assert subprocess.check_output([serving_python(), "-P", "-c", code], text=True) == "['mlserver']\n"


def test_it_listens_on_this_machine_alone(server):
    found = server.listening()
    assert set(found) == set(server.ports)
    assert set(found.values()) <= LOOPBACK


def test_many_clients_at_once(ask, bundles, server):
    """Each gets its own answers, and memory does not grow with every request."""
    sizes = []
    with ThreadPoolExecutor(CLIENTS) as pool:
        for _ in range(PARTS):
            jobs = [pool.submit(ask, "bad" if number % 4 == 3 else "replay", number) for number in range(CLIENTS)]
            for job in jobs:
                answers, told = job.result()
                assert outside_the_limits(bundles, answers) == []
                assert "refusals" not in told or wrongly_refused(told) == []
            sizes.append(server.resident())
    least = min(after - before for before, after in itertools.pairwise(sizes))
    assert least < GROWTH, f"memory grows with every request: {sizes}"
    assert server.ready()


@pytest.mark.parametrize(
    ("provider", "said"),
    [("cpu", "bundle/model.onnx is not the file that was exported."), ("cuda", "CUDAExecutionProvider")],
)
def test_an_altered_file_is_not_served_nor_another_provider_than_asked(exported, tmp_path, provider, said):
    layout = write_layout(exported, tmp_path / "models", target="mlserver", provider=provider)
    if provider == "cpu":
        flip_byte(layout.folder / "bundle" / "model.onnx")
    with started(layout.command, tmp_path, wait=15) as server:
        assert not server.ready("/v2/models/small/ready")
        assert said in server.log.read_text()
