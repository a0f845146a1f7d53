"""Signature of a Keras model: names, dtypes and shapes of inputs and outputs."""

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
from .._format.dtypes import decoded
from .._format.input_arrays import by_name
from .._format.names import Arrays
from .._private_api.builtin_attention import WITH_HEADS, WITHOUT_HEADS, is_stock_attention
from .._private_api.keras_internals import (
    discarded_updates,
    functional_of,
    inputs_structure,
    layers_of,
    nodes_of,
    operation_of,
    outputs_structure,
    quantization_of,
)
from .input_output_names import check_inputs, output_names
from .keras_messages import first_line, quiet_keras

Tensors = dict[str, Any]


@dataclass(frozen=True)
class InputSpec:
    """One input: its name, NumPy dtype name, and shape with `None` where an axis is dynamic."""

    name: str
    dtype: str
    shape: tuple[int | None, ...]


@dataclass(frozen=True)
class Signature:
    """A model by the names of its inputs and outputs.

    Attributes:
        model: The model; a sequential one has an input.
        functional: The functional model behind it. There is none of a subclass, whose shapes are those of `samples`:
            which of its axes are dynamic is not known yet.
        samples: Arrays by input name, or by argument name of a subclass.
        inputs: What goes in.
        outputs: The names of what comes out.
        call: Takes a mapping from input names to tensors or arrays and gives a dict from output names to tensors, with
            `training=False`. No variable of the model changes.
        packed: Nests inputs as `predict` takes them; raises a TypeError if `call` needs several arguments.
    """

    model: keras.Model
    functional: Any | None
    samples: Mapping[str, Any] | None
    inputs: tuple[InputSpec, ...]
    outputs: tuple[str, ...]
    call: Callable[[Mapping[str, Any]], Tensors]
    packed: Callable[[Mapping[str, Any]], Any]

    @property
    def is_functional(self) -> bool:
        """Whether the model says of its inputs which axes are dynamic: it is no subclass with a `call` of its own."""
        return self.functional is not None

    @property
    def input_tensors(self) -> dict[str, Any]:
        """The input tensors of a functional model by name; none of a subclass."""
        tensors = [] if self.functional is None else self.functional.inputs
        return dict(zip((spec.name for spec in self.inputs), tensors, strict=self.is_functional))

    @cached_property
    def layers(self) -> list[Any]:
        """The model and all layers within it, at any depth."""
        return layers_of(self.model)

    @cached_property
    def layer_names(self) -> list[str]:
        """The names of the layers, and of the `keras.ops` in functional models, which are operations too."""
        operations = [each for layer in self.layers for each in getattr(functional_of(layer), "operations", ())]
        return [each.name for each in (*self.layers[1:], *operations)]

    @cached_property
    def attention(self) -> list[Any]:
        """The attention layers in it, of ours or of Keras's."""
        own = (AttentionPooling, MaskedSoftmax)
        return [layer for layer in self.layers if isinstance(layer, own) or is_stock_attention(layer)]

    @cached_property
    def manifest_layers(self) -> list[Any]:
        """The layers of the manifest that are called: attention layers, and layers of classes derived from Keras's."""
        classes = (AttentionPooling, MaskedSoftmax, *WITH_HEADS, *WITHOUT_HEADS)
        return [layer for layer in self.layers if layer.path and isinstance(layer, classes)]

    @cached_property
    def weights_size(self) -> int:
        """How many numbers the weights hold."""
        return sum(math.prod(variable.shape) for variable in self.model.weights)

    @cached_property
    def every_layer(self) -> Any:
        """The outputs of every layer of a functional model as a model, those of the model itself last."""
        tensors = [node.output_tensors for node in nodes_of(self.functional)]
        outputs = [*keras.tree.flatten(tensors), *keras.tree.flatten(outputs_structure(self.functional))]
        return keras.Model(inputs_structure(self.functional), outputs)

    def layer_outputs(self, inputs: Arrays) -> list[tuple[str, np.ndarray]]:
        """Return the name of the layer and the value of each output of `every_layer`, by an eager call.

        A layer may declare a tensor and return None, which is left out.
        """
        with quiet_keras(), discarded_updates():
            # without `training`, layers such as `RandomFlip` put the rest of the model into training mode: keras#23166
            outputs = keras.tree.flatten(self.every_layer(self.packed(inputs), training=False))
        pairs = zip(self.every_layer.outputs, outputs, strict=True)
        returned = [(operation_of(tensor).name, value) for tensor, value in pairs if value is not None]
        return [(name, keras.ops.convert_to_numpy(value)) for name, value in returned]

    def run(self, inputs: Arrays) -> Arrays:
        """Return what Keras gives for arrays, as arrays."""
        with quiet_keras():
            tensors = self.call(inputs)
        arrays = {name: keras.ops.convert_to_numpy(tensor) for name, tensor in tensors.items()}
        return {name: np.asarray(decoded(array)) for name, array in arrays.items()}


def model_signature(model: keras.Model, samples: Any = None, file: Path | None = None) -> Signature:
    """Return the signature of any Keras model.

    Args:
        model: A functional, sequential or subclassed model.
        samples: Arrays by input name, or by argument name of `call` for a subclassed model, which needs them; or in
            their order, one alone as it is.
        file: Where the model was loaded from: a subclassed one may have no weights before its first call, and Keras
            leaves them in the file.

    Raises:
        UnsupportedModelError: The model has inputs or state that no file can carry, or was never built; or the file
            holds other weights.
        InputError: `samples` do not fit the model, or are needed.
    """
    return signature_with_samples(model, _named_samples(model, samples), file)


def signature_with_samples(
    model: keras.Model, samples: Mapping[str, Any] | None, file: Path | None = None
) -> Signature:
    """Return the signature of a model, as `model_signature` does, for samples by name."""
    functional = functional_of(model)
    if functional is None and isinstance(model, keras.Sequential):
        return signature_with_samples(with_input(model, samples), samples)
    _refuse_layers(model)
    if functional is not None:
        return _functional_signature(model, functional, samples)
    if not samples:
        raise InputError(
            f"`{model.name}` is not a functional model, so its inputs are not known by name. Pass `sample_inputs` "
            f"(`--samples`), arrays by the argument names of its `call` ({', '.join(_call_parameters(model))})."
        )
    signature = _subclass_signature(model, samples)
    if file is not None:
        try:
            model.load_weights(file)
        except ValueError as error:
            raise UnsupportedModelError(f"Keras cannot load the weights of {file}: {first_line(error)}") from error
    return signature


SAMPLES = "`sample_inputs`"
UNSUPPORTED_TOKENIZERS = {
    "BytePairTokenizer": "Keras itself gives other numbers for some texts in a graph than without one",
    "SentencePieceTokenizer": "Its pieces are found by a library of its own, for which ONNX has no operator",
}
UNWRITTEN = ("float8",)  # modes of Keras's `quantize`, whose numbers tf2onnx does not know


def _named_samples(model: keras.Model, samples: Any) -> Mapping[str, Any] | None:
    """Return samples by name, without optional arguments that are `None`."""
    if samples is None:
        return None
    names = [] if isinstance(samples, Mapping) else _names_in_order(model, functional_of(model), samples)
    named = samples if isinstance(samples, Mapping) else by_name(SAMPLES, samples, names)
    return {name: value for name, value in named.items() if value is not None}


def _names_in_order(model: keras.Model, functional: Any | None, samples: Any) -> list[str]:
    """Return the names that samples without any go by: of arguments not all need be given."""
    if functional is not None:
        return [spec.name for spec in _functional_signature(model, functional, None).inputs]
    if isinstance(model, keras.Sequential):
        return ["inputs"]
    given = len(samples) if isinstance(samples, list | tuple) else 1
    return _call_parameters(model)[:given]


def with_input(model: keras.Model, samples: Mapping[str, Any] | None) -> keras.Model:
    """Return a sequential model that has no `Input` with one, made from its sample.

    Raises:
        InputError: There is not exactly one sample.
    """
    if not isinstance(samples, Mapping) or len(samples) != 1:
        raise InputError(
            f"`{model.name}` is a Sequential without an Input, so the shape it takes is not known. Pass "
            "`sample_inputs={'x': array}` (`--samples`); its name is then that of the input."
        )
    ((name, sample),) = samples.items()
    array = np.asarray(sample)
    entry = keras.Input(array.shape[1:], dtype=_model_dtype(array.dtype), name=name)
    return keras.Sequential([entry, *model.layers], name=model.name)


def _refuse_layers(model: keras.Model) -> None:
    for layer in layers_of(model):
        if getattr(layer, "stateful", False):
            raise UnsupportedModelError(
                f"Layer `{layer.name}` ({type(layer).__name__}) is stateful: a file would freeze the state it has now. "
                "Set `stateful=False`, or pass the state as an input and an output."
            )
        _refuse_tokenizer(layer)
        if (mode := quantization_of(layer)) in UNWRITTEN:
            raise UnsupportedModelError(
                f"Layer `{layer.name}` ({type(layer).__name__}) is quantized to {mode}, which cannot be written to "
                "ONNX. Quantize the model to 'int8' or 'int4', or export it as it was, with `precision='int8'`."
            )


def _refuse_tokenizer(layer: Any) -> None:
    """Refuse a tokenizer of KerasHub that cannot be exported."""
    kinds = [kind.__name__ for kind in type(layer).__mro__ if kind.__module__.startswith("keras_hub.")]
    if "Tokenizer" not in kinds:
        return
    for kind in kinds:
        if kind in UNSUPPORTED_TOKENIZERS:
            raise UnsupportedModelError(
                f"Layer `{layer.name}` is a `{kind}` of KerasHub, which no file can hold. "
                f"{UNSUPPORTED_TOKENIZERS[kind]}. Tokenize before the model, and let it take the numbers; or take a "
                "`WordPieceTokenizer`, a `UnicodeCodepointTokenizer` or a `ByteTokenizer`."
            )
    if not layer.sequence_length:
        raise UnsupportedModelError(
            f"Layer `{layer.name}` ({type(layer).__name__}) gives rows of unequal lengths, which no tensor holds. Set "
            "`sequence_length`."
        )
    if getattr(layer, "special_tokens_in_strings", False):
        raise UnsupportedModelError(
            f"Layer `{layer.name}` ({type(layer).__name__}) looks for special tokens within texts, which no operator "
            "does. Leave out `special_tokens_in_strings`."
        )


def _functional_signature(model: keras.Model, functional: Any, samples: Mapping[str, Any] | None) -> Signature:
    structure = inputs_structure(functional)
    specs = []
    for path, tensor in keras.tree.flatten_with_path(structure):
        name = str(path[-1]) if path and isinstance(path[-1], str) and len(path) == 1 else operation_of(tensor).name
        if getattr(tensor, "sparse", False) or getattr(tensor, "ragged", False):
            kind = "sparse" if tensor.sparse else "ragged"
            raise UnsupportedModelError(
                f"Input `{name}` is {kind}; only dense tensors can be exported. Pad it instead."
            )
        specs.append(InputSpec(name, str(tensor.dtype), tuple(tensor.shape)))
    outputs = output_names(outputs_structure(functional), [spec.name for spec in specs], functional.output_names)

    def packed(inputs: Mapping[str, Any]) -> Any:
        return keras.tree.pack_sequence_as(structure, [inputs[spec.name] for spec in specs])

    def call(inputs: Mapping[str, Any]) -> Tensors:
        with discarded_updates():
            tensors = keras.tree.flatten(model(packed(inputs), training=False))
        symbolic = keras.tree.flatten(outputs_structure(functional))
        for name, tensor, known in zip(outputs, tensors, symbolic, strict=True):
            if tensor is None:
                raise UnsupportedModelError(
                    f"Output `{name}` of `{model.name}` is None when the model runs, although its layer declares a "
                    f"tensor of shape {known.shape}. Leave the output out: `keras.Model(model.inputs, other_outputs)`."
                )
            if (kind := type(tensor).__name__.removesuffix("Tensor").lower()) in ("sparse", "ragged"):
                layer = operation_of(known)
                advice = f"Leave `{kind}=True` out" if getattr(layer, kind, False) else "Make it dense in the model"
                raise UnsupportedModelError(
                    f"Layer `{layer.name}` ({type(layer).__name__}) returns a {kind} tensor, output `{name}`; only "
                    f"dense tensors can be exported. {advice}."
                )
            # TensorFlow forgets in a loop how often it runs.
            if hasattr(tensor, "set_shape") and tensor.shape.is_compatible_with(known.shape):
                tensor.set_shape(known.shape)
        return dict(zip(outputs, tensors, strict=True))

    check_inputs([(spec.name, spec.dtype) for spec in specs])
    return Signature(model, functional, samples, tuple(specs), outputs, call, packed)


def _subclass_signature(model: keras.Model, samples: Mapping[str, Any]) -> Signature:
    parameters = _call_parameters(model)
    whole = not set(samples) <= set(parameters) and len(parameters) == 1
    arguments = {parameters[0]: dict(samples)} if whole else dict(samples)
    if unknown := sorted(set(arguments) - set(parameters)):
        raise InputError(
            f"`sample_inputs` names {unknown}, which `{model.name}.call` does not take. It takes {parameters}."
        )
    flat = keras.tree.flatten_with_path(arguments)
    names = ["_".join(map(str, path[1:] if whole else path)) for path, _ in flat]
    arrays = [np.asarray(value) for _, value in flat]
    specs = tuple(
        InputSpec(name, _model_dtype(array.dtype), array.shape) for name, array in zip(names, arrays, strict=True)
    )

    def raw(inputs: Mapping[str, Any]) -> Any:
        packed = keras.tree.pack_sequence_as(arguments, [inputs[name] for name in names])
        # Keras wants the first argument by position; the others may come by name.
        return model(packed[parameters[0]], **{k: packed[k] for k in parameters[1:] if k in packed}, training=False)

    if parameters[0] not in arguments:
        raise InputError(f"`sample_inputs` lacks `{parameters[0]}`, the first argument of `{model.name}.call`.")
    try:
        structure = raw(
            {name: array.astype(spec.dtype) for name, array, spec in zip(names, arrays, specs, strict=True)}
        )
    except Exception as error:
        raise InputError(f"Keras itself cannot run `{model.name}` on `sample_inputs`: {first_line(error)}") from error
    outputs = output_names(structure, names)

    def call(inputs: Mapping[str, Any]) -> Tensors:
        with discarded_updates():
            tensors = [tensor for tensor in keras.tree.flatten(raw(inputs)) if tensor is not None]
        return dict(zip(outputs, tensors, strict=True))

    check_inputs([(spec.name, spec.dtype) for spec in specs])

    def packed(inputs: Mapping[str, Any]) -> Any:
        if len(arguments) > 1:
            raise TypeError(f"`predict` takes one argument. Received: {list(arguments)}")
        return keras.tree.pack_sequence_as(arguments, [inputs[name] for name in names])[parameters[0]]

    return Signature(model, None, samples, specs, outputs, call, packed)


def _call_parameters(model: keras.Model) -> list[str]:
    """Return the names of `call`'s arguments that may hold tensors."""
    parameters = inspect.signature(model.call).parameters.values()
    fixed = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [p.name for p in parameters if p.kind not in fixed and p.name not in ("training", "mask")]


def _model_dtype(dtype: np.dtype[Any]) -> str:
    """Return the dtype a sample has inside the model: Keras knows no default but its own float type."""
    return keras.config.floatx() if dtype == np.float64 else str(dtype)
