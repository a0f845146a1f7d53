"""Time and memory of a training step of attention layers: with and without query blocks, and of Keras."""

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from _contestant import Contestant
from _harness import Options
from _in_keras import make_options
from _plans import HALF_FILLED, Plan, PlannedCall
from _race import Case

NO_BLOCKS, BLOCKS = "query_block_size=None", 'query_block_size="auto"'
BLOCK_SIZES = {NO_BLOCKS: None, BLOCKS: "auto"}
BACKENDS = {  # backend, and `jit_compile` of the model
    "TensorFlow graph": ("tensorflow", False),
    "TensorFlow XLA": ("tensorflow", True),
    "PyTorch eager": ("torch", False),
    "JAX jit": ("jax", True),
}
GRAPH, XLA, *OTHER_BACKENDS = BACKENDS

# glibc returns memory to the system after a step, or keeps it, depending on the position of a block in the heap. So in
# two processes with equal allocations, a step may cost a quarter more. These settings keep the memory; other allocators
# ignore them.
ALLOCATOR_SETTINGS = {"MALLOC_TRIM_THRESHOLD_": str(2**31 - 1), "MALLOC_MMAP_THRESHOLD_": str(2**30)}


def _make_contestant(label: str, backend: str, plan: Plan, builder: str = "build_ours", **arguments: Any) -> Contestant:
    name, jit = BACKENDS[backend]
    environment = {"KERAS_BACKEND": name, **ALLOCATOR_SETTINGS}
    return Contestant(label, "_in_keras.build_training", make_options(plan, builder, jit, **arguments), environment)


def _make_case(call: PlannedCall, name: str, contestants: list[Contestant], peer: str) -> Case:
    target = np.random.default_rng(2).standard_normal((call.B, call.query_count, call.plan.D), dtype="float32")
    return Case({**call.make_inputs(), "target": target}, contestants, name, peer)


# --------------------------------------------------------------------------- additive attention

SIZES = (  # B, Tq, Tk, units
    (32, 8, 8, 16), (64, 16, 16, 32), (32, 32, 32, 64), (64, 1, 64, 128), (64, 32, 48, 64), (16, 64, 64, 128),
    (128, 20, 20, 256), (8, 128, 128, 128), (4, 256, 256, 128), (1, 1024, 1024, 64), (2, 512, 512, 256),
)  # fmt: skip
CAUSAL = PlannedCall(Plan("additive", 256, causal=True), 2, 512, HALF_FILLED)
TINY = PlannedCall(Plan("additive", 8), 2, 16, HALF_FILLED)


def run_cases(options: Options) -> list[dict[str, Any]]:
    """Race additive attention with and without query blocks, and multi-head attention against Keras's layer."""
    return [*_race_additive(options), *_race_heads(options)]


def _race_additive(options: Options) -> Iterator[dict[str, Any]]:
    calls = [PlannedCall(Plan("additive", U), B, Tk, HALF_FILLED, Tq if Tq != Tk else 0) for B, Tq, Tk, U in SIZES]
    runs = [*itertools.product([GRAPH, *OTHER_BACKENDS], [*calls, CAUSAL]), (XLA, calls[-1])]
    for backend, call in [(GRAPH, TINY)] if options.quick else runs:
        contestants = [
            _make_contestant(label, backend, call.plan, query_block_size=size) for label, size in BLOCK_SIZES.items()
        ]
        yield options.race(_make_case(call, f"{backend}, {call}", contestants, NO_BLOCKS))


# --------------------------------------------------------------------------- multi-head attention

OURS, THEIRS = "MultiHeadAttention(DotProductAttention())", "keras.layers.MultiHeadAttention"
HEADS_PLAN = Plan("multi-head", 256, 4)
MASKS = {"no mask": {"lengths": ""}, "lengths": {}, "causal": {"lengths": "", "causal": True}}


def _race_heads(options: Options) -> Iterator[dict[str, Any]]:
    runs = itertools.product(BACKENDS, ((8, 128), (2, 512)), MASKS)
    for backend, (B, T), mask in [(XLA, (2, 8), "lengths")] if options.quick else runs:
        plan = replace(HEADS_PLAN, **MASKS[mask])
        contestants = [_make_contestant(THEIRS, backend, plan, "build_theirs"), _make_contestant(OURS, backend, plan)]
        name = f"{backend}, {HEADS_PLAN}, B{B} T{T}, {mask}"
        yield options.race(_make_case(PlannedCall(plan, B, T, HALF_FILLED), name, contestants, THEIRS), 40)
