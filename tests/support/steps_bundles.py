"""A decoder in steps whose two graphs are written by hand, in a moment: for what runs a loop and asks not who made it.

A row counts down from a number, and ends when it is 0: `left` of 3 takes 3 steps, of which the last gives `END`.
"""

from pathlib import Path
from typing import Any

import numpy as np
from bundles import read_manifest
from onnx_bundles import onnx_bundle

from keras_attn_export._bundle.bundle import seal
from keras_attn_export._bundle.parity import ParityReport
from keras_attn_export._bundle.steps_manifest import KIND, seal_in_steps
from keras_attn_export._standalone import verify

END, OTHER, LONGEST = 1, 2, 6

ENCODER = "state = Identity(left) begin = Cast<to=6>(which)"
STEP = """
    one = Constant<value_float = 1.0>() zero = Constant<value_float = 0.0>() axis = Constant<value_ints = [1]>()
    next = Sub(state, one)
    ends = LessOrEqual(next, zero)
    end = Cast<to=1>(ends)
    none = Sub(next, next)
    half = Mul(seen, one)
    logits = Concat<axis = 1>(none, end, half)
    told = Cast<to=1>(token) told_column = Unsqueeze(told, axis)
    at = Cast<to=1>(position) at_column = Unsqueeze(at, axis)
    both = Concat<axis = 1>(told_column, at_column)
    entry = Unsqueeze(both, axis)
    cache_out = Concat<axis = 1>(cache, entry)
    shape = Shape<start = 1, end = 2>(cache_out) size = Cast<to=1>(shape) size_column = Add(none, size)
    shown = Concat<axis = 1>(both, size_column)
"""

FEEDS = [
    {"input": "token", "first": {"from": "start"}, "then": {"from": "token"}},
    {"input": "position", "first": {"from": "position"}, "then": {"from": "position"}},
    {
        "input": "state",
        "first": {"from": "encoder output", "name": "state"},
        "then": {"from": "step output", "name": "next"},
    },
    {
        "input": "cache",
        "first": {"from": "zeros", "shape": [0, 2]},
        "then": {"from": "step output", "name": "cache_out"},
    },
    {
        "input": "seen",
        "first": {"from": "encoder input", "name": "seen"},
        "then": {"from": "encoder input", "name": "seen"},
    },
]


def counting_bundle(folder: Path, **entries: Any) -> Path:
    """Write a decoder in steps that counts down; entries of its manifest may be others, and `...` removes one."""
    inputs = {
        "left": ("float32", ("batch", 1)),
        "seen": ("float32", ("batch", 1)),
        "which": ("int64", ("batch",)),
    }
    encoder = onnx_bundle(
        folder / "encoder",
        ENCODER,
        inputs,
        {"state": ("float32", ("batch", 1)), "begin": ("int32", ("batch",))},
    )
    onnx_bundle(
        folder / "step",
        STEP,
        {
            "token": ("int32", ("batch",)),
            "position": ("int64", ("batch",)),
            "state": ("float32", ("batch", 1)),
            "cache": ("float32", ("batch", "cache_length", 2)),
            "seen": ("float32", ("batch", 1)),
        },
        {
            "logits": ("float32", ("batch", 3)),
            "next": ("float32", ("batch", 1)),
            "cache_out": ("float32", ("batch", "longer", 2)),
            "shown": ("float32", ("batch", 3)),
        },
    )
    for part in ("encoder", "step"):
        _answer_by_itself(folder / part)
    (folder / "parity").mkdir()
    case = verify.Case("counts", inputs_of([3, 1, 2]), answer_of([3, 1, 2]))
    verify.save_cases(folder / verify.CASES, [case])
    (folder / "parity" / "report.json").write_text(ParityReport("cpu", ()).to_json())
    manifest = {
        "kind": KIND,
        "model": "counting",
        "inputs": verify.read_manifest(encoder)["inputs"],
        "outputs": [
            {"name": "tokens", "dtype": "int32", "shape": ["batch", LONGEST]},
            {"name": "lengths", "dtype": "int32", "shape": ["batch"]},
            {"name": "scores", "dtype": "float32", "shape": ["batch"]},
            {"name": "shown", "dtype": "float32", "shape": ["batch", LONGEST, 3]},
        ],
        "feeds": FEEDS,
        "start": {"from": "encoder output", "name": "begin"},
        "end": END,
        "max_length": LONGEST,
        "logits": "logits",
        "collected": {"shown": "shown"},
        "precision": "float32",
        "versions": {},
        "parity": {"tolerance": {"relative": 0.0, "absolute": 1e-5}, "cases": 1},
        **entries,
    }
    seal_in_steps(folder, {name: entry for name, entry in manifest.items() if entry is not ...})
    return folder


def _answer_by_itself(folder: Path) -> None:
    """Let what the file of a part gives be its golden outputs."""
    inputs = {
        spec["name"]: np.ones([2 if isinstance(size, str) else size for size in spec["shape"]], spec["dtype"])
        for spec in read_manifest(folder)["inputs"]
    }
    (outputs,) = verify.run_cases(folder / verify.MODEL, [verify.Case("ones", inputs, {})])
    verify.save_cases(folder / verify.CASES, [verify.Case("ones", inputs, outputs)])
    (folder / "parity" / "report.json").write_text(ParityReport("cpu", ()).to_json())
    manifest = read_manifest(folder)
    (folder / verify.MANIFEST).unlink()  # or it would be a file of its own list
    seal(folder, manifest)


def inputs_of(lefts: Any) -> dict[str, np.ndarray]:
    """Return inputs that take so many steps each."""
    left = np.array(lefts, "float32")[:, np.newaxis]
    return {"left": left, "seen": _seen(len(left))[:, np.newaxis], "which": np.arange(len(left)) + 7}


def _seen(count: int) -> np.ndarray:
    return np.linspace(0.3, 0.8, count).astype("float32")


def answer_of(lefts: Any, longest: int = LONGEST) -> dict[str, np.ndarray]:
    """Return what the decoder gives for them, worked out a row at a time."""
    count = len(lefts)
    tokens = np.full((count, longest), END, "int32")
    scores, shown = np.zeros(count), np.zeros((count, longest, 3), "float32")
    lengths = np.minimum(lefts, longest).astype("int32")
    for row, left in enumerate(lefts):
        last = row + 7
        for number in range(lengths[row]):
            ends = number + 1 >= left
            logits = np.array([0.0, float(ends), _seen(count)[row]])
            shown[row, number] = last, number, number + 1  # of which the last is the length of the cache
            last = tokens[row, number] = END if ends else OTHER
            scores[row] += logits.max() - np.log(np.exp(logits).sum())
    return {"tokens": tokens, "lengths": lengths, "scores": scores.astype("float32"), "shown": shown}
