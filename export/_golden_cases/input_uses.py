"""Uses of model inputs: the layers that read each input."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import keras

from keras_attn._states.cache import LENGTH, PROJECTED
from keras_attn.decoding._decoding_layer import Decoding
from keras_attn.decoding._step_wiring import inputs_of, outputs_of

from .._private_api.keras_internals import functional_of, nodes_of
from .._signature.signature import Signature


@dataclass(frozen=True)
class InputUse:
    """One place where an input is used: the operation, the argument it is bound to, and all that is bound beside it."""

    operation: Any
    argument: str
    bound: Mapping[str, Any]
    inner: bool  # inside a nested model, whose tensors cannot be computed from the outer inputs


def tensors_by_name(signature: Signature) -> dict[str, Any]:
    """Return the input tensors of a functional model by name."""
    return dict(zip((spec.name for spec in signature.inputs), signature.functional.inputs, strict=True))  # type: ignore[union-attr]


def state_in(argument: Any) -> Mapping[str, Any] | None:
    """Return what `precompute` gave with a capacity, if an argument is that or holds it."""
    if not isinstance(argument, Mapping):
        return None
    if LENGTH in argument and PROJECTED in argument:
        return argument
    return next((state for value in argument.values() if (state := state_in(value)) is not None), None)


def uses_of(model: Any, tensor: Any, inner: bool = False) -> Iterator[InputUse]:
    """Yield every use of `tensor` in a functional model and in the models nested in it."""
    for node in nodes_of(model):
        if node.is_input or not any(argument is tensor for argument in node.arguments.keras_tensors):
            continue
        operation, arguments = node.operation, node.arguments
        if (nested_model := functional_of(operation)) is not None:
            flat = keras.tree.flatten(arguments.args[0] if arguments.args else arguments.kwargs.get("inputs"))
            for outer, nested in zip(flat, nested_model.inputs, strict=False):
                if outer is tensor:
                    yield from uses_of(nested_model, nested, inner=True)
            continue
        if isinstance(operation, Decoding):
            for part, nested in _fed_in_decoding(operation, arguments.args[0], tensor):
                yield from uses_of(part, nested, inner=True)
            continue
        if type(operation).__name__ == "Cast":  # keras.ops.cast: what it feeds, the input feeds
            yield from uses_of(model, node.output_tensors[0], inner)
            continue
        options = {name: value for name, value in arguments.kwargs.items() if name != "training"}  # `call` may lack it
        bound = inspect.signature(operation.call).bind(*arguments.args, **options).arguments
        for name, value in bound.items():
            if any(leaf is tensor for leaf in keras.tree.flatten(value)):
                yield InputUse(operation, name, bound, inner)
                if name not in ("keys", "values") and state_in(value) is not None:  # appended to, perhaps once more
                    lengths = (output for output in node.output_tensors if output.dtype == tensor.dtype)
                    later = itertools.chain(*(uses_of(model, output, inner) for output in lengths))
                    yield from (use for use in later if state_in(use.bound[use.argument]) is not None)


def _fed_in_decoding(layer: Any, given: Mapping[str, Any], tensor: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the models of a decoding that get a tensor as it is given, each with the input of it that this is."""
    for name in (name for name, each in given.items() if each is tensor):
        yield layer.encoder, inputs_of(layer.encoder)[name]
        own = {layer._names.token, *outputs_of(layer.encoder)}  # what the step gets elsewhere
        if name in inputs_of(layer.step) and name not in own:
            yield layer.step, inputs_of(layer.step)[name]
