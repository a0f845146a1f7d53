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
from bundle_service import running
from handwritten_bundles import COUNTING, ENDLESS, write_onnx_bundle

pytestmark = [pytest.mark.nightly, pytest.mark.needs("serving")]


CLIENTS = 8
GOOD = json.dumps(bundle_service.GOOD).encode()


def with_lens(lens):
    """Return a request with other JSON for its lengths."""
    return GOOD.replace(b'"valid_lens": [1, 2]', b'"valid_lens": ' + lens)


def of_examples(count, lens):
    sizes = {"queries": (count, 1, 4), "keys": (count, 1, 6), "values": (count, 1, 5)}
    return json.dumps(
        {name: np.ones(size, int).tolist() for name, size in sizes.items()} | {"valid_lens": lens}
    ).encode()


MIB = 2**20
COSTLY = {  # bodies, and messages of the answers
    "one text is long": (with_lens(json.dumps(["a" * 40_000, *[""] * 20_000]).encode()), "must have shape"),
    "many lists": (with_lens(b"[" + b"[]," * (2 * MIB) + b"[]]"), "in 131072 lists"),
    "many numbers": (with_lens(b"[" + b"1," * (3 * MIB) + b"1]"), "1048576 numbers"),
    "deep": (with_lens(b"[" * 100_000), "recursion"),
    "one number is long": (with_lens(b"[" + b"9" * (4 * MIB) + b"]"), "integer string conversion"),
    "large numbers of the right shape": (of_examples(1000, [10**4000] * 1000), "finite numbers that fit int32"),
}


def half_sent(server):
    """Begin a request whose end never comes."""
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=60)
    head = f"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: {len(GOOD)}\r\n\r\n"
    connection.sendall(head.encode() + GOOD[:10])
    return connection


@pytest.fixture(scope="module")
def server(exported, tmp_path_factory):
    with running(tmp_path_factory.mktemp("service"), exported) as server:
        assert server.ask(GOOD)[0] == 200
        yield server


@pytest.mark.parametrize(("body", "said"), COSTLY.values(), ids=COSTLY)
def test_refused_requests_cost_little_memory(server, body, said):
    before, at = server.memory("VmHWM"), time.monotonic()
    status, content = server.ask(body)
    assert time.monotonic() - at > 0.4, "who is told at once sends the next at once"
    assert (status, said in content.decode()) == (422, True), content[:300]
    assert server.memory("VmHWM") - before < 10 * len(body) + 16 * MIB


def test_request_for_a_long_answer_is_refused(server):
    sizes = {"queries": (1, 2000, 4), "keys": (1, 2000, 6), "values": (1, 2000, 5)}
    body = {name: np.ones(size, int).tolist() for name, size in sizes.items()} | {"valid_lens": [2000]}
    status, content = server.ask(body)
    assert (status, "An answer may hold 1048576 numbers" in content.decode()) == (422, True), content[:300]


def test_clients_with_half_a_request_are_cut_off(exported, tmp_path):
    with running(tmp_path, exported, RECEIVE_SECONDS=2, MAX_RECEIVING=20) as server, contextlib.ExitStack() as held:
        begun = [held.enter_context(half_sent(server)) for _ in range(60)]
        assert [server.ask(GOOD)[0] for _ in range(3)] == [200] * 3
        first = begun[0].recv(4096)
        assert first.startswith(b"HTTP/1.1 408 "), "the oldest of more than 20 is cancelled"
        at = time.monotonic()
        for connection in begun[1:]:
            told = b"".join(iter(lambda: connection.recv(4096), b""))  # noqa: B023 - called at once
            assert b"did not come in time" in told
        assert time.monotonic() - at < 10


def test_service_ends_while_a_model_computes_for_ever(tmp_path):
    numbers = {"x": ("float32", ["batch"])}
    bundle = write_onnx_bundle(tmp_path / "bundle", COUNTING, numbers, {"y": ("float32", ["batch"])})
    (tmp_path / "service").mkdir()
    with ThreadPoolExecutor() as pool, running(tmp_path / "service", bundle) as server:
        asked = pool.submit(server.ask, {"x": [ENDLESS]})
        time.sleep(0.5)  # until it computes
        server.process.send_signal(signal.SIGINT)  # by which it would wait for the thread of the model
        server.process.wait(10)
        assert isinstance(asked.exception(), http.client.HTTPException | OSError) or asked.result()[0] >= 400


def test_requests_beyond_the_limit_are_refused_at_once(exported, tmp_path):
    def asked(_):
        with server.connection() as connection:
            connection.request("POST", "/predict", GOOD)
            came = connection.getresponse()
            return came.status, came.getheader("retry-after")

    with running(tmp_path, exported, MAX_QUEUED=1) as server, ThreadPoolExecutor(CLIENTS) as pool:
        assert {*pool.map(asked, range(200))} == {(200, None), (503, "1")}


def test_unsigned_integers_and_empty_lists_are_inputs(tmp_path):
    kind = {"x": ("uint8", ["batch"])}
    bundle = write_onnx_bundle(tmp_path / "bundle", "y = Identity (x)", kind, {"y": kind["x"]})
    (tmp_path / "service").mkdir()
    with running(tmp_path / "service", bundle) as server:
        for numbers, status in (([1, 255], 200), ([], 200), ([256], 422), ([-1], 422), ([1.0], 422)):
            told, content = server.ask({"x": numbers})
            assert told == status, (numbers, content)
            assert status != 200 or json.loads(content) == {"y": numbers}
