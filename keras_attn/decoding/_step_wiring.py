"""Connect encoder outputs, step inputs and states by name, and validate that they fit."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import keras

from .._shapes import dtype_of, shape_of, shapes_agree
from .._types import Tensor

POSITION = "position"
RESERVED_OUTPUTS = ("tokens", "lengths", "scores")


class StepNames(NamedTuple):
    """Names of the step inputs and outputs that decoding uses; `state` maps outputs to inputs."""

    token: str
    logits: str
    state: dict[str, str]
    outputs: tuple[str, ...]


def validate_names(token: Any, logits: Any, state: Any, outputs: Any) -> StepNames:
    """Check the types of names, and return the names as a record."""
    for role, name in (("token", token), ("logits", logits)):
        if not isinstance(name, str):
            raise TypeError(f"`{role}` must be a name. Received: {role} of type {type(name).__name__}.")
    if not isinstance(state, Mapping) or not all(isinstance(x, str) for pair in state.items() for x in pair):
        raise TypeError(
            "`state` must be a dict from names of the step's outputs to names of its inputs. "
            f"Received: state of type {type(state).__name__}."
        )
    if not isinstance(outputs, list | tuple) or not all(isinstance(name, str) for name in outputs):
        raise TypeError(f"`outputs` must be a list of names. Received: outputs of type {type(outputs).__name__}.")
    return StepNames(token, logits, dict(state), tuple(outputs))


def inputs_by_name(model: Any, role: str = "step") -> dict[str, Any]:
    """Return the symbolic inputs of a functional model, by name."""
    check_functional(model, role)
    return dict(model.input) if isinstance(model.input, Mapping) else {x.name: x for x in model.inputs}


def outputs_by_name(model: Any, role: str = "step") -> dict[str, Any]:
    """Return the symbolic outputs of a functional model, by name."""
    check_functional(model, role)
    outputs = model.output
    if not isinstance(outputs, Mapping) or not all(isinstance(x, keras.KerasTensor) for x in outputs.values()):
        raise TypeError(
            f"`{role}` must return a dict of tensors, with names as keys. Received: `{model.name}`, which returns a "
            f"{type(outputs).__name__}. Build it with `keras.Model(inputs, {{name: tensor}})`."
        )
    return dict(outputs)


def check_functional(model: Any, role: str) -> None:
    """Raise TypeError unless a model is functional."""
    # A subclassed model has no inputs before its first call, and no input names after it. A `Sequential` has `inputs`,
    # but not the `input` of a functional model.
    is_functional = isinstance(model, keras.Model) and not isinstance(model, keras.Sequential)
    inputs = getattr(model, "inputs", None) if is_functional else None
    if not inputs or not all(isinstance(x, keras.KerasTensor) for x in inputs):
        raise TypeError(
            f"`{role}` must be a functional model, made with `keras.Model(inputs, outputs)`. "
            f"Received: {role} of type {type(model).__name__}."
        )


def pack_inputs(model: Any, tensors: Mapping[str, Tensor]) -> Any:
    """Return tensors in the input structure of a functional model."""
    inputs = {name: tensors[name] for name in inputs_by_name(model)}
    return inputs if isinstance(model.input, Mapping) else keras.tree.pack_sequence_as(model.input, [*inputs.values()])


def check_step(step: Any, names: StepNames, end: int | None) -> None:
    """Check that the names and the end token fit the inputs and outputs of a step, and that states fit each other."""
    inputs, outputs = inputs_by_name(step), outputs_by_name(step)
    _check_names_exist("logits", [names.logits], "output", outputs)
    _check_names_exist("outputs", names.outputs, "output", outputs)
    _check_names_exist("state", names.state, "output", outputs)
    _check_names_exist("state", names.state.values(), "input", inputs)
    _check_names_exist("token", [names.token], "input", inputs)
    reserved = next((name for name in names.outputs if name in RESERVED_OUTPUTS), None)
    if reserved is not None:
        raise ValueError(
            f"`outputs` must not contain a name of decoding's own outputs: {_format_names(RESERVED_OUTPUTS)}. "
            f"Received: `{reserved}`. Rename the step's output."
        )
    targets = [names.token, *names.state.values()]
    duplicate = next((name for name in targets if targets.count(name) > 1), None)
    if duplicate is not None:
        raise ValueError(f"A step input must have one source. Received: `{duplicate}` twice, in `token` and `state`.")
    _check_integers("token", f"the step's input `{names.token}`", inputs[names.token])
    shape, dtype = shape_of(outputs[names.logits]), dtype_of(outputs[names.logits])
    if len(shape) != 2 or shape[1] is None or not keras.backend.is_float_dtype(dtype):
        raise ValueError(
            "`logits` must be floats (B, V), with V known: one logit per token. "
            f"Received: the step's output `{names.logits}` with shape {shape}, dtype {dtype}."
        )
    if end is not None and not 0 <= end < shape[1]:
        raise ValueError(f"`end` must be None or a token of `logits`, 0 to {shape[1] - 1}. Received: end={end}.")
    for source, target in names.state.items():
        _check_state(source, outputs[source], target, inputs[target])


def check_step_inputs_fed(encoder: Any, step: Any, names: StepNames, start: int | str) -> None:
    """Check that each step input has a source of the same shape and dtype."""
    encoded = {**inputs_by_name(encoder, "encoder"), **outputs_by_name(encoder, "encoder")}
    sources = {names.token, *names.state.values(), POSITION, *encoded}
    missing = [name for name in inputs_by_name(step) if name not in sources]
    if missing:
        raise ValueError(
            f"A step input must be the token, a state, `{POSITION}`, or have the name of an encoder output or input: "
            f"{_format_names(encoded)}. Received: {_format_names(missing)}, without a source. Rename one of them."
        )
    if isinstance(start, str):
        _check_names_exist("start", [start], "output or input", encoded, "encoder")
        _check_integers("start", f"`{start}` of the encoder", encoded[start])
    check_encoder_fits(step, names, encoded)


def check_encoder_fits(step: Any, names: StepNames, encoded: Mapping[str, Any]) -> None:
    """Check shape (except the batch) and dtype of encoder outputs and inputs that are inputs of the step."""
    for name, declared in inputs_by_name(step).items():
        if name == names.token or name not in encoded:
            continue
        tensor = encoded[name]
        is_equal = {
            "shape": shapes_agree((None, *shape_of(tensor)[1:]), (None, *shape_of(declared)[1:])),
            "dtype": _dtype_kind(dtype_of(tensor)) == _dtype_kind(dtype_of(declared)),
        }
        attribute = next((attribute for attribute, equal in is_equal.items() if not equal), None)
        if attribute is not None:
            raise ValueError(
                "An encoder output or input must fit the step's input of the same name. Received: "
                f"`{name}` with {attribute} {getattr(tensor, attribute)} of the encoder, "
                f"{getattr(declared, attribute)} in the step."
            )


def get_fixed_batch_sizes(inputs: Mapping[str, Any]) -> set[int]:
    """Return the static batch sizes of inputs."""
    return {size for x in inputs.values() for size in shape_of(x)[:1] if size is not None}


def get_batch_size(encoder: Any, step: Any, width: int) -> int | None:
    """Return the number of rows if the batch size of the encoder or the step is fixed, else None."""
    encoder_sizes = get_fixed_batch_sizes(inputs_by_name(encoder, "encoder"))
    step_sizes = get_fixed_batch_sizes(inputs_by_name(step))
    # The step is called with W entries per row, so its fixed batch size is W times the number of rows.
    sizes = {width * size for size in encoder_sizes} | step_sizes
    if len(sizes) > 1 or any(size % width for size in sizes):
        raise ValueError(
            f"The fixed batch size of the step must be {width} times the encoder's, the number of sequences per row. "
            f"Received: encoder batch {_format_sizes(encoder_sizes)}, step batch {_format_sizes(step_sizes)}. "
            "Use a dynamic batch: `keras.Input(shape)`, without `batch_shape` and `batch_size`."
        )
    return next((size // width for size in sizes), None)


def _check_names_exist(role: str, names: Iterable[str], side: str, valid: Iterable[str], model: str = "step") -> None:
    for name in names:
        if name not in valid:
            raise ValueError(
                f"`{role}` must name an {side} of the {model}: {_format_names(valid)}. Received: `{name}`."
            )


def _check_integers(role: str, label: str, tensor: Any) -> None:
    if len(shape_of(tensor)) != 1 or not keras.backend.is_int_dtype(dtype_of(tensor)):
        raise ValueError(
            f"`{role}` must be integers of shape (B,). Received: {label} with shape {shape_of(tensor)}, "
            f'dtype {dtype_of(tensor)}. Declare such an input with `keras.Input((), dtype="int32")`.'
        )


def _check_state(source: str, output: Any, target: str, declared: Any) -> None:
    if dtype_of(output) != dtype_of(declared):
        raise ValueError(
            f"A state must keep its dtype from step to step. Received: the step's output `{source}` is "
            f"{dtype_of(output)}, its input `{target}` {dtype_of(declared)}. Give both the same dtype."
        )
    if not shapes_agree(shape_of(output), shape_of(declared)):
        raise ValueError(
            f"A state must fit the step input that it is mapped to. Received: the output `{source}` has shape "
            f"{shape_of(output)}, its input `{target}` {shape_of(declared)}. Use None for a size that grows."
        )


def _dtype_kind(dtype: str) -> str:
    if keras.backend.is_float_dtype(dtype):
        return "float"
    return "int" if keras.backend.is_int_dtype(dtype) else dtype


def _format_sizes(sizes: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(sizes))) or "dynamic"


def _format_names(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "none"
