"""`examples/serve_bundle.py`, which docs/serving.md shows, as a process of its own: golden cases, bad requests, load.

It runs where neither TensorFlow nor Keras nor this package is installed; this process is its client, and judges.
"""

import json
import random
import re
import runpy
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pyarrow.parquet as pq
import pytest
from bundle_service import GOOD, ROOT, answer, running, start
from small_bundle import assert_one_line, flip_byte, read_manifest

from keras_attn import AdditiveAttention
from keras_attn_export import export_model
from keras_attn_export._format.cases import load_cases
from keras_attn_export._format.compare import compare
from keras_attn_export._format.dtypes import numpy_dtype
from keras_attn_export._format.names import CASES, Case

pytestmark = [pytest.mark.nightly, pytest.mark.needs("serving")]


CLIENTS = 16
# 127.0.0.1 as /proc/net writes it, and as an address of IPv6
LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F"}
MOST_GROWTH = 4 * 2**20  # bytes of memory that two thirds of the requests may add; none was seen


@pytest.fixture(scope="module")
def service(exported, tmp_path_factory):
    with running(tmp_path_factory.mktemp("service"), exported) as server:
        yield server


@pytest.fixture(scope="module")
def tokens(tmp_path_factory):
    """Return a service of a model with ids and a boolean mask, whole numbers beside floats, and one that overflows."""
    ids = keras.Input((None,), dtype="int32", name="ids")
    seen = keras.Input((None, None), dtype="bool", name="seen")
    gain = keras.Input((), name="gain")
    embedded = keras.layers.Embedding(11, 6)(ids)
    context = AdditiveAttention(4, name="attention")(embedded, embedded, embedded, attention_mask=seen)
    outputs = {"context": context, "largest": keras.ops.argmax(context, axis=-1), "odds": keras.ops.exp(gain)}
    model = keras.Model([ids, seen, gain], outputs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a softmax over one key
        bundle = export_model(model, tmp_path_factory.mktemp("tokens") / "bundle").path
    with running(tmp_path_factory.mktemp("service"), bundle) as server:
        yield server


def cases_of(bundle: Path) -> tuple[list[Case], list[Case]]:
    """Return the golden cases that JSON has words for, and the others: NaN or infinity goes in or comes out."""
    split: tuple[list[Case], list[Case]] = [], []
    for case in load_cases(bundle / CASES):
        arrays = (*case.inputs.values(), *case.outputs.values())
        finite = all(array.dtype == object or np.isfinite(array).all() for array in arrays)
        split[not finite].append(case)
    return split


# By service, those whose padding is NaN, and those in which an exponential overflows.
BEYOND_JSON = {"service": ["poisoned padding"], "tokens": ["large values"]}


def body_of(case: Case) -> bytes:
    return json.dumps({name: array.tolist() for name, array in case.inputs.items()}).encode()


def mismatches(service, case: Case, content: bytes) -> list[str]:
    """Compare an answer with what Keras gave, within the limits of `verify`."""
    manifest = read_manifest(service.bundle)
    dtypes = {spec["name"]: spec["dtype"] for spec in manifest["outputs"]}
    actual = {name: np.array(value, numpy_dtype(dtypes[name])) for name, value in json.loads(content).items()}
    rows = compare(case, actual, manifest["parity"]["tolerance"])
    return [f"{row['case']}, {row['name']}: {row['problem']}" for row in rows if not row["passed"]]


FLOATS, INTEGERS = "finite numbers that fit float32", "finite numbers that fit int32"
# Changes of a good request or other bodies, and messages of the answers.
CHANGED: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown input": ({"mask": [1]}, "['queries', 'keys', 'values', 'valid_lens'] and nothing else"),
    "a wrong rank": ({"keys": [[1.0]]}, "`keys` must have shape ['batch', 'keys_length', 6]"),
    "other lengths": ({"values": np.ones((2, 4, 5)).tolist()}, "'keys_length': 2"),
    "too long": ({"queries": np.ones((2, 4097, 4), int).tolist()}, "'queries_length': 4097"),
    "rows of unequal lengths": ({"keys": [[[1.0] * 6], [[1.0] * 6] * 2]}, "Pad them"),
    "floats for integers": ({"valid_lens": [1.5, 2.0]}, INTEGERS),
    "integers that wrap round": ({"valid_lens": [2**32 + 1, 2**32]}, INTEGERS),
    "null": ({"valid_lens": [None, None]}, f"{INTEGERS}. Received: None."),
    **{str(each): ({"queries": np.full((2, 3, 4), each).tolist()}, FLOATS) for each in (1e39, np.nan)},
}
BAD: dict[str, tuple[Any, str]] = {
    "no JSON": (b'{"queries": [[', "Expecting value"),
    "deep": (b"[" * 100_000, "recursion"),
    "a list": ([1, 2], "A request is a JSON object with the inputs"),
    "an input too few": ({key: GOOD[key] for key in ("queries", "keys", "values")}, "and nothing else"),
    **{name: (GOOD | change, said) for name, (change, said) in CHANGED.items()},
}


def told(answered: tuple[int, bytes]) -> str:
    """Return what the answer to a request says that is refused."""
    status, content = answered
    assert status == 422
    return json.loads(content)["detail"]


@pytest.mark.parametrize("which", ["service", "tokens"])
def test_golden_cases_match_over_http(which, request):
    service = request.getfixturevalue(which)
    cases, beyond_json = cases_of(service.bundle)
    assert len(cases) >= 10
    for case in cases:
        status, content = service.ask(body_of(case))
        assert (status, mismatches(service, case, content)) == (200, []), content[:300]
    assert [case.name for case in beyond_json] == BEYOND_JSON[which]
    for case in beyond_json:
        status, content = service.ask(body_of(case))
        assert status in (200, 422)
        assert re.search("must hold finite numbers|holds NaN or infinity", content.decode())


def test_service_gives_the_rows_that_predict_writes(tmp_path, monkeypatch):
    """The penguins of docs/howto/text-and-tables.md."""
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(ROOT / "examples" / "penguins.py"))
    folders = (tmp_path, tmp_path / "predictions")
    rows, predictions = (pq.read_table(folder / "penguins.parquet").to_pydict() for folder in folders)
    names = [spec["name"] for spec in read_manifest(Path("bundle"))["inputs"]]
    request = {name: [[value] for value in rows[name]] for name in names}
    (tmp_path / "service").mkdir()
    (page_request,) = re.findall(
        r"--json '(\{.*?\})'", (ROOT / "docs/howto/text-and-tables.md").read_text("utf-8"), re.DOTALL
    )
    with running(tmp_path / "service", tmp_path / "bundle") as server:
        (status, content), shown = server.ask(request), server.ask(page_request.encode())
    assert (shown[0], json.loads(shown[1])["species"]) == (200, ["Gentoo"])
    assert (status, json.loads(content)["species"]) == (200, predictions["species"])
    assert len({*predictions["species"]}) > 1


def test_health_names_the_bundle_and_only_this_machine_is_served(service):
    with service.connection() as connection:
        connection.request("GET", "/health")
        came = connection.getresponse()
        health = json.loads(came.read())
    manifest = read_manifest(service.bundle)
    assert came.status == 200
    assert health == {key: manifest[key] for key in ("model", "manifest_sha256", "inputs", "outputs")}
    assert service.listening() in [{address} for address in LOOPBACK]


@pytest.mark.parametrize(("body", "said"), BAD.values(), ids=BAD)
def test_bad_requests_are_refused_with_a_reason(service, body, said):
    assert said in told(service.ask(body))


IDS = {"ids": [[1, 2, 3]], "seen": np.ones((1, 3, 3), bool).tolist(), "gain": [1]}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"ids": [[1, 2, 11]]}, "The model cannot run on this: indices element out of data bounds, idx=11"),
        ({"seen": np.ones((1, 3, 3)).tolist()}, "`seen` must hold finite numbers that fit bool. Received: 1.0."),
        ({"gain": [1000]}, "Output `odds` holds NaN or infinity"),
    ],
    ids=["an id outside the embedding", "floats for a mask", "an answer that is infinite"],
)
def test_errors_of_the_model_are_answers(tokens, change, said):
    assert tokens.ask(IDS)[0] == 200
    assert said in told(tokens.ask(IDS | change))


FOUR = {"ids": [[1], [2], [11], [4]], "seen": np.ones((4, 1, 1), bool).tolist(), "gain": [1, 1000, 1, 2]}


def test_rows_that_fail_do_not_spoil_a_request(tokens):
    status, content = tokens.ask(FOUR)
    answers = json.loads(content)
    reasons = answers.pop("errors")
    assert status == 200
    assert reasons.keys() == {"1", "2"}
    assert "Output `odds` holds NaN or infinity" in reasons["1"]
    assert "idx=11" in reasons["2"]
    for row in (0, 3):
        alone = json.loads(tokens.ask({name: values[row : row + 1] for name, values in FOUR.items()})[1])
        for name, values in answers.items():
            np.testing.assert_allclose(values[row], alone[name][0], rtol=1e-6)
    assert {values[row] for values in answers.values() for row in (1, 2)} == {None}


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("queries", [[float("nan")] * 4] * 3, f"{FLOATS}. Received: nan."),
        ("queries", [[1e39] * 4] * 3, f"{FLOATS}. Received: 1e+39."),
        ("valid_lens", None, f"{INTEGERS}. Received: None."),
        ("valid_lens", 1.5, f"{INTEGERS}. Received: 1.5."),
        ("valid_lens", "2", f"{INTEGERS}. Received: '2'."),
        ("valid_lens", 10**23, f"{INTEGERS}. Received: {10**23}."),
    ],
)
def test_value_that_does_not_fit_fails_its_row_alone(service, name, value, expected):
    status, content = service.ask(GOOD | {name: [value, GOOD[name][1]]})
    answers = json.loads(content)
    assert (status, answers.pop("errors")) == (200, {"0": f"`{name}` must hold {expected}"})
    assert all(values[0] is None and values[1] is not None for values in answers.values())


def test_reason_is_short_if_a_large_request_fails(tokens):
    many = {name: values[:1] * 300 for name, values in FOUR.items()} | {"ids": [[1]] * 299 + [[11]]}
    assert told(tokens.ask(many)).startswith("The model cannot run on this: indices element out of data bounds, idx=11")


def test_empty_rows_are_refused_in_a_sentence(tokens):
    empty = {"ids": [[]], "seen": [[]], "gain": [1]}
    assert len(told(tokens.ask(empty))) < 150


def test_body_that_is_too_large_is_not_kept(service):
    """In pieces, so that no header holds the length."""
    before = service.memory("VmRSS")
    with service.connection() as connection:
        connection.request("POST", "/predict", (b" " * 2**20 for _ in range(128)))
        came = connection.getresponse()
        said = json.loads(came.read())["detail"]
    assert (came.status, said) == (413, "A request may have 8388608 bytes. Send fewer rows at once.")
    assert service.memory("VmRSS") - before < 64 * 2**20
    assert service.ask(GOOD)[0] == 200


def test_clients_at_once_get_their_own_answers(service, request):
    cases, _ = cases_of(service.bundle)
    bad = [body if isinstance(body, bytes) else json.dumps(body).encode() for body, _ in BAD.values()]
    bodies, draw, sizes = [*map(body_of, cases)] * 4 + bad, random.Random(0), []
    alone = {body: service.ask(body) for body in {*bodies}}
    assert len({*alone.values()}) > len(alone) / 2, "answers alike would not tell whose came"

    def client(asked: list[bytes]) -> list[tuple[int, bytes]]:
        with service.connection() as connection:
            return [answer(connection, body) for body in asked]

    with ThreadPoolExecutor(CLIENTS) as pool:
        for _ in range(3):
            count = request.config.getoption("--requests") // CLIENTS // 3
            asked = [draw.choices(bodies, k=count) for _ in range(CLIENTS)]
            assert [*pool.map(client, asked)] == [[alone[body] for body in each] for each in asked]
            sizes.append(service.memory("VmRSS"))
    assert sizes[2] - sizes[0] < MOST_GROWTH


def test_service_stops_within_a_second_and_answers_begun_requests(exported, tmp_path):
    body = json.dumps(GOOD).encode()
    with running(tmp_path, exported) as server, server.connection() as idle, server.connection() as begun:
        whole = answer(idle, body)
        begun.putrequest("POST", "/predict")
        begun.putheader("Content-Length", str(len(body)))
        begun.endheaders(body[:10])
        time.sleep(0.2)  # until it has come
        server.process.terminate()
        time.sleep(0.2)
        begun.send(body[10:])
        came = begun.getresponse()
        assert (came.status, came.read()) == whole
        server.process.wait(1)
        with pytest.raises(ConnectionRefusedError):
            server.ask(body)


def test_altered_bundle_is_not_served(bundle, tmp_path):
    flip_byte(bundle / "model.onnx")
    (tmp_path / "app").mkdir()
    assert start(tmp_path / "app", bundle).wait(60) == 1
    said = (tmp_path / "app" / "log.txt").read_text(encoding="utf-8")
    assert_one_line(said, f"error: {bundle / 'model.onnx'} is not the file that was exported")
