"""Where each input of a golden case comes from: drawn by what the input feeds, or made from the user's samples."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np

from .._bundle.arrays import as_dtype
from .._errors import InputError
from .._internals.keras_internals import functional_of, nodes_of
from .signature import InputSpec, Signature

Shape = tuple[int, ...]

# How lengths are set in a case, by name: rows cycle through what the function gives for a number of keys.
LENGTHS: dict[str, Callable[[int], list[int]]] = {
    "mixed": lambda keys: [max(keys - 1, 1), 1, keys],
    "zero": lambda keys: [0],
    "one": lambda keys: [1],
    "full": lambda keys: [keys],
    "over-full": lambda keys: [keys + 3],
    "negative": lambda keys: [-1, keys],
    "every": lambda keys: [0, keys + 1, 1, keys, -2, keys // 2],
}


@dataclass(frozen=True)
class Source:
    """Makes arrays for one input.

    `draw` takes a shape and a generator. For an input of lengths, `keys` is the tensor of the model whose axis -2
    they count (axis -1 for scores), or `None` where only the sizes of the case are known, and `padded` names the inputs
    that are the keys or values themselves: what stands there beyond a length of shape (B,) must not matter. Lengths
    that feed an `Embedding` too stay `below` its size.
    """

    draw: Callable[[Shape, np.random.Generator], np.ndarray]
    lengths: bool = False
    keys: Any = None
    keys_axis: int = -2
    padded: tuple[str, ...] = ()
    below: int | None = None
    sampled: bool = False


@dataclass(frozen=True)
class _Use:
    """One place where an input is used: the operation, the argument it is bound to, and all that is bound beside it."""

    operation: Any
    argument: str
    bound: Mapping[str, Any]
    inner: bool  # inside a nested model, whose tensors cannot be computed from the outer inputs


def sources(model: keras.Model, signature: Signature, given: Mapping[str, np.ndarray]) -> dict[str, Source]:
    """Return the source of every input.

    Floats are drawn normal, booleans at even odds, integers that feed an `Embedding` within its range, integers that
    feed `valid_lens` within the keys' length. A sample, where `given`, is resized instead.

    Raises:
        InputError: An integer input feeds something else and has no sample.
    """
    functional = functional_of(model)
    names = [spec.name for spec in signature.inputs]
    tensors = {} if functional is None else dict(zip(names, functional.inputs, strict=True))
    made = {}
    for index, spec in enumerate(signature.inputs):
        uses = list(_uses(functional, functional.inputs[index])) if functional is not None else None
        made[spec.name] = _source(spec, uses, given.get(spec.name), tensors)
    return made


def flat_samples(signature: Signature, samples: Mapping[str, Any] | None) -> dict[str, np.ndarray]:
    """Return the samples by input name, in the model's dtypes.

    Raises:
        InputError: A name is unknown, or a dtype or shape does not fit.
    """
    if not samples:
        return {}
    if not isinstance(samples, Mapping):
        raise InputError(f"`sample_inputs` must be a mapping from names to arrays. Received: {type(samples).__name__}.")
    specs = {spec.name: spec for spec in signature.inputs}
    named: dict[str, Any] = {}
    for path, value in keras.tree.flatten_with_path(dict(samples)):
        parts = [str(part) for part in path]
        # nested inputs go by their whole path in a subclassed model, by their own name in a functional one
        joined = "_".join(parts)
        named[joined if joined in specs else parts[-1]] = value
    if unknown := sorted(set(named) - set(specs)):
        raise InputError(
            f"`sample_inputs` names {list(named)}, of which the model does not take {unknown}. It takes {list(specs)}."
        )
    arrays = {name: _fitting(value, specs[name]) for name, value in named.items()}
    batches = {array.shape[0] for name, array in arrays.items() if specs[name].shape and specs[name].shape[0] is None}
    if len(batches) > 1:
        raise InputError(f"`sample_inputs` must agree in their batch axis. Received batches of {sorted(batches)}.")
    return arrays


def _fitting(value: Any, spec: InputSpec) -> np.ndarray:
    array = as_dtype(f"Sample `{spec.name}`", value, spec.dtype)
    fits = array.ndim == len(spec.shape) and all(
        want in (None, have) for want, have in zip(spec.shape, array.shape, strict=True)
    )
    if not fits or 0 in array.shape:
        raise InputError(f"Sample `{spec.name}` must have shape {spec.shape}, no axis empty. Received: {array.shape}.")
    return array


def _source(spec: InputSpec, uses: list[_Use] | None, sample: np.ndarray | None, tensors: Mapping[str, Any]) -> Source:
    lengths = next((use for use in uses or () if use.argument == "valid_lens"), None)
    ranges = [use.operation.input_dim for use in uses or () if isinstance(use.operation, keras.layers.Embedding)]
    if lengths is not None:
        attended = [lengths.bound.get(name) for name in ("keys", "values", "scores")]
        attended = [tensor for tensor in attended if tensor is not None and not isinstance(tensor, Mapping)]
        if not attended:  # a block of the user's own: the lengths are taken for those of its first tensor, along axis 1
            others = (value for name, value in lengths.bound.items() if name != lengths.argument)
            first = next((value for value in others if len(getattr(value, "shape", ())) > 1), None)
            return Source(_counts, True, None if lengths.inner else first, 1, below=min(ranges, default=None))
        keys = None if lengths.inner else attended[0]  # not a mapping, which is what `precompute` gave
        padding = attended if len(spec.shape) == 1 and "keys" in lengths.bound else []
        padded = tuple(name for name, tensor in tensors.items() if any(tensor is each for each in padding))
        return Source(_counts, True, keys, -2 if "keys" in lengths.bound else -1, padded, min(ranges, default=None))
    if uses is None and "valid_lens" in spec.name and np.issubdtype(spec.dtype, np.integer):
        return Source(_counts, True)
    if sample is not None:
        return Source(lambda shape, rng: resized(sample, shape), sampled=True)
    if spec.dtype == "bool":
        return Source(lambda shape, rng: rng.random(shape) < 0.5)
    if np.issubdtype(spec.dtype, np.integer):
        if not ranges:
            raise InputError(
                f"Integer input `{spec.name}` feeds neither an Embedding nor `valid_lens`, so its range is unknown. "
                f"Pass `sample_inputs={{{spec.name!r}: ...}}`."
            )
        return Source(lambda shape, rng: rng.integers(0, min(ranges), shape).astype(spec.dtype))
    return Source(lambda shape, rng: rng.standard_normal(shape).astype(spec.dtype))


def _counts(shape: Shape, rng: np.random.Generator) -> np.ndarray:
    return np.ones(shape, np.int64)


def resized(sample: np.ndarray, shape: Shape) -> np.ndarray:
    """Return the sample cropped, or repeated from its start, to `shape`."""
    for axis, size in enumerate(shape):
        sample = np.take(sample, np.arange(size), axis=axis, mode="wrap")
    return sample


def _uses(functional: Any, tensor: Any, inner: bool = False) -> Iterator[_Use]:
    """Yield every use of `tensor` in a functional model and in the models nested in it."""
    for node in nodes_of(functional):
        if node.is_input or not any(argument is tensor for argument in node.arguments.keras_tensors):
            continue
        operation, arguments = node.operation, node.arguments
        if functional_of(operation) is not None:
            flat = keras.tree.flatten(arguments.args[0] if arguments.args else arguments.kwargs.get("inputs"))
            for outer, nested in zip(flat, operation.inputs, strict=False):
                if outer is tensor:
                    yield from _uses(operation, nested, inner=True)
            continue
        if type(operation).__name__ == "Cast":  # keras.ops.cast: what it feeds, the input feeds
            yield from _uses(functional, node.output_tensors[0], inner)
            continue
        bound = inspect.signature(operation.call).bind(*arguments.args, **arguments.kwargs).arguments
        for name, value in bound.items():
            if any(leaf is tensor for leaf in keras.tree.flatten(value)):
                yield _Use(operation, name, bound, inner)
