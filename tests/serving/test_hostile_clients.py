"""Slow clients and costly requests: refused at little cost, while other clients are served."""

import contextlib
import http.client
import json
import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import bundle_service
import numpy as np
import pytest
from bundle_service import run_service
from handwritten_bundles import COUNTING_NODES, ENDLESS_STEPS, write_onnx_bundle

pytestmark = [pytest.mark.nightly, pytest.mark.needs("serving")]

CLIENTS = 8
VALID_BODY = json.dumps(bundle_service.VALID_INPUTS).encode()


def encode_lens(lens):
    """Return a valid body with its lengths replaced by other JSON."""
    return VALID_BODY.replace(b'"valid_lens": [1, 2]', b'"valid_lens": ' + lens)


def encode_examples(count, lens):
    sizes = {"queries": (count, 1, 4), "keys": (count, 1, 6), "values": (count, 1, 5)}
    return json.dumps(
        {name: np.ones(size, int).tolist() for name, size in sizes.items()} | {"valid_lens": lens}
    ).encode()


MIB = 2**20
COSTLY_REQUESTS = {  # body, message of the response
    "one text is long": (encode_lens(json.dumps(["a" * 40_000, *[""] * 20_000]).encode()), "must have shape"),
    "many lists": (encode_lens(b"[" + b"[]," * (2 * MIB) + b"[]]"), "in 131072 lists"),
    "many numbers": (encode_lens(b"[" + b"1," * (3 * MIB) + b"1]"), "1048576 numbers"),
    "deep": (encode_lens(b"[" * 100_000), "recursion"),
    "one number is long": (encode_lens(b"[" + b"9" * (4 * MIB) + b"]"), "integer string conversion"),
    "large numbers of the right shape": (encode_examples(1000, [10**4000] * 1000), "finite numbers that fit int32"),
}


def send_half_request(server):
    """Send the first bytes of a request, and return its connection."""
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=60)
    head = f"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: {len(VALID_BODY)}\r\n\r\n"
    connection.sendall(head.encode() + VALID_BODY[:10])
    return connection


@pytest.fixture(scope="module")
def server(exported, tmp_path_factory):
    with run_service(tmp_path_factory.mktemp("service"), exported) as server:
        assert server.post(VALID_BODY)[0] == 200
        yield server


@pytest.mark.parametrize(("body", "message"), COSTLY_REQUESTS.values(), ids=COSTLY_REQUESTS)
def test_refused_requests_cost_little_memory(server, body, message):
    initial_memory, start = server.read_memory("VmHWM"), time.monotonic()
    status, content = server.post(body)
    assert time.monotonic() - start > 0.4, "an immediate refusal would invite the next request at once"
    assert (status, message in content.decode()) == (422, True), content[:300]
    assert server.read_memory("VmHWM") - initial_memory < 10 * len(body) + 16 * MIB


def test_request_for_a_long_answer_is_refused(server):
    sizes = {"queries": (1, 2000, 4), "keys": (1, 2000, 6), "values": (1, 2000, 5)}
    body = {name: np.ones(size, int).tolist() for name, size in sizes.items()} | {"valid_lens": [2000]}
    status, content = server.post(body)
    assert (status, "An answer may hold 1048576 numbers" in content.decode()) == (422, True), content[:300]


def test_connections_with_half_a_request_are_closed(exported, tmp_path):
    limits = {"RECEIVE_SECONDS": 2, "MAX_RECEIVING": 20}
    with run_service(tmp_path, exported, **limits) as server, contextlib.ExitStack() as stack:
        connections = [stack.enter_context(send_half_request(server)) for _ in range(60)]
        assert [server.post(VALID_BODY)[0] for _ in range(3)] == [200] * 3
        first = connections[0].recv(4096)
        assert first.startswith(b"HTTP/1.1 408 "), "the oldest of more than 20 is cancelled"
        start = time.monotonic()
        for connection in connections[1:]:
            reply = b"".join(iter(lambda: connection.recv(4096), b""))  # noqa: B023 - called at once
            assert b"did not come in time" in reply
        assert time.monotonic() - start < 10


def test_service_ends_during_an_endless_computation(tmp_path):
    inputs = {"x": ("float32", ["batch"])}
    bundle = write_onnx_bundle(tmp_path / "bundle", COUNTING_NODES, inputs, {"y": ("float32", ["batch"])})
    (tmp_path / "service").mkdir()
    with ThreadPoolExecutor() as pool, run_service(tmp_path / "service", bundle) as server:
        future = pool.submit(server.post, {"x": [ENDLESS_STEPS]})
        time.sleep(0.5)  # the model computes
        server.process.send_signal(signal.SIGINT)  # uvicorn alone would wait for the thread of the model
        server.process.wait(10)
        assert isinstance(future.exception(), http.client.HTTPException | OSError) or future.result()[0] >= 400


def test_requests_beyond_the_limit_are_refused_at_once(exported, tmp_path):
    def post(_):
        with server.connect() as connection:
            connection.request("POST", "/predict", VALID_BODY)
            response = connection.getresponse()
            return response.status, response.getheader("retry-after")

    with run_service(tmp_path, exported, MAX_QUEUED=1) as server, ThreadPoolExecutor(CLIENTS) as pool:
        assert {*pool.map(post, range(200))} == {(200, None), (503, "1")}


def test_unsigned_integers_and_empty_lists_are_inputs(tmp_path):
    inputs = {"x": ("uint8", ["batch"])}
    bundle = write_onnx_bundle(tmp_path / "bundle", "y = Identity (x)", inputs, {"y": inputs["x"]})
    (tmp_path / "service").mkdir()
    with run_service(tmp_path / "service", bundle) as server:
        for numbers, status in (([1, 255], 200), ([], 200), ([256], 422), ([-1], 422), ([1.0], 422)):
            actual_status, content = server.post({"x": numbers})
            assert actual_status == status, (numbers, content)
            assert status != 200 or json.loads(content) == {"y": numbers}
