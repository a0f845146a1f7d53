"""The same functions in PyTorch, eager and by its `scaled_dot_product_attention`, where it is installed."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from .index import Entry, Row, read_weights
from .kinds import ADDITIVE, Arrays, Kind
from .sessions import freed, timed
from .sizes import ALL, FILLS, MOST_ON_CPU, elements, inputs_of, sizes_of
from .timing import held_to_plain, problem_of


def peers(folder: Path, entry: Entry, scratch: Path, quick: bool = False) -> list[Row]:
    """The rows of PyTorch for the layer of a bundle; none where it is not installed.

    Its CUDA may be another than onnxruntime's, so that each has a process of its own.
    """
    try:
        import torch
    except ImportError:
        return []
    device = "cuda" if torch.cuda.is_available() else "cpu"
    kind, weights = Kind.from_json(entry["kind"]), read_weights(folder, entry["name"])
    rows = []
    for size in sizes_of(entry["layer"], quick=quick):
        if device == "cpu" and elements(kind, size) >= MOST_ON_CPU:
            continue
        for fill in FILLS:
            for precision, tf32 in _ways(kind, device):
                form = "torch, eager" if kind.score == ADDITIVE else "torch, SDPA"
                row: Row = {"bundle": "", "layer": entry["layer"], "form": form, "precision": precision, "tf32": tf32}
                row |= {"where": f"torch {device}", "size": str(size), "fill": fill, "problem": None}
                arrays = inputs_of(kind, size, fill)
                try:
                    causal = "causal" in entry["layer"]
                    row |= _timed(kind, weights, arrays, row, device, scratch, causal=causal, quick=quick)
                except Exception as error:  # noqa: BLE001 - whatever fails is a row, and the others go on
                    row["problem"] = problem_of(error)
                freed()
                if device == "cuda":
                    torch.cuda.empty_cache()
                rows.append({**row, "passed": True})  # not ours to pass
    return rows


def _ways(kind: Kind, device: str) -> list[tuple[str, bool]]:
    """Precisions, and whether TF32 is on."""
    if device == "cpu":
        return [("float32", False)]
    halves = [] if kind.score == ADDITIVE else [("float16", False)]
    return [("float32", False), ("float32", True), *halves]


def _timed(
    kind: Kind, weights: Arrays, arrays: Arrays, row: Row, device: str, scratch: Path, *, causal: bool, quick: bool
) -> Row:
    import torch

    torch.backends.cuda.matmul.allow_tf32 = row["tf32"]
    dtype = torch.float16 if row["precision"] == "float16" else torch.float32
    on_device = {name: torch.as_tensor(array, device=device) for name, array in (weights | arrays).items()}
    tensors = {name: tensor.to(dtype) if tensor.is_floating_point() else tensor for name, tensor in on_device.items()}
    call = (_additive if kind.score == ADDITIVE else _products)(kind, tensors, filled=row["fill"] == ALL, causal=causal)

    def run() -> Any:
        with torch.inference_mode():
            output = call()
        if device == "cuda":
            torch.cuda.synchronize()
        return output

    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    times = timed(run, quick=quick)
    told: Row = {"ms": times.median, "p10": times.p10, "p90": times.p90, "runs": times.runs}
    if device == "cuda":
        told["memory_mib"] = torch.cuda.max_memory_allocated() // 2**20
    output = run().float().cpu().numpy()
    ours = {**row, "where": device}  # what the plain form gave there
    return told | held_to_plain(np.asarray(output), ours, scratch)


def _mask(tensors: dict[str, Any], *, filled: bool, causal: bool) -> Any:
    """Which pairs take part, `(B, 1, Tq, Tk)`; None where all do, or the causal mask says it alone."""
    import torch

    if filled:
        return None
    B, T = tensors["keys"].shape[:2]
    places = torch.arange(T, device=tensors["keys"].device)
    mask = (places < tensors["valid_lens"][:, None])[:, None, None, :]
    return mask & (places <= places[:, None]) if causal else mask.expand(B, 1, T, T)


def _products(kind: Kind, tensors: dict[str, Any], *, filled: bool, causal: bool) -> Callable[[], Any]:
    import torch

    mask = _mask(tensors, filled=filled, causal=causal)
    H = 1 if kind.heads is None else kind.heads[0]

    def heads(name: str, kernel: str) -> Any:
        found = tensors[name]
        if kind.heads is not None:
            found = found @ tensors[kernel] + tensors[f"{kernel}_bias"]
        return found.unflatten(-1, (H, -1)).transpose(1, 2)

    def call() -> Any:
        sequences = heads("queries", "W_q"), heads("keys", "W_k"), heads("values", "W_v")
        attention = torch.nn.functional.scaled_dot_product_attention
        found = attention(*sequences, attn_mask=mask, is_causal=causal and filled).transpose(1, 2).flatten(-2)
        return found if kind.heads is None else found @ tensors["W_o"] + tensors["W_o_bias"]

    return call


def _additive(kind: Kind, tensors: dict[str, Any], *, filled: bool, causal: bool) -> Callable[[], Any]:
    import torch

    mask = _mask(tensors, filled=filled, causal=causal)

    def call() -> Any:
        queries, keys = tensors["queries"] @ tensors["W_q"], tensors["keys"] @ tensors["W_k"]
        scores = (torch.tanh(queries[:, :, None] + keys[:, None]) @ tensors["w_v"])[..., 0]
        scores = scores if mask is None else scores.masked_fill(~mask[:, 0], float("-inf"))
        return torch.softmax(scores, -1) @ tensors["values"]

    return call
