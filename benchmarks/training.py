"""How much time and memory does a training step of our layers take, with and without blocks, and against Keras's?"""

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
from _contestant import Contestant
from _harness import Options
from _in_keras import options_of
from _plans import HALF_FILLED, Plan, Shape
from _race import Case
from _stats import bar, inverse, rows_of, share, speed

PLAIN, BLOCKS = "query_block_size=None", 'query_block_size="auto"'
BLOCK_SIZES = {PLAIN: None, BLOCKS: "auto"}
BACKENDS = {  # with the `jit_compile` of the model
    "TensorFlow graph": ("tensorflow", False),
    "TensorFlow XLA": ("tensorflow", True),
    "PyTorch eager": ("torch", False),
    "JAX jit": ("jax", True),
}
GRAPH, XLA, *OTHERS = BACKENDS

# glibc gives memory back to the system after a step or keeps it, by where in the heap a block happens to lie. In two
# processes that allocate the same, one step may thus cost a quarter more. These keep it; other allocators ignore them.
KEPT_PAGES = {"MALLOC_TRIM_THRESHOLD_": str(2**31 - 1), "MALLOC_MMAP_THRESHOLD_": str(2**30)}


def _contestant(label: str, backend: str, plan: Plan, whose: str = "ours", **arguments: Any) -> Contestant:
    name, jit = BACKENDS[backend]
    environment = {"KERAS_BACKEND": name, **KEPT_PAGES}
    return Contestant(label, "_in_keras.training", options_of(plan, whose, jit, **arguments), environment)


def _case(shape: Shape, contestants: list[Contestant], peer: str, **facts: str) -> Case:
    target = np.random.default_rng(2).standard_normal((shape.B, shape.queries, shape.plan.D), dtype="float32")
    return Case({**shape.inputs(), "target": target}, contestants, {**shape.facts(), **facts}, peer)


# --------------------------------------------------------------------------- one large size

LARGE = Shape(Plan("additive", 256), 2, 512, HALF_FILLED)
TINY = Shape(Plan("additive", 8), 2, 16, HALF_FILLED)
TIME = 1.05  # over that of the plain form
MEMORY = {GRAPH: 1 / 8, XLA: 1 / 5}  # of the plain form's


def additive_training(options: Options) -> dict[str, Any]:
    """Race additive attention in blocks of queries against its plain form, as a graph and compiled."""
    shape = TINY if options.quick else LARGE
    contestants = [
        _contestant(f"{label}, {backend}", backend, shape.plan, query_block_size=size)
        for backend, (label, size) in itertools.product(MEMORY, BLOCK_SIZES.items())
    ]
    case = options.race(_case(shape, contestants, f"{PLAIN}, {GRAPH}"))
    ms = {label: row["ms"]["median"] for label, row in rows_of(case).items()}
    bars = []
    for backend, limit in MEMORY.items():
        plain, blocks = (f"{label}, {backend}" for label in BLOCK_SIZES)
        text = f"{backend}: extra memory relative to {PLAIN}"
        bars += [
            bar(f"{backend}: time relative to {PLAIN}", ms[blocks] / ms[plain], TIME, at_least=False),
            bar(text, share(case, blocks, plain), limit, at_least=False),
        ]
    return {"cases": [case], "bars": bars}


# --------------------------------------------------------------------------- the default, at every size

SIZES = (  # B, Tq, Tk, units
    (32, 8, 8, 16), (64, 16, 16, 32), (32, 32, 32, 64), (64, 1, 64, 128), (64, 32, 48, 64), (16, 64, 64, 128),
    (128, 20, 20, 256), (8, 128, 128, 128), (4, 256, 256, 128), (1, 1024, 1024, 64), (2, 512, 512, 256),
)  # fmt: skip
CAUSAL = replace(LARGE, plan=replace(LARGE.plan, causal=True))
SPEED = 1.6  # of the plain form's, where a causal mask hides half of the pairs


def training_defaults(options: Options) -> dict[str, Any]:
    """Race the default of additive attention against its plain form from tiny sizes to large ones."""
    shapes = [Shape(Plan("additive", U), B, Tk, HALF_FILLED, Tq if Tq != Tk else 0) for B, Tq, Tk, U in SIZES]
    backends = [GRAPH] if options.quick else [GRAPH, *OTHERS]
    cases = []
    for backend, shape in itertools.product(backends, [TINY] if options.quick else [*shapes, CAUSAL]):
        contestants = [
            _contestant(label, backend, shape.plan, query_block_size=size) for label, size in BLOCK_SIZES.items()
        ]
        cases.append(options.race(_case(shape, contestants, PLAIN, backend=backend)))
    text = f"time relative to {PLAIN}, worst size"
    bars = [bar(f"{each}: {text}", _times(cases, "backend", each, BLOCKS), TIME, at_least=False) for each in backends]
    causal = next((case for case in cases if case["size"] == str(CAUSAL)), None)  # the first is that of a graph
    if causal:
        bars.append(bar(f"{GRAPH}, {CAUSAL}: speed relative to {PLAIN}", speed(causal, BLOCKS), SPEED))
    return {"cases": cases, "bars": bars}


def _times(cases: list[dict[str, Any]], fact: str, value: str, label: str) -> list[float]:
    """Return the times over the peer's in all cases with a fact, where the contestant took part."""
    found = [inverse(speed(case, label)) for case in cases if case[fact] == value]
    return [each for each in found if each is not None]


# --------------------------------------------------------------------------- several heads

OURS, THEIRS = "MultiHeadAttention(DotProductAttention())", "keras.layers.MultiHeadAttention"
OF_HEADS = Plan("multi-head", 256, 4)
MASKS = {"no mask": {"lengths": ""}, "lengths": {}, "causal": {"lengths": "", "causal": True}}
OVER_KERAS = 1.1  # time


def multi_head_training(options: Options) -> dict[str, Any]:
    """Race multi-head attention against Keras's own layer, on every backend."""
    backends, places, masks = list(BACKENDS), ((8, 128), (2, 512)), list(MASKS)
    if options.quick:
        backends, places, masks = [XLA, OTHERS[0]], ((2, 8),), ["lengths"]
    cases = []
    for backend, (B, T), mask in itertools.product(backends, places, masks):
        plan = replace(OF_HEADS, **MASKS[mask])
        contestants = [_contestant(THEIRS, backend, plan, "theirs"), _contestant(OURS, backend, plan)]
        size = f"{backend}, {Shape(OF_HEADS, B, T)}"
        cases.append(options.race(_case(Shape(plan, B, T, HALF_FILLED), contestants, THEIRS, size=size, fill=mask), 40))
    text = "time relative to Keras's layer, worst mask"
    bars = [
        bar(f"{size}: {text}", _times(cases, "size", size, OURS), OVER_KERAS, at_least=False)
        for size in dict.fromkeys(case["size"] for case in cases)
    ]
    return {"cases": cases, "bars": bars}
