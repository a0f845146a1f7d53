"""Clients of the service that are slow or send what costs much: refused for little, and others do not notice."""

import contextlib
import http.client
import json
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from bundle_service import running
from onnx_bundles import COUNTING, ENDLESS, onnx_bundle

pytestmark = [pytest.mark.nightly, pytest.mark.needs("serving")]


CLIENTS, SECONDS = 8, 4
GOOD = json.dumps(
    {
        "queries": np.ones((2, 3, 4)).tolist(),
        "keys": np.ones((2, 2, 6)).tolist(),
        "values": np.ones((2, 2, 5)).tolist(),
        "valid_lens": [1, 2],
    }
).encode()


def with_lens(lens):
    """Return a request whose lengths are a text of JSON."""
    return GOOD.replace(b'"valid_lens": [1, 2]', b'"valid_lens": ' + lens)


def of_examples(count, lens):
    sizes = {"queries": (count, 1, 4), "keys": (count, 1, 6), "values": (count, 1, 5)}
    return json.dumps(
        {name: np.ones(size, int).tolist() for name, size in sizes.items()} | {"valid_lens": lens}
    ).encode()


MIB = 2**20
COSTLY = {  # what is sent, and what it is told
    "one text is long": (
        with_lens(json.dumps(["a" * 40_000, *[""] * 20_000]).encode()),
        "must have shape",
    ),
    "a text among numbers": (with_lens(b'["' + b"a" * 40_000 + b'"' + b",1" * 20_000 + b"]"), "must have shape"),
    "many lists": (with_lens(b"[" + b"[]," * (2 * MIB) + b"[]]"), "in 131072 lists"),
    "many objects": (with_lens(b"[" + b"{}," * (2 * MIB) + b"{}]"), "in 131072 lists"),
    "many texts": (with_lens(b"[" + b'"\xc3\xa9",' * MIB + b"1]"), "in 131072 lists"),
    "many numbers": (with_lens(b"[" + b"1," * (3 * MIB) + b"1]"), "1048576 numbers"),
    "deep": (with_lens(b"[" * 100_000), "recursion"),
    "deep and closed": (with_lens(b"[" * 900 + b"]" * 900), "must have shape"),
    "one number is long": (with_lens(b"[" + b"9" * (4 * MIB) + b"]"), "integer string conversion"),
    "numbers beyond any type": (with_lens(b"[" + (b"9" * 4000 + b",") * 1000 + b"1]"), "must have shape"),
    "texts of the right shape": (of_examples(1000, ["a" * 40_000, *[""] * 999]), "finite numbers that fit int32"),
    "large numbers of the right shape": (of_examples(1000, [10**4000] * 1000), "finite numbers that fit int32"),
}


def ask(address, body):
    """Return the answer to a request on a connection of its own: status, headers and content."""
    with contextlib.closing(http.client.HTTPConnection(address, timeout=60)) as connection:
        connection.request("POST", "/predict", body)
        came = connection.getresponse()
        return came.status, dict(came.getheaders()), came.read()


def half_sent(server, body=GOOD):
    """Begin a request whose end never comes."""
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=60)
    head = f"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    connection.sendall(head.encode() + body[:10])
    return connection


def most_resident(server):
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


@pytest.fixture(scope="module")
def server(exported, tmp_path_factory):
    with running(tmp_path_factory.mktemp("service"), exported) as server:
        assert ask(server.address, GOOD)[0] == 200
        yield server


@pytest.mark.parametrize(("body", "said"), COSTLY.values(), ids=COSTLY)
def test_what_is_refused_costs_little(server, body, said):
    before, at = most_resident(server), time.monotonic()
    status, _, content = ask(server.address, body)
    assert time.monotonic() - at > 0.4, "who is told at once sends the next at once"
    assert (status, said in content.decode()) == (422, True), content[:300]
    assert most_resident(server) - before < 10 * len(body) + 16 * MIB


def test_an_answer_that_would_be_long_is_refused(server):
    sizes = {"queries": (1, 2000, 4), "keys": (1, 2000, 6), "values": (1, 2000, 5)}
    body = {name: np.ones(size, int).tolist() for name, size in sizes.items()} | {"valid_lens": [2000]}
    status, _, content = ask(server.address, json.dumps(body).encode())
    assert (status, "An answer may hold 1048576 numbers" in content.decode()) == (422, True), content[:300]


def test_who_sends_half_a_request_is_cut_off_and_keeps_nobody_out(exported, tmp_path):
    with running(tmp_path, exported, limits=(2, 20, 128)) as server, contextlib.ExitStack() as held:
        begun = [held.enter_context(half_sent(server)) for _ in range(60)]
        assert [ask(server.address, GOOD)[0] for _ in range(3)] == [200] * 3
        first = begun[0].recv(4096)
        assert first.startswith(b"HTTP/1.1 408 "), "the slowest of more than 20 makes room"
        at = time.monotonic()
        for connection in begun[1:]:
            told = b"".join(iter(lambda: connection.recv(4096), b""))  # noqa: B023 - called at once
            assert b"did not come in time" in told
        assert time.monotonic() - at < 10


def test_it_ends_while_half_of_requests_are_there(exported, tmp_path):
    with running(tmp_path, exported) as server, contextlib.ExitStack() as held:
        for _ in range(63):
            held.enter_context(half_sent(server))
        held.enter_context(socket.create_connection(("127.0.0.1", server.port))).sendall(b"POST /pre")
        time.sleep(0.5)  # until they have come
        server.process.terminate()
        server.process.wait(10)  # 2 seconds on a machine that has nothing else to do


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_while_a_model_computes_for_ever(tmp_path, number):
    """By SIGINT it would wait for the thread in which the model runs; SIGTERM uvicorn sends to itself in the end."""
    numbers = {"x": ("float32", ["batch"])}
    bundle = onnx_bundle(tmp_path / "bundle", COUNTING, numbers, {"y": ("float32", ["batch"])})
    (tmp_path / "service").mkdir()
    with ThreadPoolExecutor() as pool, running(tmp_path / "service", bundle) as server:
        asked = pool.submit(ask, server.address, json.dumps({"x": [ENDLESS]}).encode())
        time.sleep(0.5)  # until it computes
        server.process.send_signal(number)
        server.process.wait(10)
        assert isinstance(asked.exception(), http.client.HTTPException | OSError) or asked.result()[0] >= 400


def test_too_many_that_wait_are_told_so_at_once(exported, tmp_path):
    with running(tmp_path, exported, limits=(10, 256, 1)) as server, ThreadPoolExecutor(CLIENTS) as pool:
        answers = [*pool.map(lambda _: ask(server.address, GOOD), range(200))]
    assert {status for status, *_ in answers} == {200, 503}
    assert {headers.get("retry-after") for status, headers, _ in answers if status == 503} == {"1"}


def test_the_good_half_of_sixteen_clients_sees_no_error(server):
    """The others are slow, send what costs much, or many at once, or go away."""
    over = threading.Event()

    def hostile(number):
        bodies = [body for body, _ in COSTLY.values()]
        with contextlib.ExitStack() as held:
            while not over.is_set():
                if number % 4 == 0:
                    held.enter_context(half_sent(server))
                elif number % 4 == 1:
                    half_sent(server, bodies[2]).close()
                else:
                    with contextlib.suppress(OSError):
                        ask(server.address, bodies[number % len(bodies)])
                time.sleep(0.02)

    def good(_):
        answers = []
        while not over.is_set():
            answers.append(ask(server.address, GOOD)[0])
        return answers

    with ThreadPoolExecutor(2 * CLIENTS) as pool:
        foes, friends = pool.map(hostile, range(CLIENTS)), pool.map(good, range(CLIENTS))
        time.sleep(SECONDS)
        over.set()
        for answers in friends:
            assert set(answers) == {200}
        assert [*foes] == [None] * CLIENTS


def test_integers_without_a_sign_and_empty_lists_are_numbers(tmp_path):
    kind = {"x": ("uint8", ["batch"])}
    bundle = onnx_bundle(tmp_path / "bundle", "y = Identity (x)", kind, {"y": kind["x"]})
    (tmp_path / "service").mkdir()
    with running(tmp_path / "service", bundle) as server:
        for numbers, status in (([1, 255], 200), ([], 200), ([256], 422), ([-1], 422), ([1.0], 422)):
            told, _, content = ask(server.address, json.dumps({"x": numbers}).encode())
            assert told == status, (numbers, content)
            assert status != 200 or json.loads(content) == {"y": numbers}
