"""Uses of model inputs by layers, and sizes of tensors inside a functional model."""

import inspect
import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import keras

from keras_attn._states.cache import KEYS_ENTRY, LENGTH_ENTRY
from keras_attn.decoding._decoding_layer import Decoding
from keras_attn.decoding._step_wiring import inputs_by_name, outputs_by_name

from .._format.names import Arrays
from .._private_api.keras_internals import discard_updates, get_functional, get_inputs_structure, iter_functional_nodes
from .._signature.signature import Signature


@dataclass(frozen=True)
class InputUse:
    """Use of an input as an argument of an operation, with all arguments of the call."""

    operation: Any
    argument: str
    arguments: Mapping[str, Any]
    is_nested: bool  # in a nested model, whose tensors cannot be computed from the outer inputs


def find_input_uses(signature: Signature) -> dict[str, list[InputUse]]:
    """Return all uses of the inputs of a functional model by input name; empty for a subclassed model."""
    return {name: list(_find_uses(signature.functional, tensor)) for name, tensor in signature.input_tensors.items()}


def find_state(argument: Any) -> Mapping[str, Any] | None:
    """Return the cache of a fixed capacity, made by `precompute`, that an argument is or contains; else `None`."""
    if not isinstance(argument, Mapping):
        return None
    if LENGTH_ENTRY in argument and KEYS_ENTRY in argument:
        return argument
    return next((state for value in argument.values() if (state := find_state(value)) is not None), None)


def _find_uses(model: Any, tensor: Any, is_nested: bool = False) -> Iterator[InputUse]:
    """Yield every use of `tensor` in a functional model and its nested models."""
    for node in iter_functional_nodes(model):
        if node.is_input or not any(argument is tensor for argument in node.arguments.keras_tensors):
            continue
        operation, arguments = node.operation, node.arguments
        if (nested_model := get_functional(operation)) is not None:
            flat = keras.tree.flatten(arguments.args[0] if arguments.args else arguments.kwargs.get("inputs"))
            for outer_tensor, nested_tensor in zip(flat, nested_model.inputs, strict=False):
                if outer_tensor is tensor:
                    yield from _find_uses(nested_model, nested_tensor, is_nested=True)
        elif isinstance(operation, Decoding):
            for part_model, nested_tensor in _find_models_in_decoding(operation, arguments.args[0], tensor):
                yield from _find_uses(part_model, nested_tensor, is_nested=True)
        elif type(operation).__name__ == "Cast":  # the result of keras.ops.cast has the values of the input
            yield from _find_uses(model, node.output_tensors[0], is_nested)
        else:
            yield from _find_uses_in_node(model, node, tensor, is_nested)


def _find_uses_in_node(model: Any, node: Any, tensor: Any, is_nested: bool) -> Iterator[InputUse]:
    """Yield the uses as an argument of one operation, and uses of a cache length that the operation returns."""
    # `training` need not be an argument of `call`.
    options = {name: value for name, value in node.arguments.kwargs.items() if name != "training"}
    bound = inspect.signature(node.operation.call).bind(*node.arguments.args, **options).arguments
    for name, value in bound.items():
        if any(leaf is tensor for leaf in keras.tree.flatten(value)):
            yield InputUse(node.operation, name, bound, is_nested)
            if name not in ("keys", "values") and find_state(value) is not None:  # the operation appends to a cache
                lengths = (output for output in node.output_tensors if output.dtype == tensor.dtype)
                later_uses = itertools.chain(*(_find_uses(model, output, is_nested) for output in lengths))
                yield from (use for use in later_uses if find_state(use.arguments[use.argument]) is not None)


def _find_models_in_decoding(layer: Any, inputs: Mapping[str, Any], tensor: Any) -> Iterator[tuple[Any, Any]]:
    """Yield pairs of a model of a decoder that receives a tensor unchanged, and the input of the model."""
    for name in (name for name, value in inputs.items() if value is tensor):
        yield layer.encoder, inputs_by_name(layer.encoder)[name]
        computed_names = {layer._names.token, *outputs_by_name(layer.encoder)}
        if name in inputs_by_name(layer.step) and name not in computed_names:
            yield layer.step, inputs_by_name(layer.step)[name]


class TensorSizes:
    """Sizes of tensors of a functional model, computed from the inputs."""

    def __init__(self, signature: Signature) -> None:
        self._signature = signature
        self._models: dict[int, keras.Model] = {}  # models that compute a tensor, by its id

    def get_size(self, inputs: Arrays, tensor: Any, axis: int) -> int:
        """Return the size of a tensor along an axis; an integer is the size itself."""
        if isinstance(tensor, int):
            return tensor
        if tensor.shape[axis] is None:
            if id(tensor) not in self._models:
                self._models[id(tensor)] = keras.Model(get_inputs_structure(self._signature.functional), tensor)
            with discard_updates():
                tensor = self._models[id(tensor)](self._signature.pack_inputs(inputs), training=False)
        return int(tensor.shape[axis])

    def find_input_names(self, tensors: Iterable[Any]) -> tuple[str, ...]:
        """Return the names of the inputs among tensors."""
        ids = {id(tensor) for tensor in tensors}
        return tuple(name for name, tensor in self._signature.input_tensors.items() if id(tensor) in ids)

    def get_free_capacity(self, inputs: Arrays, state: Any, tensors: tuple[Any, ...]) -> int:
        """Return the free capacity of a cache along axis -2, besides `tensors` or their sizes."""
        return max(self.get_size(inputs, state, -2) - sum(self.get_size(inputs, tensor, -2) for tensor in tensors), 0)
