"""Connect encoder outputs, step inputs and states by name, and validate that they fit."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import keras

from .._shapes import dtype_of, shape_of, shapes_agree
from .._types import Tensor

POSITION = "position"
OWN_OUTPUTS = ("tokens", "lengths", "scores")


class Names(NamedTuple):
    """The names of the step's inputs and outputs that a decoding uses: `state` maps outputs to inputs."""

    token: str
    logits: str
    state: dict[str, str]
    outputs: tuple[str, ...]


def names_of(token: Any, logits: Any, state: Any, outputs: Any) -> Names:
    """The names, checked for what they are."""
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
    return Names(token, logits, dict(state), tuple(outputs))


def inputs_of(model: Any, role: str = "step") -> dict[str, Any]:
    """The inputs of a functional model by name."""
    check_functional(model, role)
    return dict(model.input) if isinstance(model.input, Mapping) else {x.name: x for x in model.inputs}


def outputs_of(model: Any, role: str = "step") -> dict[str, Any]:
    """The outputs of a functional model by name."""
    check_functional(model, role)
    outputs = model.output
    if not isinstance(outputs, Mapping) or not all(isinstance(x, keras.KerasTensor) for x in outputs.values()):
        raise TypeError(
            f"`{role}` must give a dict of tensors: its keys are the names. Received: `{model.name}`, which gives a "
            f"{type(outputs).__name__}. Make it with `keras.Model(inputs, {{name: tensor}})`."
        )
    return dict(outputs)


def check_functional(model: Any, role: str) -> None:
    """Raises TypeError unless a model is functional."""
    # A model of another kind has no inputs before it is called, and no names for them after that; a `Sequential` has
    # `inputs`, and no `input`.
    is_other = isinstance(model, keras.Sequential) or not isinstance(model, keras.Model)
    inputs = None if is_other else getattr(model, "inputs", None)
    if not inputs or not all(isinstance(x, keras.KerasTensor) for x in inputs):
        raise TypeError(
            f"`{role}` must be a functional model, made with `keras.Model(inputs, outputs)`. "
            f"Received: {role} of type {type(model).__name__}."
        )


def called(model: Any, tensors: Mapping[str, Tensor]) -> Any:
    """The inputs of a functional model in the structure it takes."""
    taken = {name: tensors[name] for name in inputs_of(model)}
    return taken if isinstance(model.input, Mapping) else keras.tree.pack_sequence_as(model.input, [*taken.values()])


def check_step(step: Any, names: Names, end: int | None) -> None:
    """Checks names and a token against the inputs and outputs of a step, and these against each other."""
    inputs, outputs = inputs_of(step), outputs_of(step)
    _check_there("logits", [names.logits], "output", outputs)
    _check_there("outputs", names.outputs, "output", outputs)
    _check_there("state", names.state, "output", outputs)
    _check_there("state", names.state.values(), "input", inputs)
    _check_there("token", [names.token], "input", inputs)
    own = next((name for name in names.outputs if name in OWN_OUTPUTS), None)
    if own is not None:
        raise ValueError(
            f"`outputs` must not hold a name of what decoding itself gives: {_listed(OWN_OUTPUTS)}. "
            f"Received: `{own}`. Give the step's output another name."
        )
    fed = [names.token, *names.state.values()]
    twice = next((name for name in fed if fed.count(name) > 1), None)
    if twice is not None:
        raise ValueError(
            f"Each input of the step must be fed by one thing. Received: `{twice}` twice, in `token` and `state`."
        )
    _check_integers("token", f"the step's input `{names.token}`", inputs[names.token])
    shape, dtype = shape_of(outputs[names.logits]), dtype_of(outputs[names.logits])
    if len(shape) != 2 or shape[1] is None or not keras.backend.is_float_dtype(dtype):
        raise ValueError(
            "`logits` must be floats (B, V), with V known: one for each token that can be next. "
            f"Received: the step's output `{names.logits}` with shape {shape}, dtype {dtype}."
        )
    if end is not None and not 0 <= end < shape[1]:
        raise ValueError(
            f"`end` must be one of the {shape[1]} tokens that `logits` are for, from 0, or None. Received: end={end}."
        )
    for source, target in names.state.items():
        _check_state(source, outputs[source], target, inputs[target])


def check_pair(encoder: Any, step: Any, names: Names, start: int | str) -> None:
    """Checks that each input of the step is fed, and by what fits."""
    there = {**inputs_of(encoder, "encoder"), **outputs_of(encoder, "encoder")}
    fed = {names.token, *names.state.values(), POSITION, *there}
    missing = [name for name in inputs_of(step) if name not in fed]
    if missing:
        raise ValueError(
            f"Each input of the step must be the token, a state, `{POSITION}`, or what the encoder gives or is given: "
            f"{_listed(there)}. Received: a step that reads {_listed(missing)}. Give both the same name."
        )
    if isinstance(start, str):
        _check_there("start", [start], "output or input", there, "encoder")
        _check_integers("start", f"`{start}` of the encoder", there[start])
    check_given(step, names, there)


def check_given(step: Any, names: Names, given: Mapping[str, Any]) -> None:
    """Checks what an encoder gives or is given against the inputs of the step that have its name, but for the batch."""
    for name, taken in inputs_of(step).items():
        if name == names.token or name not in given:
            continue
        tensor = given[name]
        fits = {
            "shape": shapes_agree((None, *shape_of(tensor)[1:]), (None, *shape_of(taken)[1:])),
            "dtype": _kind(dtype_of(tensor)) == _kind(dtype_of(taken)),
        }
        wrong = next((what for what, does in fits.items() if not does), None)
        if wrong is not None:
            raise ValueError(
                "What the encoder gives must fit the step's input of that name. "
                f"Received: `{name}` with {wrong} {getattr(tensor, wrong)} of the encoder, {getattr(taken, wrong)} in "
                "the step."
            )


def batches_of(inputs: Mapping[str, Any]) -> set[int]:
    """The sizes of the batch of inputs, where they are known."""
    return {size for x in inputs.values() for size in shape_of(x)[:1] if size is not None}


def batch_of(encoder: Any, step: Any, width: int) -> int | None:
    """Return the number of rows decoded at a time if the encoder or the step takes one batch only, else None."""
    of_encoder, of_step = batches_of(inputs_of(encoder, "encoder")), batches_of(inputs_of(step))
    batches = {width * size for size in of_encoder} | of_step
    if len(batches) > 1 or any(size % width for size in batches):
        raise ValueError(
            f"A step that takes one batch only must take that of the encoder, {width} times: for each row it is called "
            f"with {width}. Received: batches {_sizes(of_encoder)} of the encoder, {_sizes(of_step)} of the step. "
            "Leave the batch out: `keras.Input(shape)`, without `batch_shape` and `batch_size`."
        )
    return next((size // width for size in batches), None)


def _check_there(role: str, wanted: Iterable[str], kind: str, there: Iterable[str], model: str = "step") -> None:
    for name in wanted:
        if name not in there:
            raise ValueError(f"`{role}` must name an {kind} of the {model}: {_listed(there)}. Received: `{name}`.")


def _check_integers(role: str, what: str, tensor: Any) -> None:
    if len(shape_of(tensor)) != 1 or not keras.backend.is_int_dtype(dtype_of(tensor)):
        raise ValueError(
            f"`{role}` must be integers of shape (B,). Received: {what} with shape {shape_of(tensor)}, "
            f'dtype {dtype_of(tensor)}. Make an input of that kind with `keras.Input((), dtype="int32")`.'
        )


def _check_state(source: str, output: Any, target: str, taken: Any) -> None:
    if dtype_of(output) != dtype_of(taken):
        raise ValueError(
            f"A state must keep its dtype from step to step. Received: the step's output `{source}` is "
            f"{dtype_of(output)}, its input `{target}` {dtype_of(taken)}. Give the input the dtype of the output."
        )
    if not shapes_agree(shape_of(output), shape_of(taken)):
        raise ValueError(
            f"A state must fit the input it goes into. Received: the step's output `{source}` has shape "
            f"{shape_of(output)}, its input `{target}` {shape_of(taken)}. A size that grows is None in the input."
        )


def _kind(dtype: str) -> str:
    if keras.backend.is_float_dtype(dtype):
        return "float"
    return "int" if keras.backend.is_int_dtype(dtype) else dtype


def _sizes(sizes: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(sizes))) or "of any size"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "none"
