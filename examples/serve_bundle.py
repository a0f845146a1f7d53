"""A bundle behind HTTP: `BUNDLE=bundle uvicorn serve_bundle:app`, with a copy of `verify.py` beside this file."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from fastapi import FastAPI, HTTPException, Request, Response
from starlette.requests import ClientDisconnect
from verify import ExportError, open_session, printable, read_manifest, run_session

MOST_BYTES, MOST_NUMBERS, MOST_LISTS, LONGEST = 8 * 2**20, 2**20, 2**17, 4096  # the last of an axis that may vary
SECONDS, MOST_COMING, MOST_BEGUN = 10, 256, 128  # until a request is there; how many may come, and how many be there
REFUSED = 0.5  # seconds until a refusal is told: who sends such requests, one after another, takes little from others
try:
    bundle = Path(os.environ.get("BUNDLE", "bundle"))
    manifest = read_manifest(bundle)  # checks every hash
    session = open_session(bundle / "model.onnx", threads=1)  # one for all: a request runs on one core
except ExportError as error:
    raise SystemExit(f"error: {printable(str(error))}") from None
pool = ThreadPoolExecutor(os.cpu_count())  # as many requests at once as there are cores; the others wait
options = ort.RunOptions()


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    yield
    options.terminate = True  # of runs that still compute


app, coming, begun = FastAPI(lifespan=lifespan), dict[asyncio.Timeout, None](), asyncio.Semaphore(MOST_BEGUN)


@app.get("/health")
def health() -> dict[str, Any]:
    return {key: manifest.get(key) for key in ("model", "manifest_sha256", "inputs", "outputs")}


@app.post("/predict")
async def predict(request: Request) -> Response:
    body = await whole(request)
    if begun.locked():
        raise HTTPException(503, "Too many requests wait already. Send it again later.", {"Retry-After": "1"})
    async with begun:
        try:
            answer = await asyncio.get_running_loop().run_in_executor(pool, answer_to, body)
            return Response(answer, media_type="application/json")
        except (ExportError, MemoryError, RecursionError, ValueError) as error:
            refused = str(error) or "too little memory"
        except asyncio.CancelledError as error:
            raise HTTPException(503, "The service ends.") from error
    del body
    await asyncio.sleep(REFUSED)
    raise HTTPException(422, refused)


async def whole(request: Request) -> bytearray:
    try:
        async with asyncio.timeout(SECONDS) as limit:
            body = bytearray()
            if len(coming) >= MOST_COMING and not (slowest := next(iter(coming))).expired():
                slowest.reschedule(0)  # so that those who only begin never hold the places of others
            coming[limit] = None
            async for piece in request.stream():
                body += piece
                if len(body) > MOST_BYTES:
                    raise HTTPException(413, f"A request may have {MOST_BYTES} bytes. Send fewer rows at once.")
            return body
    except (TimeoutError, ClientDisconnect, asyncio.CancelledError) as error:
        raise HTTPException(408, "The request did not come in time.", {"Connection": "close"}) from error
    finally:
        coming.pop(limit, None)


def answer_to(body: bytearray) -> str:
    if body.count(b",") > MOST_NUMBERS or sum(map(body.count, (b"[", b"{", b'"'))) > MOST_LISTS:
        raise ValueError(f"A request may hold {MOST_NUMBERS} numbers in {MOST_LISTS} lists. Send fewer rows at once.")
    given, names, sizes = json.loads(body), [spec["name"] for spec in manifest["inputs"]], {}
    if not isinstance(given, dict) or set(given) != set(names):
        raise ValueError(f"A request is a JSON object with the inputs {names} and nothing else.")
    outputs = run_session(session, {s["name"]: taken(s, given, sizes) for s in manifest["inputs"]}, options)
    if sum(array.size for array in outputs.values()) > MOST_NUMBERS:
        raise ValueError(f"An answer may hold {MOST_NUMBERS} numbers. Send fewer rows at once.")
    return json.dumps({name: array.tolist() for name, array in outputs.items()}, allow_nan=False)


def taken(spec: dict[str, Any], given: dict[str, Any], sizes: dict[str, int]) -> np.ndarray:
    name, dtype, shape = spec["name"], spec["dtype"], spec["shape"]
    flat, came = [given[name]], ()
    while {*map(type, flat)} == {list} and len(came) <= len(shape):
        if len({*map(len, flat)}) > 1:
            raise ValueError(f"`{name}` has lists of different lengths. Pad them, and send lengths or a mask.")
        flat, came = [*chain.from_iterable(flat)], (*came, len(flat[0]))
    wanted = tuple(sizes.setdefault(a, n) if isinstance(a, str) else a for a, n in zip(shape, came, strict=False))
    if len(came) != len(shape) or came != wanted or max(sizes.values(), default=0) > LONGEST:
        raise ValueError(f"`{name}` must have shape {shape}, {LONGEST} at most. Received: {came}, with {sizes}.")
    if dtype == "string":
        if not {*map(type, flat)} <= {str} or any(len(each) > LONGEST or "\0" in each for each in flat):
            raise ValueError(f"`{name}` must hold strings of {LONGEST} letters at most, none of them zero.")
        return np.array(flat, object).reshape(came)
    found = np.array(flat if {*map(type, flat)} <= {bool, int, float} else None)  # not texts, which it pads to one size
    kinds = {"b": "b", "i": "i", "u": "i", "f": "if"}  # what numbers may be given as: 1.5 never for an integer
    finite = not found.size or (found.dtype.kind in kinds[np.dtype(dtype).kind] and np.isfinite(found).all())
    if not (finite and np.allclose(array := found.astype(dtype), found, 0.01, 0.01)):  # what does not fit is far off
        raise ValueError(f"`{name}` must hold finite numbers that fit {dtype}. Received: {found.dtype}.")
    return array.reshape(came)
