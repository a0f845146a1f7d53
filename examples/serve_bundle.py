"""HTTP service of a bundle: `BUNDLE=bundle uvicorn serve_bundle:app`, with a copy of `verify.py` in the same folder."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from itertools import chain, product
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from fastapi import FastAPI, HTTPException, Request, Response
from starlette.requests import ClientDisconnect
from verify import ExportError, escape_unprintable, open_session, read_manifest, run_session

MAX_BODY_BYTES = 8 * 2**20
MAX_NUMBERS = 2**20  # of a request, and of an answer
MAX_LISTS = 2**17  # brackets and strings of a request: each costs far more memory as a Python object
MAX_SIZE = 4096  # of a dynamic axis, and of a string
RECEIVE_SECONDS = 10  # until the whole body has arrived
MAX_RECEIVING = 256  # requests whose bodies are arriving
MAX_QUEUED = 128  # requests that are complete, and wait or run
MAX_SPLIT_ROWS = 256  # a failed request with more rows is not halved to find the rows that fail
REFUSAL_DELAY = 0.5  # seconds before a 422: limits the load of a client that repeats an invalid request

try:
    bundle = Path(os.environ.get("BUNDLE", "bundle"))
    manifest = read_manifest(bundle)  # checks every hash
    settings = ort.SessionOptions()
    settings.log_severity_level = 4  # errors are raised as well
    settings.intra_op_num_threads = 1  # a request runs on one core; all requests share the session
    session = open_session(bundle / "model.onnx", session_options=settings)
except (ExportError, OSError) as error:
    raise SystemExit(f"error: {escape_unprintable(str(error))}") from None
if "errors" in [spec["name"] for spec in manifest["outputs"]]:
    raise SystemExit("error: an output is called `errors`, as the reasons in an answer are. Rename the output.")
specs = [*manifest["inputs"], *manifest["outputs"]]
# True if all inputs and outputs have a dynamic batch axis: then one invalid row does not fail the other rows.
HAS_INDEPENDENT_ROWS = all(spec["shape"][:1] == ["batch"] for spec in specs)
HAS_INDEPENDENT_ROWS &= "batch" not in manifest.get("multiples", {})
pool = ThreadPoolExecutor(os.cpu_count())  # one running request per core
options = ort.RunOptions()


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    yield
    options.terminate = True  # stops active runs


app = FastAPI(lifespan=lifespan)
receiving: dict[asyncio.Timeout, None] = {}  # timeouts of requests that are arriving, oldest first
queue = asyncio.Semaphore(MAX_QUEUED)


@app.get("/health")
def health() -> dict[str, Any]:
    return {key: manifest.get(key) for key in ("model", "manifest_sha256", "inputs", "outputs")}


@app.post("/predict")
async def predict(request: Request) -> Response:
    body = await read_body(request)
    if queue.locked():
        raise HTTPException(503, "The queue is full. Send the request again later.", {"Retry-After": "1"})
    async with queue:
        try:
            answer = await asyncio.get_running_loop().run_in_executor(pool, predict_json, body)
            return Response(answer, media_type="application/json")
        except (ExportError, MemoryError, RecursionError, ValueError) as error:
            message = str(error) or "too little memory"
        except asyncio.CancelledError as error:
            raise HTTPException(503, "The service is shutting down.") from error
    del body
    await asyncio.sleep(REFUSAL_DELAY)
    raise HTTPException(422, message)


async def read_body(request: Request) -> bytearray:
    try:
        async with asyncio.timeout(RECEIVE_SECONDS) as timeout:
            body = bytearray()
            if len(receiving) >= MAX_RECEIVING and not (oldest := next(iter(receiving))).expired():
                # Cancel the oldest request, so that clients that send slowly cannot occupy all places.
                oldest.reschedule(0)
            receiving[timeout] = None
            async for chunk in request.stream():
                body += chunk
                if len(body) > MAX_BODY_BYTES:
                    raise HTTPException(413, f"A request may have {MAX_BODY_BYTES} bytes. Send fewer rows at once.")
            return body
    except (TimeoutError, ClientDisconnect, asyncio.CancelledError) as error:
        raise HTTPException(408, "The request did not come in time.", {"Connection": "close"}) from error
    finally:
        receiving.pop(timeout, None)


def predict_json(body: bytearray) -> str:
    if body.count(b",") > MAX_NUMBERS or sum(map(body.count, (b"[", b"{", b'"'))) > MAX_LISTS:
        raise ValueError(f"A request may hold {MAX_NUMBERS} numbers in {MAX_LISTS} lists. Send fewer rows at once.")
    request = json.loads(body)
    names = [spec["name"] for spec in manifest["inputs"]]
    if not isinstance(request, dict) or set(request) != set(names):
        raise ValueError(f"A request is a JSON object with the inputs {names} and nothing else.")
    sizes: dict[str, int] = {}
    errors: dict[int, str] = {}
    inputs = {spec["name"]: parse_input(spec, request, sizes, errors) for spec in manifest["inputs"]}
    count = sizes["batch"] if HAS_INDEPENDENT_ROWS else 1
    answers = {spec["name"]: [None] * count for spec in manifest["outputs"]}
    run_rows(inputs, [row for row in range(count) if row not in errors], answers, errors)
    if errors and len(errors) == count:
        raise ValueError(errors[min(errors)])
    for row, values in product(errors, answers.values()):
        values[row] = None
    if not HAS_INDEPENDENT_ROWS:
        answers = {name: values[0] for name, values in answers.items()}
    return json.dumps(answers | {"errors": errors} if errors else answers, allow_nan=False)


def run_rows(inputs: dict[str, np.ndarray], rows: list[int], answers: dict[str, list], errors: dict[int, str]) -> None:
    """Run rows and fill `answers`.

    After a failure, run the two halves separately, so that only the rows that fail have errors.
    """
    if not rows and errors:
        return  # every row is invalid; a request of no rows still runs, for the shapes of its outputs
    try:
        selected = {name: array[rows] for name, array in inputs.items()} if HAS_INDEPENDENT_ROWS else inputs
        outputs = run_session(session, selected, options)
    except ExportError as error:
        if len(rows) > MAX_SPLIT_ROWS or not rows:
            raise ValueError(failure_reason(error, inputs)) from error
        if len(rows) == 1:
            errors[rows[0]] = failure_reason(error, inputs)
        else:
            for half in (rows[: len(rows) // 2], rows[len(rows) // 2 :]):
                run_rows(inputs, half, answers, errors)
        return
    if sum(array.size for array in outputs.values()) > MAX_NUMBERS:
        raise ValueError(f"An answer may hold {MAX_NUMBERS} numbers. Send fewer rows at once.")
    for name, array in outputs.items():
        values = array if HAS_INDEPENDENT_ROWS else array[None]
        finite = np.isfinite(values) if array.dtype.kind == "f" else np.ones(values.shape, bool)
        finite_rows = finite.all(axis=tuple(range(1, values.ndim)))
        for row, value, is_finite in zip(rows, values.tolist(), finite_rows, strict=True):
            if is_finite:
                answers[name][row] = value
            else:
                errors[row] = f"Output `{name}` holds NaN or infinity, which JSON has no number for."


def failure_reason(error: ExportError, inputs: dict[str, np.ndarray]) -> str:
    for name, array in inputs.items():
        if 0 in array.shape[1:]:
            return (
                f"`{name}` has shape {array.shape}: the model does not accept axes of size 0. Send at least one entry."
            )
    return f"The model cannot run on this: {str(error).rpartition('Status Message: ')[2]}"


def parse_input(
    spec: dict[str, Any], request: dict[str, Any], sizes: dict[str, int], errors: dict[int, str]
) -> np.ndarray:
    """Return an input of a request as an array.

    Adds the sizes of dynamic axes to `sizes`, and an error for each row with an invalid value to `errors`.

    Raises:
        ValueError: If the shape is wrong.
    """
    name, dtype, shape = spec["name"], spec["dtype"], spec["shape"]
    flat, received_shape = [request[name]], ()
    while {*map(type, flat)} == {list} and len(received_shape) <= len(shape):
        if len({*map(len, flat)}) > 1:
            raise ValueError(f"`{name}` has lists of different lengths. Pad them, and send lengths or a mask.")
        flat, received_shape = [*chain.from_iterable(flat)], (*received_shape, len(flat[0]))
    expected_shape = tuple(
        sizes.setdefault(axis, size) if isinstance(axis, str) else axis
        for axis, size in zip(shape, received_shape, strict=False)
    )
    has_rank = len(received_shape) == len(shape)
    if not has_rank or received_shape != expected_shape or max(sizes.values(), default=0) > MAX_SIZE:
        message = f"`{name}` must have shape {shape}, {MAX_SIZE} at most."
        raise ValueError(f"{message} Received: {received_shape}, with {sizes}.")
    is_valid = validator(dtype)
    texts = f"strings of at most {MAX_SIZE} characters, without null characters"
    expected_values = texts if dtype == "string" else f"finite numbers that fit {dtype}"
    valid = [is_valid(value) for value in flat]
    for position in [position for position, ok in enumerate(valid) if not ok]:
        # elements are in row order
        row = position // (len(flat) // received_shape[0]) if HAS_INDEPENDENT_ROWS else 0
        errors.setdefault(row, f"`{name}` must hold {expected_values}. Received: {flat[position]!r:.40}.")
    values = [value if ok else ("" if dtype == "string" else 0) for value, ok in zip(flat, valid, strict=True)]
    return np.array(values, object if dtype == "string" else dtype).reshape(received_shape)


def validator(dtype: str) -> Callable[[Any], bool]:
    """Return a function that returns True if a value of a request fits a dtype."""
    if dtype == "string":
        return lambda value: type(value) is str and len(value) <= MAX_SIZE and "\0" not in value
    if dtype == "bool":
        return lambda value: type(value) is bool
    if np.dtype(dtype).kind == "f":
        max_value = float(np.finfo(dtype).max)
        return lambda value: type(value) in (int, float) and abs(value) <= max_value  # false for NaN
    low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    return lambda value: type(value) is int and low <= value <= high
