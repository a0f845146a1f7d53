"""How much faster does a causal mask or a window make long sequences?"""

from dataclasses import dataclass
from typing import Any

import _harness
import _models
import keras
from _plans import KerasDot
from _process import Contestant
from _race import Case, race
from _sizes import ALL_VALID, DOT, Size, random_inputs
from _stats import bar

from keras_attn import DotProductAttention
from keras_attn_export import export_model

SIZE = Size(DOT, B=1, Tq=4096, Tk=4096, D=64)
QUICK_SIZE = Size(DOT, B=1, Tq=64, Tk=64, D=8)
REACH = 128  # keys to either side: a window of 256


@dataclass(frozen=True, eq=False)  # each is itself alone, and a key of dicts
class Order:
    """What a layer sees, as it is called."""

    label: str
    arguments: dict[str, Any]
    asked: float = 0.0


FULL = Order("all keys", {})
CAUSAL = Order("causal", {"use_causal_mask": True}, 1.6)
WINDOW = Order("window of 256", {"window": (REACH, REACH)}, 6.0)


def measure(options: _harness.Options) -> dict[str, Any]:
    size = QUICK_SIZE if options.quick else SIZE
    contestants = [
        *(_ours(order, size, options) for order in (FULL, CAUSAL, WINDOW)),
        *(_theirs(order, size, options) for order in (FULL, CAUSAL)),
    ]
    inputs = random_inputs(size, ALL_VALID)
    del inputs["valid_lens"]
    facts = {"size": str(size), "shape": size.to_json(), "elements": size.elements, "fill": ALL_VALID}
    cases = race([Case(inputs, contestants, facts, _label(FULL, "ours"))], options.work, **options.pace())
    return {
        "title": "Causal masks and windows",
        "cases": cases,
        "bars": [] if options.quick else _bars(cases[0]["rows"]),
    }


def _label(order: Order, whose: str) -> str:
    return f"{whose}, {order.label}"


def _model(layer: Any, order: Order, size: Size) -> keras.Model:
    sequences = [keras.Input((None, size.D), name=name) for name in ("queries", "keys", "values")]
    return keras.Model(sequences, layer(*sequences, **order.arguments))


def _ours(order: Order, size: Size, options: _harness.Options) -> Contestant:
    model = _model(DotProductAttention(), order, size)
    bundle = export_model(model, options.work / f"ours {order.label}", progress=False)
    file = str(bundle.path / "model.onnx")
    return Contestant(_label(order, "ours"), options={"model": file}, computes=order.label)


def _theirs(order: Order, size: Size, options: _harness.Options) -> Contestant:
    file = _models.stock_export(_model(KerasDot(), order, size), options.work / f"theirs {order.label}.onnx")
    whose = "keras.layers.Attention, Keras's exporter"
    return Contestant(_label(order, whose), options={"model": str(file)}, computes=order.label)


def _bars(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Ratios to our own layer that sees all keys, and of the window to our causal one."""
    faster = {row["contestant"]: row["faster"]["median"] for row in rows}
    of = {order: faster[_label(order, "ours")] for order in (CAUSAL, WINDOW)}
    text = "over our layer that sees all keys"
    return [
        *(bar(f"{order.label}: speed {text}", of[order], order.asked, at_least=True) for order in (CAUSAL, WINDOW)),
        bar(f"{WINDOW.label}: speed over our causal layer", of[WINDOW] / of[CAUSAL], 3.0, at_least=True),
    ]


if __name__ == "__main__":
    _harness.run("order_of_positions", __doc__, measure)
