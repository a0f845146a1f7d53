"""How long each layer takes, from profiles that onnxruntime writes of runs."""

from __future__ import annotations

import itertools
import json
import re
import statistics
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .._graphs.read_only import load_graph, write_beside_weights
from .._standalone import verify
from .._stopwatch import timed_in_turns
from .layers import Layer, node_names

if TYPE_CHECKING:
    import onnx

NOT_PLACED = "not placed"  # not the name of a layer, which has no spaces
SECONDS = 0.3
QUANTILE = 0.25  # what else the machine does only ever adds to a time
WARM_UP = 2
FEWEST_RUNS, MOST_RUNS = 8, 300

Event = Mapping[str, Any]
# onnxruntime's names of what its optimizers make, where a part of them is not the name of an operator in the file
_FUSED = {"MatMulIntegerToFloat": "MatMulInteger", "DynamicQuantizeMatMul": "MatMulInteger"}
_PREFIXES = ("Fused", "Quick", "Skip", "Fast", "Bias")


def layer_times(
    model: Path,
    layers: Sequence[Layer],
    inputs: Mapping[str, np.ndarray],
    provider: str = "cpu",
    seconds: float = SECONDS,
) -> dict[str, float]:
    """Return what each layer takes of a run on one thread in milliseconds, the lower quartile of runs.

    With more threads, an operator waits for whichever of them something else on the machine keeps. What onnxruntime
    computes that no node of the file stands for is under `NOT_PLACED`, if there is any; what it takes between nodes is
    left out. Writing a profile takes longer than small operators do, and of a loop or branch each operator in it is
    written: what that costs is found beside runs without a profile, and taken off. On CUDA an operator counts until it
    is launched, not until it is done.

    Args:
        model: The ONNX file.
        layers: Its layers.
        inputs: Arrays by input name.
        provider: Where to run.
        seconds: How long to run, about.

    Raises:
        ProviderError: onnxruntime is not installed, or lacks the provider.
        BundleError: The file cannot be read or loaded.
        ExportError: onnxruntime cannot run it on the inputs.
    """
    verify.check_provider(provider)
    proto = load_graph(model)
    places = _Places(proto, layers)
    with verify.scratch_folder() as scratch:
        marked = places.marked(proto, model.parent, scratch)
        plain = verify.open_session(marked, provider, threads=1)
        profiled = verify.open_session(marked, provider, profile_prefix=str(scratch / "profile"), threads=1)
        _, taken = timed_in_turns(
            (plain, profiled), inputs, seconds, warm_up=WARM_UP, fewest=FEWEST_RUNS, most=MOST_RUNS
        )
        events = json.loads(Path(profiled.end_profiling()).read_text(encoding="utf-8"))
    runs = list(_runs(events))[WARM_UP:]
    written = statistics.median(sum(1 + within for _, within in run) for run in runs)
    alone, beside = map(min, taken)
    cost = max(0.0, beside - alone) * 1e6 / max(1, written)
    times = [places.times(run, cost) for run in runs]
    names = dict.fromkeys((*(layer.name for layer in layers), *(name for each in times for name in each)))
    return {name: float(np.quantile([each.get(name, 0.0) for each in times], QUANTILE)) / 1000 for name in names}


def _runs(events: Iterable[Event]) -> Iterator[list[tuple[Event, int]]]:
    """Yield the operators of each run in order, with how many are within each: loops and branches count as a whole."""
    ordered = sorted(events, key=lambda event: (event.get("ts", 0), -event.get("dur", 0)))
    spans = [(event["ts"], event["ts"] + event["dur"]) for event in ordered if event["name"] == "model_run"]
    nodes = [event for event in ordered if event.get("cat") == "Node" and event["name"].endswith("_kernel_time")]
    for start, end in spans:
        outermost: list[Event] = []
        within: list[int] = []
        done = start
        for event in nodes[bisect_left(nodes, start, key=itemgetter("ts")) :]:
            if event["ts"] >= end:
                break
            if event["ts"] >= done:
                outermost.append(event)
                within.append(0)
                done = event["ts"] + event["dur"]
            else:
                within[-1] += 1
        yield list(zip(outermost, within, strict=True))


class _Places:
    """Which layer an operator that onnxruntime ran comes from."""

    def __init__(self, proto: onnx.ModelProto, layers: Sequence[Layer]) -> None:
        of_node = {node: layer.name for layer in layers for node in layer.nodes}
        self._nodes = list(proto.graph.node)
        self._layers = [of_node.get(name, NOT_PLACED) for name in node_names(proto.graph)]
        self._makers = {name: number for number, node in enumerate(self._nodes) for name in node.output if name}

    def marked(self, proto: onnx.ModelProto, folder: Path, scratch: Path) -> Path:
        """Write a copy of the file in which the name of each node is its number, in bodies of functions too.

        onnxruntime begins the names of a function's nodes with the function's, but invents names where there are none.
        """
        marked = deepcopy(proto)
        numbers = {(node.domain, node.op_type): number for number, node in enumerate(marked.graph.node)}
        counted = itertools.count()
        for number, node in enumerate(marked.graph.node):
            _mark([node], number, counted)
        for function in marked.functions:
            _mark(function.node, numbers.get((function.domain, function.name), len(self._nodes)), counted)
        return write_beside_weights(marked, folder, scratch)

    def times(self, run: Sequence[tuple[Event, int]], cost: float) -> Counter[str]:
        """Return the microseconds of each layer in a run, but for `cost` for each operator within another."""
        found = [self._layer(event) for event, _ in run]
        found = [each or self._between(found, number, run[number][0]) for number, each in enumerate(found)]
        times: Counter[str] = Counter()
        for layer, (event, within) in zip(found, run, strict=True):
            times[layer or NOT_PLACED] += max(0.0, event["dur"] - cost * within)
        return times

    def _layer(self, event: Event) -> str | None:
        name, op = event["name"].removesuffix("_kernel_time"), event["args"]["op_name"]
        if marks := [int(each) for each in re.findall(r"@(\d+)@", name)]:
            numbers = [number for number in marks if number < len(self._nodes)]
        else:  # what is put in the place of nodes is called after the tensor that it makes
            inserted = name.removeprefix("InsertedPrecisionFreeCast_").removesuffix("_nchwc")
            numbers = [self._makers[each] for each in (name, inserted) if each in self._makers][:1]
        return self._layers[self._main(numbers[0], op)] if numbers else None

    def _main(self, number: int, op: str) -> int:
        """Return the node that gave a fused operator its kind: the one that is called so, at or before its last."""
        wanted = _FUSED.get(op, op)
        for prefix in _PREFIXES:
            wanted = wanted.removeprefix(prefix)
        tried = number
        for _ in range(4):
            node = self._nodes[tried]
            if node.op_type == wanted:
                return tried
            before = [self._makers[name] for name in node.input if name in self._makers]
            if not before:
                break
            tried = max(before)
        return number

    @staticmethod
    def _between(found: Sequence[str | None], number: int, event: Event) -> str | None:
        """Return the layer that a nameless operator is for: one that is on both sides, or what lays out is for."""
        after = next(filter(None, found[number + 1 :]), None)
        before = next(filter(None, reversed(found[:number])), None)
        if event["args"]["op_name"] == "ReorderInput":
            return after
        if event["args"]["op_name"] == "ReorderOutput":
            return before
        return before if before == after else None


def _mark(nodes: Iterable[onnx.NodeProto], number: int, counted: Iterator[int]) -> None:
    for node in nodes:
        node.name = f"@{number}@{next(counted)}"  # a name may be there once
