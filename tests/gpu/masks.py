"""The masks of the contract: what each is called with, and inputs drawn for all of them. NumPy alone."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .kinds import Arrays, Kind


@dataclass(frozen=True)
class Mask:
    """One way to say which keys take part.

    Attributes:
        inputs: Arguments of the call, and the input of the model that each is made of.
        options: Arguments that are no inputs.
    """

    inputs: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)


MASKS = {
    "all": Mask(),
    "lengths": Mask({"valid_lens": "valid_lens"}),
    "query_lengths": Mask({"valid_lens": "query_lens"}),
    "keys_mask": Mask({"keys_mask": "keys_seen"}),
    "mask_of_keys": Mask({"attention_mask": "keys_attended"}),
    "mask_of_pairs": Mask({"attention_mask": "pair_numbers"}),
    "causal": Mask(options={"causal": True}),
    "causal_lengths": Mask({"valid_lens": "valid_lens"}, {"causal": True}),
    "window": Mask(options={"window": (2, 1)}),
    "bias": Mask({"score_bias": "pair_numbers"}),
    "several": Mask(
        {"valid_lens": "query_lens", "keys_mask": "keys_seen", "attention_mask": "pair_numbers"},
        {"causal": True, "window": (4, None)},
    ),
}
LENGTHS = ("valid_lens", "query_lens")
BOOLEANS = ("keys_seen", "keys_attended")
# One input of pairs serves as bias and, compared with this, as mask: of two the exporter takes the axes for static.
LEAST_ATTENDED = -0.5
SEQUENCES = ("queries", "keys", "values")


def mask_inputs(masks: Iterable[str]) -> list[str]:
    """Names of the inputs that these masks need, each once."""
    return list(dict.fromkeys(name for mask in masks for name in MASKS[mask].inputs.values()))


def shape_of(name: str, kind: Kind, B: Any, Tq: Any, Tk: Any) -> tuple[Any, ...]:
    """The shape of an input; sizes may be None."""
    return {
        "queries": (B, Tq, kind.Dq),
        "keys": (B, Tk, kind.Dk),
        "values": (B, Tk, kind.Dv),
        "valid_lens": (B,),
        "query_lens": (B, Tq),
        "keys_seen": (B, Tk),
        "keys_attended": (B, 1, Tk),
        "pair_numbers": (B, Tq, Tk),
    }[name]


def dtype_of(name: str) -> str:
    return "int32" if name in LENGTHS else "bool" if name in BOOLEANS else "float32"


def drawn(kind: Kind, masks: Iterable[str], B: int, Tq: int, Tk: int, seed: int) -> Arrays:
    """Standard normal numbers; of masks the last example has no key where there are two or more.

    Lengths go from 0 to Tk: what lies beyond is a promise of its own.
    """
    rng = np.random.default_rng([seed, B, Tq, Tk])
    arrays = {}
    for name in (*SEQUENCES, *mask_inputs(masks)):
        shape = shape_of(name, kind, B, Tq, Tk)
        if name in LENGTHS:
            arrays[name] = rng.integers(1 if B == 1 else 0, Tk + 1, shape).astype("int32")
        elif name in BOOLEANS:
            arrays[name] = rng.random(shape) < 0.7
        else:
            arrays[name] = rng.standard_normal(shape).astype("float32")
    return without_keys(arrays, -1) if B > 1 else arrays


def without_keys(arrays: Arrays, example: int) -> Arrays:
    """The same inputs, but that every mask hides all keys from one example."""
    changed = {name: array.copy() for name, array in arrays.items()}
    for name in changed:
        if name in (*LENGTHS, *BOOLEANS):
            changed[name][example] = 0
        elif name == "pair_numbers":
            changed[name][example] = 2 * LEAST_ATTENDED - np.abs(changed[name][example])
    return changed


def call_arguments(mask: str, inputs: Mapping[str, Any], kind: Kind) -> dict[str, Any]:
    """The arguments of the oracle, whose names those of the layers are but for the causal mask.

    Args:
        mask: One of `MASKS`.
        inputs: Arrays, or tensors of Keras.
        kind: The layer; with heads each has a bias of its own.
    """
    given = {name: inputs[source] for name, source in MASKS[mask].inputs.items()}
    if MASKS[mask].inputs.get("attention_mask") == "pair_numbers":
        given["attention_mask"] = given["attention_mask"] > LEAST_ATTENDED
    if "score_bias" in given and kind.heads is not None:
        factors = np.linspace(-1, 1, kind.heads[0], dtype="float32")[:, None, None]
        given["score_bias"] = given["score_bias"][:, None] * factors
    return given | dict(MASKS[mask].options)
