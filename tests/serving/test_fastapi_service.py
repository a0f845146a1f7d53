"""The example service of docs/serving.md in a separate process: golden cases, invalid requests and load.

Its environment has neither TensorFlow nor Keras nor this package; the process of the tests is its client.
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
from bundle_service import ROOT, VALID_INPUTS, post_request, run_service, start_service
from small_bundle import assert_one_line, flip_bit, read_manifest

from keras_attn import AdditiveAttention
from keras_attn_export import export_model
from keras_attn_export._format.cases import load_cases
from keras_attn_export._format.compare import compare
from keras_attn_export._format.dtypes import numpy_dtype
from keras_attn_export._format.names import CASES_FILE, Case

pytestmark = [pytest.mark.nightly, pytest.mark.needs("serving")]

CLIENTS = 16
# 127.0.0.1 as /proc/net writes it, and as an address of IPv6
LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F"}
MAX_GROWTH_BYTES = 4 * 2**20  # during the last two thirds of the requests; the measured growth is 0


@pytest.fixture(scope="module")
def service(exported, tmp_path_factory):
    with run_service(tmp_path_factory.mktemp("service"), exported) as server:
        yield server


@pytest.fixture(scope="module")
def tokens(tmp_path_factory):
    """A service of a model with ids, a boolean mask, float and integer outputs, and an exponential of an input."""
    ids = keras.Input((None,), dtype="int32", name="ids")
    mask = keras.Input((None, None), dtype="bool", name="seen")
    gain = keras.Input((), name="gain")
    embeddings = keras.layers.Embedding(11, 6)(ids)
    context = AdditiveAttention(4, name="attention")(embeddings, embeddings, embeddings, attention_mask=mask)
    outputs = {"context": context, "largest": keras.ops.argmax(context, axis=-1), "odds": keras.ops.exp(gain)}
    model = keras.Model([ids, mask, gain], outputs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Keras warns about a softmax over one key
        bundle = export_model(model, tmp_path_factory.mktemp("tokens") / "bundle").path
    with run_service(tmp_path_factory.mktemp("service"), bundle) as server:
        yield server


def split_cases(bundle: Path) -> tuple[list[Case], list[Case]]:
    """Return the golden cases with finite inputs and outputs, and the cases that JSON cannot represent."""
    split: tuple[list[Case], list[Case]] = [], []
    for case in load_cases(bundle / CASES_FILE):
        arrays = (*case.inputs.values(), *case.outputs.values())
        is_finite = all(array.dtype == object or np.isfinite(array).all() for array in arrays)
        split[not is_finite].append(case)
    return split


# Names of the cases with NaN as padding, and with an overflowing exponential, by fixture.
NONFINITE_CASES = {"service": ["poisoned padding"], "tokens": ["large values"]}


def encode_inputs(case: Case) -> bytes:
    return json.dumps({name: array.tolist() for name, array in case.inputs.items()}).encode()


def list_mismatches(service, case: Case, content: bytes) -> list[str]:
    """List the outputs of a response that differ from Keras by more than the limits of `verify`."""
    manifest = read_manifest(service.bundle)
    dtypes = {spec["name"]: spec["dtype"] for spec in manifest["outputs"]}
    actual = {name: np.array(value, numpy_dtype(dtypes[name])) for name, value in json.loads(content).items()}
    rows = compare(case, actual, manifest["parity"]["tolerance"])
    return [f"{row['case']}, {row['name']}: {row['problem']}" for row in rows if not row["passed"]]


FLOATS, INTEGERS = "finite numbers that fit float32", "finite numbers that fit int32"
# Changes of a valid request, and messages of the responses.
CHANGED_INPUTS: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown input": ({"mask": [1]}, "['queries', 'keys', 'values', 'valid_lens'] and nothing else"),
    "a wrong rank": ({"keys": [[1.0]]}, "`keys` must have shape ['batch', 'keys_length', 6]"),
    "other lengths": ({"values": np.ones((2, 4, 5)).tolist()}, "'keys_length': 2"),
    "too long": ({"queries": np.ones((2, 4097, 4), int).tolist()}, "'queries_length': 4097"),
    "rows of unequal lengths": ({"keys": [[[1.0] * 6], [[1.0] * 6] * 2]}, "Pad them"),
    "floats for integers": ({"valid_lens": [1.5, 2.0]}, INTEGERS),
    "integers that wrap round": ({"valid_lens": [2**32 + 1, 2**32]}, INTEGERS),
    "null": ({"valid_lens": [None, None]}, f"{INTEGERS}. Received: None."),
    **{str(number): ({"queries": np.full((2, 3, 4), number).tolist()}, FLOATS) for number in (1e39, np.nan)},
}
INVALID_BODIES: dict[str, tuple[Any, str]] = {
    "no JSON": (b'{"queries": [[', "Expecting value"),
    "deep": (b"[" * 100_000, "recursion"),
    "a list": ([1, 2], "A request is a JSON object with the inputs"),
    "an input too few": ({key: VALID_INPUTS[key] for key in ("queries", "keys", "values")}, "and nothing else"),
    **{name: (VALID_INPUTS | change, message) for name, (change, message) in CHANGED_INPUTS.items()},
}


def read_refusal(response: tuple[int, bytes]) -> str:
    """Return the message of the response to a refused request."""
    status, content = response
    assert status == 422
    return json.loads(content)["detail"]


@pytest.mark.parametrize("fixture_name", ["service", "tokens"])
def test_golden_cases_match_over_http(fixture_name, request):
    service = request.getfixturevalue(fixture_name)
    cases, nonfinite_cases = split_cases(service.bundle)
    assert len(cases) >= 10
    for case in cases:
        status, content = service.post(encode_inputs(case))
        assert (status, list_mismatches(service, case, content)) == (200, []), content[:300]
    assert [case.name for case in nonfinite_cases] == NONFINITE_CASES[fixture_name]
    for case in nonfinite_cases:
        status, content = service.post(encode_inputs(case))
        assert status in (200, 422)
        assert re.search("must hold finite numbers|holds NaN or infinity", content.decode())


def test_service_returns_the_rows_that_predict_writes(tmp_path, monkeypatch):
    """The model and the request are those of docs/howto/text-and-tables.md."""
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
    with run_service(tmp_path / "service", tmp_path / "bundle") as server:
        (status, content), page_response = server.post(request), server.post(page_request.encode())
    assert (page_response[0], json.loads(page_response[1])["species"]) == (200, ["Gentoo"])
    assert (status, json.loads(content)["species"]) == (200, predictions["species"])
    assert len({*predictions["species"]}) > 1


def test_health_names_the_bundle_and_only_this_machine_is_served(service):
    with service.connect() as connection:
        connection.request("GET", "/health")
        response = connection.getresponse()
        health = json.loads(response.read())
    manifest = read_manifest(service.bundle)
    assert response.status == 200
    assert health == {key: manifest[key] for key in ("model", "manifest_sha256", "inputs", "outputs")}
    assert service.list_listening_addresses() in [{address} for address in LOOPBACK]


@pytest.mark.parametrize(("body", "message"), INVALID_BODIES.values(), ids=INVALID_BODIES)
def test_bad_requests_are_refused_with_a_reason(service, body, message):
    assert message in read_refusal(service.post(body))


TOKEN_INPUTS = {"ids": [[1, 2, 3]], "seen": np.ones((1, 3, 3), bool).tolist(), "gain": [1]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ids": [[1, 2, 11]]}, "The model cannot run on this: indices element out of data bounds, idx=11"),
        ({"seen": np.ones((1, 3, 3)).tolist()}, "`seen` must hold finite numbers that fit bool. Received: 1.0."),
        ({"gain": [1000]}, "Output `odds` holds NaN or infinity"),
    ],
    ids=["an id outside the embedding", "floats for a mask", "an infinite output"],
)
def test_errors_of_the_model_are_returned(tokens, change, message):
    assert tokens.post(TOKEN_INPUTS)[0] == 200
    assert message in read_refusal(tokens.post(TOKEN_INPUTS | change))


FOUR_ROWS = {"ids": [[1], [2], [11], [4]], "seen": np.ones((4, 1, 1), bool).tolist(), "gain": [1, 1000, 1, 2]}


def test_failed_rows_do_not_change_other_rows(tokens):
    status, content = tokens.post(FOUR_ROWS)
    outputs = json.loads(content)
    reasons = outputs.pop("errors")
    assert status == 200
    assert reasons.keys() == {"1", "2"}
    assert "Output `odds` holds NaN or infinity" in reasons["1"]
    assert "idx=11" in reasons["2"]
    for row in (0, 3):
        single_row = json.loads(tokens.post({name: values[row : row + 1] for name, values in FOUR_ROWS.items()})[1])
        for name, values in outputs.items():
            np.testing.assert_allclose(values[row], single_row[name][0], rtol=1e-6)
    assert {values[row] for values in outputs.values() for row in (1, 2)} == {None}


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
def test_unsuitable_value_fails_only_its_row(service, name, value, expected):
    status, content = service.post(VALID_INPUTS | {name: [value, VALID_INPUTS[name][1]]})
    outputs = json.loads(content)
    assert (status, outputs.pop("errors")) == (200, {"0": f"`{name}` must hold {expected}"})
    assert all(values[0] is None and values[1] is not None for values in outputs.values())


def test_message_about_a_large_request_is_short(tokens):
    inputs = {name: values[:1] * 300 for name, values in FOUR_ROWS.items()} | {"ids": [[1]] * 299 + [[11]]}
    message = "The model cannot run on this: indices element out of data bounds, idx=11"
    assert read_refusal(tokens.post(inputs)).startswith(message)


def test_empty_rows_are_refused_in_a_sentence(tokens):
    empty_inputs = {"ids": [[]], "seen": [[]], "gain": [1]}
    assert len(read_refusal(tokens.post(empty_inputs))) < 150


def test_too_large_body_is_not_stored(service):
    """A body in pieces has no header with its length."""
    initial_memory = service.read_memory("VmRSS")
    with service.connect() as connection:
        connection.request("POST", "/predict", (b" " * 2**20 for _ in range(128)))
        response = connection.getresponse()
        message = json.loads(response.read())["detail"]
    assert (response.status, message) == (413, "A request may have 8388608 bytes. Send fewer rows at once.")
    assert service.read_memory("VmRSS") - initial_memory < 64 * 2**20
    assert service.post(VALID_INPUTS)[0] == 200


def test_concurrent_clients_get_their_own_responses(service, request):
    cases, _ = split_cases(service.bundle)
    bodies, rng, sizes = [*map(encode_inputs, cases)] * 4, random.Random(0), []
    bodies += [body if isinstance(body, bytes) else json.dumps(body).encode() for body, _ in INVALID_BODIES.values()]
    expected = {body: service.post(body) for body in {*bodies}}
    assert len({*expected.values()}) > len(expected) / 2, "equal responses would hide exchanged ones"

    def send_all(batch: list[bytes]) -> list[tuple[int, bytes]]:
        with service.connect() as connection:
            return [post_request(connection, body) for body in batch]

    with ThreadPoolExecutor(CLIENTS) as pool:
        for _ in range(3):
            count = request.config.getoption("--requests") // CLIENTS // 3
            batches = [rng.choices(bodies, k=count) for _ in range(CLIENTS)]
            assert [*pool.map(send_all, batches)] == [[expected[body] for body in batch] for batch in batches]
            sizes.append(service.read_memory("VmRSS"))
    assert sizes[2] - sizes[0] < MAX_GROWTH_BYTES


def test_service_stops_within_a_second_after_pending_requests(exported, tmp_path):
    body = json.dumps(VALID_INPUTS).encode()
    with run_service(tmp_path, exported) as server, server.connect() as idle, server.connect() as pending:
        expected = post_request(idle, body)
        pending.putrequest("POST", "/predict")
        pending.putheader("Content-Length", str(len(body)))
        pending.endheaders(body[:10])
        time.sleep(0.2)  # the service receives the first part
        server.process.terminate()
        time.sleep(0.2)
        pending.send(body[10:])
        response = pending.getresponse()
        assert (response.status, response.read()) == expected
        server.process.wait(1)
        with pytest.raises(ConnectionRefusedError):
            server.post(body)


def test_altered_bundle_is_not_served(bundle, tmp_path):
    flip_bit(bundle / "model.onnx")
    (tmp_path / "app").mkdir()
    assert start_service(tmp_path / "app", bundle).wait(60) == 1
    log = (tmp_path / "app" / "log.txt").read_text(encoding="utf-8")
    assert_one_line(log, f"error: {bundle / 'model.onnx'} is not the file that was exported")
