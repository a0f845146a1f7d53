"""Who takes part in the inference benchmarks."""

from pathlib import Path
from typing import Any

import _models
import numpy as np
from _harness import Options
from _process import Contestant
from _race import Case
from _sizes import ALL_VALID, DOT, Size, random_inputs

from keras_attn_export import ExportError, ParityError
from keras_attn_export._options import ADAPTIVE

PEER = "plain ONNX, as Keras exports it"
LOWERINGS = (ADAPTIVE, "portable")


def ours(lowering: str) -> str:
    """Return what tables call our export."""
    return f'ours, lowering="{lowering}"'


class Contenders:
    """The contestants on one size: the files are written once, whatever the lengths."""

    def __init__(self, size: Size, options: Options, work: Path) -> None:
        self.size, self.options, self.work = size, options, work
        self.model = _models.attention_model(size)
        work.mkdir(parents=True)
        self.weights = str(work / "weights.npz")
        np.savez(self.weights, *self.model.get_weights())
        self.stock = _models.stock_export(self.model, work / "stock.onnx")
        self.exports: dict[str, Contestant] = {}

    def case(self, fill: str, contestants: list[Contestant], size: Size | None = None, **facts: Any) -> Case:
        """Return a case of these contestants, with lengths that fill so much of this size or of another one."""
        size = size or self.size
        shown = {"size": str(size), "shape": size.to_json(), "elements": size.elements, "fill": fill}
        return Case(random_inputs(size, fill), contestants, {**shown, **facts}, PEER)

    def peer(self) -> Contestant:
        """Return the file that Keras writes, in onnxruntime."""
        return Contestant(PEER, options={"model": str(self.stock)})

    def ours(self, lowering: str) -> Contestant:
        """Return our file; where this version cannot write it, a contestant that says so."""
        if lowering not in self.exports:
            self.exports[lowering] = self._export(lowering)
        return self.exports[lowering]

    def _export(self, lowering: str) -> Contestant:
        try:
            file, chosen = _models.our_export(self.model, self.work / lowering, lowering, self.options.provider)
        except ParityError:
            raise  # a wrong file is no missing one
        except ExportError as error:
            return Contestant(ours(lowering), unavailable=str(error))
        return Contestant(ours(lowering), options={"model": str(file)}, note="" if chosen == lowering else chosen)

    def tensorflow(self) -> list[Contestant]:
        """Return our layer in TensorFlow, as a graph and compiled, and the layer that Keras has."""
        named = "Attention" if self.size.layer == DOT else "AdditiveAttention"
        xla = self._tensorflow(f"keras.layers.{named}, TensorFlow XLA", layer="keras", jit=True)
        return [
            self._tensorflow("our layer, TensorFlow graph"),
            self._tensorflow("our layer, TensorFlow XLA", jit=True),
            self._tensorflow(f"keras.layers.{named}, TensorFlow graph", layer="keras"),
            *([] if self.options.quick else [xla]),
        ]

    def _tensorflow(self, label: str, *, layer: str = "ours", jit: bool = False) -> Contestant:
        options = {"size": self.size.to_json(), "weights": self.weights, "layer": layer, "jit": jit}
        return Contestant(label, "tensorflow", options, optional=jit)

    def torch(self, fill: str) -> list[Contestant]:
        """Return the same in PyTorch: eager, compiled, and with its fused function for dot products."""
        layer = self.size.layer
        forms = [(layer, "PyTorch eager", False), (layer, "PyTorch torch.compile", True)]
        if layer == DOT:
            forms.append(("sdpa", "PyTorch SDPA, mask", False))
            if fill == ALL_VALID:
                forms.append(("sdpa without mask", "PyTorch SDPA, no mask", False))
        return [
            Contestant(label, "torch", {"form": form, "compile": compiled, "weights": self.weights}, optional=compiled)
            for form, label, compiled in forms
            if not (compiled and self.options.quick)
        ]

    def everyone(self, fill: str) -> Case:
        """Return a case with all of them."""
        ours = [self.ours(lowering) for lowering in LOWERINGS]
        return self.case(fill, [self.peer(), *ours, *self.tensorflow(), *self.torch(fill)])


def find(results: list[dict[str, Any]], size: Size, fill: str, label: str) -> dict[str, Any] | None:
    """Return the row of a contestant, or None where it was not timed."""
    rows = (row for r in results if (r["size"], r["fill"]) == (str(size), fill) for row in r["rows"])
    return next((row for row in rows if row["contestant"] == label and "ms" in row), None)


def speed(results: list[dict[str, Any]], size: Size, fill: str) -> float | None:
    """Return how many times faster than the peer ours is."""
    row = find(results, size, fill, ours(ADAPTIVE))
    return row["faster"]["median"] if row and row["faster"] else None


def memory_share(results: list[dict[str, Any]], size: Size, fill: str) -> float | None:
    """Return the extra memory of ours over that of the peer."""
    row, peer = find(results, size, fill, ours(ADAPTIVE)), find(results, size, fill, PEER)
    return row["memory"] / peer["memory"] if row and peer else None
