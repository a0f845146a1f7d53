"""Signature of a Keras model: names, dtypes and shapes of inputs, names of outputs."""

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_attn import AttentionPooling, MaskedSoftmax

from .._errors import InputError, UnsupportedModelError
from .._format.dtypes import decode_strings
from .._format.input_arrays import map_to_names
from .._format.names import Arrays
from .._private_api.builtin_attention import MULTI_HEAD_LAYERS, SINGLE_HEAD_LAYERS, is_builtin_attention
from .._private_api.keras_internals import (
    discard_updates,
    find_layers,
    get_functional,
    get_inputs_structure,
    get_operation,
    get_outputs_structure,
    get_quantization,
    iter_functional_nodes,
)
from .input_output_names import check_inputs, name_outputs
from .keras_messages import shorten_message, silence_keras

Tensors = dict[str, Any]


@dataclass(frozen=True)
class InputSpec:
    """Name, NumPy dtype name and shape of an input; the size of a dynamic axis is `None`."""

    name: str
    dtype: str
    shape: tuple[int | None, ...]


@dataclass(frozen=True)
class Signature:
    """A Keras model, called by the names of its inputs and outputs.

    Attributes:
        model: The model; a sequential model has an input layer.
        functional: The functional model inside `model`. `None` for a subclassed model, whose input shapes are those of
            `samples`, without dynamic axes.
        samples: Arrays by input name, or by argument name of a subclassed model.
        inputs: The inputs, in the order of the model.
        outputs: The names of the outputs.
        call: Maps tensors or arrays by input name to tensors by output name, with `training=False`. No variable of the
            model changes.
        pack_inputs: Nests inputs as `predict` takes them; raises a TypeError if `call` needs several arguments.
    """

    model: keras.Model
    functional: Any | None
    samples: Mapping[str, Any] | None
    inputs: tuple[InputSpec, ...]
    outputs: tuple[str, ...]
    call: Callable[[Mapping[str, Any]], Tensors]
    pack_inputs: Callable[[Mapping[str, Any]], Any]

    @property
    def is_functional(self) -> bool:
        """Return True if the model declares the axes of its inputs, unlike a subclass that defines `call`."""
        return self.functional is not None

    @property
    def input_tensors(self) -> dict[str, Any]:
        """Return the input tensors of a functional model by name; empty for a subclassed model."""
        tensors = [] if self.functional is None else self.functional.inputs
        return dict(zip((spec.name for spec in self.inputs), tensors, strict=self.is_functional))

    @cached_property
    def layers(self) -> list[Any]:
        """Return the model and its layers at any depth."""
        return find_layers(self.model)

    @cached_property
    def layer_names(self) -> list[str]:
        """Return the names of all layers, and of the `keras.ops` in functional models."""
        operations = [op for layer in self.layers for op in getattr(get_functional(layer), "operations", ())]
        return [operation.name for operation in (*self.layers[1:], *operations)]

    @cached_property
    def attention_layers(self) -> list[Any]:
        """Return the attention layers of this package and of Keras."""
        own_classes = (AttentionPooling, MaskedSoftmax)
        return [layer for layer in self.layers if isinstance(layer, own_classes) or is_builtin_attention(layer)]

    @cached_property
    def manifest_layers(self) -> list[Any]:
        """Return the called layers of the manifest: attention layers, including subclasses of those of Keras."""
        classes = (AttentionPooling, MaskedSoftmax, *MULTI_HEAD_LAYERS, *SINGLE_HEAD_LAYERS)
        return [layer for layer in self.layers if layer.path and isinstance(layer, classes)]

    @cached_property
    def num_weights(self) -> int:
        """Return the number of elements of all weights."""
        return sum(math.prod(variable.shape) for variable in self.model.weights)

    @cached_property
    def layer_outputs_model(self) -> Any:
        """Build a model with the outputs of every layer of a functional model, followed by its own outputs."""
        tensors = [node.output_tensors for node in iter_functional_nodes(self.functional)]
        outputs = [*keras.tree.flatten(tensors), *keras.tree.flatten(get_outputs_structure(self.functional))]
        return keras.Model(get_inputs_structure(self.functional), outputs)

    def run_layers(self, inputs: Arrays) -> list[tuple[str, np.ndarray]]:
        """Run all layers eagerly, and return pairs of a layer name and an output, in the order of the graph.

        A layer may declare a tensor and return `None`, which is omitted.
        """
        with silence_keras(), discard_updates():
            # Without `training`, layers such as `RandomFlip` set later layers to training mode (keras#23166).
            outputs = keras.tree.flatten(self.layer_outputs_model(self.pack_inputs(inputs), training=False))
        pairs = zip(self.layer_outputs_model.outputs, outputs, strict=True)
        layer_values = [(get_operation(tensor).name, value) for tensor, value in pairs if value is not None]
        return [(name, keras.ops.convert_to_numpy(value)) for name, value in layer_values]

    def run(self, inputs: Arrays) -> Arrays:
        """Run the model eagerly, and return its outputs as arrays."""
        with silence_keras():
            tensors = self.call(inputs)
        arrays = {name: keras.ops.convert_to_numpy(tensor) for name, tensor in tensors.items()}
        return {name: np.asarray(decode_strings(array)) for name, array in arrays.items()}


def build_signature(model: keras.Model, samples: Any = None, file: Path | None = None) -> Signature:
    """Build the signature of a Keras model.

    Args:
        model: A functional, sequential or subclassed model.
        samples: Arrays by input name, or by argument name of `call` for a subclassed model, which requires them; or a
            sequence in the order of these names, or a single array.
        file: The file that the model was loaded from. Keras does not load weights of a subclassed model that are
            created in its first call.

    Raises:
        UnsupportedModelError: If the model has inputs or state that cannot be exported, was never built, or does not
            fit the weights in the file.
        InputError: If `samples` do not fit the model, or are required.
    """
    return build_named_signature(model, _name_samples(model, samples), file)


def build_named_signature(model: keras.Model, samples: Mapping[str, Any] | None, file: Path | None = None) -> Signature:
    """Build the signature of a model, as `build_signature` does, from samples by name."""
    functional = get_functional(model)
    if functional is None and isinstance(model, keras.Sequential):
        return build_named_signature(add_input_layer(model, samples), samples)
    _refuse_layers(model)
    if functional is not None:
        return _build_functional_signature(model, functional, samples)
    if not samples:
        raise InputError(
            f"`{model.name}` is not a functional model, so its inputs have no names. Pass `sample_inputs` "
            f"(`--samples`), arrays by the argument names of its `call` ({', '.join(_list_call_parameters(model))})."
        )
    signature = _build_subclass_signature(model, samples)
    if file is not None:
        try:
            model.load_weights(file)
        except ValueError as error:
            raise UnsupportedModelError(f"Keras cannot load the weights of {file}: {shorten_message(error)}") from error
    return signature


SAMPLES_ARGUMENT = "`sample_inputs`"
UNSUPPORTED_TOKENIZERS = {
    "BytePairTokenizer": "Keras returns different ids for some texts in a graph than in an eager call",
    "SentencePieceTokenizer": "It needs the SentencePiece library, for which ONNX has no operator",
}
UNSUPPORTED_QUANTIZATIONS = ("float8",)  # tf2onnx lacks their dtypes


def _name_samples(model: keras.Model, samples: Any) -> Mapping[str, Any] | None:
    """Return samples by name, without optional arguments that are `None`."""
    if samples is None:
        return None
    names = [] if isinstance(samples, Mapping) else _list_names_in_order(model, get_functional(model), samples)
    named_samples = samples if isinstance(samples, Mapping) else map_to_names(SAMPLES_ARGUMENT, samples, names)
    return {name: value for name, value in named_samples.items() if value is not None}


def _list_names_in_order(model: keras.Model, functional: Any | None, samples: Any) -> list[str]:
    """Return the input names of samples without names; trailing arguments of `call` may have no sample."""
    if functional is not None:
        return [spec.name for spec in _build_functional_signature(model, functional, None).inputs]
    if isinstance(model, keras.Sequential):
        return ["inputs"]
    num_samples = len(samples) if isinstance(samples, list | tuple) else 1
    return _list_call_parameters(model)[:num_samples]


def add_input_layer(model: keras.Model, samples: Mapping[str, Any] | None) -> keras.Model:
    """Return a copy of a sequential model with an input layer of the shape of its sample.

    Raises:
        InputError: If there is not exactly one sample.
    """
    if not isinstance(samples, Mapping) or len(samples) != 1:
        raise InputError(
            f"`{model.name}` is a Sequential without an Input, so its input shape is unknown. Pass "
            "`sample_inputs={'x': array}` (`--samples`). The key becomes the input name."
        )
    ((name, sample),) = samples.items()
    array = np.asarray(sample)
    input_tensor = keras.Input(array.shape[1:], dtype=_get_model_dtype(array.dtype), name=name)
    return keras.Sequential([input_tensor, *model.layers], name=model.name)


def _refuse_layers(model: keras.Model) -> None:
    for layer in find_layers(model):
        if getattr(layer, "stateful", False):
            raise UnsupportedModelError(
                f"Layer `{layer.name}` ({type(layer).__name__}) is stateful: a file would freeze its present state. "
                "Set `stateful=False`, or pass the state as an input and an output."
            )
        _refuse_tokenizer(layer)
        if (mode := get_quantization(layer)) in UNSUPPORTED_QUANTIZATIONS:
            raise UnsupportedModelError(
                f"Layer `{layer.name}` ({type(layer).__name__}) is quantized to {mode}, which cannot be written to "
                "ONNX. Quantize the model to 'int8' or 'int4', or export it unquantized, with `precision='int8'`."
            )


def _refuse_tokenizer(layer: Any) -> None:
    """Raise `UnsupportedModelError` for a tokenizer of KerasHub that cannot be exported."""
    class_names = [cls.__name__ for cls in type(layer).__mro__ if cls.__module__.startswith("keras_hub.")]
    if "Tokenizer" not in class_names:
        return
    for class_name in class_names:
        if class_name in UNSUPPORTED_TOKENIZERS:
            raise UnsupportedModelError(
                f"Layer `{layer.name}` is a `{class_name}` of KerasHub, which cannot be exported. "
                f"{UNSUPPORTED_TOKENIZERS[class_name]}. Tokenize before the model and make the ids its input, or use "
                "a `WordPieceTokenizer`, a `UnicodeCodepointTokenizer` or a `ByteTokenizer`."
            )
    if not layer.sequence_length:
        raise UnsupportedModelError(
            f"Layer `{layer.name}` ({type(layer).__name__}) returns rows of unequal lengths. Set `sequence_length`."
        )
    if getattr(layer, "special_tokens_in_strings", False):
        raise UnsupportedModelError(
            f"Layer `{layer.name}` ({type(layer).__name__}) finds special tokens within texts, which no ONNX operator "
            "does. Remove `special_tokens_in_strings`."
        )


def _build_functional_signature(model: keras.Model, functional: Any, samples: Mapping[str, Any] | None) -> Signature:
    structure = get_inputs_structure(functional)
    specs = []
    for path, tensor in keras.tree.flatten_with_path(structure):
        name = str(path[-1]) if path and isinstance(path[-1], str) and len(path) == 1 else get_operation(tensor).name
        if getattr(tensor, "sparse", False) or getattr(tensor, "ragged", False):
            layout = "sparse" if tensor.sparse else "ragged"
            raise UnsupportedModelError(
                f"Input `{name}` is {layout}; only dense tensors can be exported. Pad it instead."
            )
        specs.append(InputSpec(name, str(tensor.dtype), tuple(tensor.shape)))
    outputs = name_outputs(get_outputs_structure(functional), [spec.name for spec in specs], functional.output_names)

    def pack_inputs(inputs: Mapping[str, Any]) -> Any:
        return keras.tree.pack_sequence_as(structure, [inputs[spec.name] for spec in specs])

    def call(inputs: Mapping[str, Any]) -> Tensors:
        with discard_updates():
            tensors = keras.tree.flatten(model(pack_inputs(inputs), training=False))
        symbolic_outputs = keras.tree.flatten(get_outputs_structure(functional))
        for name, tensor, declared in zip(outputs, tensors, symbolic_outputs, strict=True):
            if tensor is None:
                raise UnsupportedModelError(
                    f"Output `{name}` of `{model.name}` is None when the model runs, although its layer declares a "
                    f"tensor of shape {declared.shape}. Remove the output: `keras.Model(model.inputs, other_outputs)`."
                )
            if (layout := type(tensor).__name__.removesuffix("Tensor").lower()) in ("sparse", "ragged"):
                layer = get_operation(declared)
                advice = f"Remove `{layout}=True`" if getattr(layer, layout, False) else "Make it dense in the model"
                raise UnsupportedModelError(
                    f"Layer `{layer.name}` ({type(layer).__name__}) returns a {layout} tensor, output `{name}`; only "
                    f"dense tensors can be exported. {advice}."
                )
            # The shapes of stacked outputs of a TensorFlow loop lack the number of iterations.
            if hasattr(tensor, "set_shape") and tensor.shape.is_compatible_with(declared.shape):
                tensor.set_shape(declared.shape)
        return dict(zip(outputs, tensors, strict=True))

    check_inputs([(spec.name, spec.dtype) for spec in specs])
    return Signature(model, functional, samples, tuple(specs), outputs, call, pack_inputs)


def _build_subclass_signature(model: keras.Model, samples: Mapping[str, Any]) -> Signature:
    parameters = _list_call_parameters(model)
    is_dict_argument = not set(samples) <= set(parameters) and len(parameters) == 1
    arguments = {parameters[0]: dict(samples)} if is_dict_argument else dict(samples)
    if unknown := sorted(set(arguments) - set(parameters)):
        raise InputError(
            f"`sample_inputs` names {unknown}, which `{model.name}.call` does not take. It takes {parameters}."
        )
    flat = keras.tree.flatten_with_path(arguments)
    names = ["_".join(map(str, path[1:] if is_dict_argument else path)) for path, _ in flat]
    arrays = [np.asarray(value) for _, value in flat]
    dtypes = [_get_model_dtype(array.dtype) for array in arrays]
    specs = tuple(InputSpec(name, dtype, a.shape) for name, dtype, a in zip(names, dtypes, arrays, strict=True))

    def call_model(inputs: Mapping[str, Any]) -> Any:
        values = keras.tree.pack_sequence_as(arguments, [inputs[name] for name in names])
        # Keras requires the first argument by position.
        return model(values[parameters[0]], **{p: values[p] for p in parameters[1:] if p in values}, training=False)

    if parameters[0] not in arguments:
        raise InputError(f"`sample_inputs` lacks `{parameters[0]}`, the first argument of `{model.name}.call`.")
    try:
        structure = call_model({name: a.astype(dtype) for name, a, dtype in zip(names, arrays, dtypes, strict=True)})
    except Exception as error:
        raise InputError(
            f"Keras itself cannot run `{model.name}` on `sample_inputs`: {shorten_message(error)}"
        ) from error
    outputs = name_outputs(structure, names)

    def call(inputs: Mapping[str, Any]) -> Tensors:
        with discard_updates():
            tensors = [tensor for tensor in keras.tree.flatten(call_model(inputs)) if tensor is not None]
        return dict(zip(outputs, tensors, strict=True))

    check_inputs([(spec.name, spec.dtype) for spec in specs])

    def pack_inputs(inputs: Mapping[str, Any]) -> Any:
        if len(arguments) > 1:
            raise TypeError(f"`predict` takes one argument. Received: {list(arguments)}")
        return keras.tree.pack_sequence_as(arguments, [inputs[name] for name in names])[parameters[0]]

    return Signature(model, None, samples, specs, outputs, call, pack_inputs)


def _list_call_parameters(model: keras.Model) -> list[str]:
    """Return the names of the arguments of `call` that may be tensors."""
    parameters = inspect.signature(model.call).parameters.values()
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [p.name for p in parameters if p.kind not in variadic and p.name not in ("training", "mask")]


def _get_model_dtype(dtype: np.dtype[Any]) -> str:
    """Return the dtype of a sample in the model: `floatx` for float64, NumPy's default."""
    return keras.config.floatx() if dtype == np.float64 else str(dtype)
