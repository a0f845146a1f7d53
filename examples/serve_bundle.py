"""A bundle behind HTTP: `BUNDLE=bundle uvicorn serve_bundle:app`, with a copy of `verify.py` beside this file."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from itertools import chain, product
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from fastapi import FastAPI, HTTPException, Request, Response
from starlette.requests import ClientDisconnect
from verify import ExportError, open_session, printable, read_manifest, run_session

MOST_BYTES, MOST_NUMBERS, MOST_LISTS, LONGEST = 8 * 2**20, 2**20, 2**17, 4096  # the last of an axis that may vary
SECONDS, MOST_COMING, MOST_BEGUN = 10, 256, 128  # until a request is there; how many may come, and how many be there
MOST_ALONE = 256  # rows of a request that run in halves, and those in halves, until the row is found that fails
REFUSED = 0.5  # seconds until a refusal is told: who sends such requests, one after another, takes little from others
try:
    bundle = Path(os.environ.get("BUNDLE", "bundle"))
    manifest = read_manifest(bundle)  # checks every hash
    session = open_session(bundle / "model.onnx", threads=1)  # one for all: a request runs on one core
except ExportError as error:
    raise SystemExit(f"error: {printable(str(error))}") from None
# Whether each row of a request has an answer of its own, so that one that fails does not spoil the others.
BY_ROW = all(spec["shape"][:1] == ["batch"] for spec in manifest["inputs"] + manifest["outputs"])
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
    given, names, sizes, errors = json.loads(body), [spec["name"] for spec in manifest["inputs"]], {}, {}
    if not isinstance(given, dict) or set(given) != set(names):
        raise ValueError(f"A request is a JSON object with the inputs {names} and nothing else.")
    inputs = {spec["name"]: taken(spec, given, sizes, errors) for spec in manifest["inputs"]}
    count = sizes["batch"] if BY_ROW else 1
    answers = {spec["name"]: [None] * count for spec in manifest["outputs"]}
    run_rows(inputs, [row for row in range(count) if row not in errors], answers, errors)
    if errors and len(errors) == count:
        raise ValueError(errors[min(errors)])
    for row, values in product(errors, answers.values()):
        values[row] = None
    if not BY_ROW:
        answers = {name: values[0] for name, values in answers.items()}
    return json.dumps({"errors": errors, **answers} if errors else answers, allow_nan=False)


def run_rows(inputs: dict[str, np.ndarray], rows: list[int], answers: dict[str, list], errors: dict[int, str]) -> None:
    if not rows and errors:
        return
    try:
        chosen = {name: array[rows] for name, array in inputs.items()} if BY_ROW else inputs
        outputs = run_session(session, chosen, options)
    except ExportError as error:
        if len(rows) > MOST_ALONE or not rows:
            raise
        if len(rows) == 1:
            errors[rows[0]] = reason_of(error, inputs)
        else:
            for half in (rows[: len(rows) // 2], rows[len(rows) // 2 :]):
                run_rows(inputs, half, answers, errors)
        return
    if sum(array.size for array in outputs.values()) > MOST_NUMBERS:
        raise ValueError(f"An answer may hold {MOST_NUMBERS} numbers. Send fewer rows at once.")
    for name, array in outputs.items():
        by_row = array if BY_ROW else array[None]
        finite = np.isfinite(by_row) if array.dtype.kind == "f" else np.ones(by_row.shape, bool)
        fine = finite.all(axis=tuple(range(1, by_row.ndim)))
        for row, value, is_fine in zip(rows, by_row.tolist(), fine, strict=True):
            if is_fine:
                answers[name][row] = value
            else:
                errors[row] = f"Output `{name}` holds NaN or infinity, which JSON has no number for."


def reason_of(error: ExportError, inputs: dict[str, np.ndarray]) -> str:
    for name, array in inputs.items():
        if 0 in array.shape[1:]:
            return f"`{name}` has shape {array.shape}: the model runs on no axis of size 0. Send at least one entry."
    return f"The model cannot run on this: {str(error).rpartition('Status Message: ')[2]}"


def taken(spec: dict[str, Any], given: dict[str, Any], sizes: dict[str, int], errors: dict[int, str]) -> np.ndarray:
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
    wrong = f"`{name}` must hold finite numbers that fit {dtype}."
    if found.size and found.dtype.kind not in kinds[np.dtype(dtype).kind]:
        raise ValueError(f"{wrong} Received: {found.dtype}.")
    with np.errstate(all="ignore"):
        array = found.astype(dtype)
        fits = np.isfinite(found) & np.isclose(array, found, 0.01, 0.01)  # what does not fit is far off
    for place in np.flatnonzero(~fits):
        errors[int(place) * came[0] // found.size if BY_ROW else 0] = wrong
    return np.where(fits, array, np.zeros((), dtype)).reshape(came)
