"""A bundle behind HTTP: `BUNDLE=bundle uvicorn serve_bundle:app`, with a copy of `verify.py` beside this file."""

import asyncio
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from fastapi import FastAPI, HTTPException, Request, Response
from verify import ExportError, open_session, printable, read_manifest, run_session

MOST_BYTES, LONGEST = 8 * 2**20, 4096  # of a request, of an axis that may vary
try:
    bundle = Path(os.environ.get("BUNDLE", "bundle"))
    manifest = read_manifest(bundle)  # checks every hash
    session = open_session(bundle / "model.onnx", threads=1)  # one for all: a request runs on one core
except ExportError as error:
    sys.exit(f"error: {printable(str(error))}")
pool = ThreadPoolExecutor(os.cpu_count())  # as many requests at once as there are cores; the others wait
app = FastAPI()


@app.get("/health")
def health() -> dict[str, Any]:
    return {key: manifest.get(key) for key in ("model", "manifest_sha256", "inputs", "outputs")}


@app.post("/predict")
async def predict(request: Request) -> Response:
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > MOST_BYTES:
            raise HTTPException(413, f"A request may have {MOST_BYTES} bytes. Send fewer rows at once.")
    try:
        answer = await asyncio.get_running_loop().run_in_executor(pool, answer_to, body)
    except (ExportError, RecursionError, ValueError) as error:
        raise HTTPException(422, str(error)) from error
    return Response(answer, media_type="application/json")


def answer_to(body: bytearray) -> str:
    given, specs, sizes = json.loads(body), {spec["name"]: spec for spec in manifest["inputs"]}, {}
    if not isinstance(given, dict) or set(given) != set(specs):
        raise ValueError(f"A request is a JSON object with the inputs {[*specs]} and nothing else.")
    outputs = run_session(session, {name: taken(spec, given[name], sizes) for name, spec in specs.items()})
    return json.dumps({name: array.tolist() for name, array in outputs.items()}, allow_nan=False)


def taken(spec: dict[str, Any], value: Any, sizes: dict[str, int]) -> np.ndarray:
    name, dtype, shape = spec["name"], spec["dtype"], spec["shape"]
    try:
        found = np.array(value)
    except ValueError as error:
        raise ValueError(f"`{name}` has lists of different lengths. Pad them, and send lengths or a mask.") from error
    axes = zip(shape, found.shape, strict=False)
    wanted = [sizes.setdefault(axis, size) if isinstance(axis, str) else axis for axis, size in axes]
    if found.ndim != len(shape) or [*found.shape] != wanted or max(sizes.values(), default=0) > LONGEST:
        rule = f"`{name}` must have shape {shape}, where one name is one size, of {LONGEST} at most"
        raise ValueError(f"{rule}. Received: {found.shape}, with {sizes}.")
    finite = np.can_cast(found.dtype, dtype, "same_kind") and np.isfinite(found).all()
    if not (finite and np.allclose(array := found.astype(dtype), found, 0.01, 0.01)):  # what does not fit is far off
        raise ValueError(f"`{name}` must hold finite numbers that fit {dtype}. Received: {found.dtype}.")
    return array
