"""The attention weights of layers within a model that does not return them."""

import contextlib
import inspect
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from .._keras.private import children_of
from .._tensors import Tensor

ASKS = "return_attention_scores"


class Watched(NamedTuple):
    """An attention layer within a model.

    Attributes:
        layer: The layer.
        in_loop: Whether a `keras.layers.RNN` calls it at each step.
        axes: The names of the inputs that queries and keys are, where they are known.
    """

    layer: Any
    in_loop: bool
    axes: tuple[str | None, str | None] = (None, None)


def attention_layers(model: Any) -> dict[str, Watched]:
    """The layers of a model, at any depth, that can be asked for their weights, by a path that is safe for files.

    Those are the ones whose `call` takes `return_attention_scores`. What is within such a layer counts as a part of it.
    """
    found: dict[str, Watched] = {}
    for parts, watched in _below(model, (), in_loop=False, seen=set()):
        path = "/".join(map(_safe, parts))
        number, taken = 1, {each.casefold() for each in found}  # some file systems do not tell `A` from `a`
        unique = path
        while unique.casefold() in taken:
            unique, number = f"{path}_{number}", number + 1
        found[unique] = watched
    return found


def chosen_layers(model: Any, chosen: Iterable[Any] | None) -> dict[str, Watched]:
    """Those of the attention layers of a model that are named, by their path or the end of it, or given themselves.

    Args:
        model: The model.
        chosen: Names, paths or layers; None for all. A dict has the axes of each.

    Raises:
        ValueError: If there is none, or none of a name.
    """
    known = attention_layers(model)
    if not known:
        raise ValueError(
            "The model must have an attention layer: one whose `call` takes `return_attention_scores`. "
            f"Received: model {model.name!r}, which has none at any depth."
        )
    if chosen is None:
        return known
    found: dict[str, Watched] = {}
    for choice in chosen:
        fitting = {path: watched for path, watched in known.items() if _is_chosen(choice, path, watched.layer)}
        if not fitting:
            raise ValueError(
                "`layers` must name attention layers of the model. "
                f"Received: {_shown(choice)}. There are: {', '.join(map(repr, known))}."
            )
        for path, watched in fitting.items():
            axes = chosen[choice] if isinstance(chosen, Mapping) else watched.axes
            found.setdefault(path, watched._replace(axes=axes))
    return found


def _is_chosen(choice: Any, path: str, layer: Any) -> bool:
    """Whether a name, a path or a layer means the layer at a path."""
    return choice is layer or (isinstance(choice, str) and f"/{path}".endswith(f"/{choice}")) or choice == layer.name


def collect_weights(model: Any, inputs: Any, layers: Mapping[str, Watched]) -> dict[str, Any]:
    """Calls a model as in inference and returns the weights that layers in it gave, without a trace in the model.

    Args:
        model: Built. Its variables, those of seeds among them, stay as they are.
        inputs: What the model takes.
        layers: By path.

    Returns:
        Arrays in float32, `B + (Tq, Tk)` or `B + (H, Tq, Tk)`, by path; of a layer that was called again by `path/1`,
        `path/2`. Calls that had one query each are steps of a loop, and become the queries of one array.

    Raises:
        ValueError: If the model does not take the inputs, or no layer was called.
    """
    calls: dict[str, list[Any]] = {path: [] for path in layers}
    with contextlib.ExitStack() as stack:
        for path, watched in layers.items():
            stack.enter_context(_asked(watched.layer, calls[path].append))
        stack.enter_context(keras.StatelessScope())  # seeds that are drawn from go on as if nobody had
        try:
            model(inputs, training=False)
        except Exception as error:
            raise ValueError(
                f"`inputs` must be what the model takes. Model {model.name!r} refused them, or failed: "
                f"{str(error).strip() or type(error).__name__}"
            ) from error
    found: dict[str, Any] = {}
    for path, watched in layers.items():
        for number, weights in enumerate(_joined(path, calls[path], watched.in_loop)):
            found[f"{path}/{number}" if number else path] = weights
    if not found:
        raise ValueError(
            "The model must call an attention layer in inference. "
            f"Received: model {model.name!r}, which called none of {', '.join(map(repr, layers))} with these inputs."
        )
    return found


def _below(
    layer: Any, parts: tuple[str, ...], *, in_loop: bool, seen: set[int]
) -> Iterator[tuple[tuple[str, ...], Watched]]:
    for child in children_of(layer):
        if id(child) in seen:
            continue
        seen.add(id(child))
        if ASKS in inspect.signature(child.call).parameters:
            yield (*parts, child.name), Watched(child, in_loop)
        else:
            loops = isinstance(child, keras.layers.RNN) and not child.unroll
            yield from _below(child, (*parts, child.name), in_loop=in_loop or loops, seen=seen)


@contextlib.contextmanager
def _asked(layer: Any, note: Callable[[Any], None]) -> Iterator[None]:
    """Lets calls of a layer in this thread note their weights; they return what they would have returned."""
    original, is_own = layer.call, "call" in vars(layer)
    signature, asker = inspect.signature(original), threading.get_ident()

    def call(*args: Any, **kwargs: Any) -> Any:
        if threading.get_ident() != asker:
            return original(*args, **kwargs)
        given = signature.bind(*args, **kwargs)
        wanted = given.arguments.get(ASKS, False)
        given.arguments[ASKS] = True
        result = original(*given.args, **given.kwargs)
        if not (isinstance(result, tuple) and len(result) == 2):  # as `precompute` gives
            return result
        note(_as_array(result[1]))
        return result if wanted else result[0]

    # Keras reads the method of the instance at each call. Around its `__setattr__`, which would track the function.
    vars(layer)["call"] = call
    try:
        yield
    finally:
        if is_own:
            vars(layer)["call"] = original
        else:
            del vars(layer)["call"]


def _as_array(weights: Tensor) -> Any:
    """An array in float32; None for what is no number yet, since a compiler is at work."""
    try:
        return np.asarray(ops.convert_to_numpy(ops.cast(weights, "float32")))
    except (NotImplementedError, TypeError):  # TensorFlow's, of a graph; JAX's, of a tracer
        return None


def _joined(path: str, calls: list[Any], in_loop: bool) -> list[Any]:
    if any(weights is None for weights in calls):
        raise ValueError(
            f"Layer {path!r} must run eagerly to show its weights. It is called in a function that is compiled: a "
            "`tf.function`, say, or on JAX a `keras.layers.RNN` without `unroll=True`. Leave it out with `layers`."
        )
    calls = [weights[:, None] if weights.ndim == 2 else weights for weights in calls]
    if any(weights.ndim < 3 for weights in calls):
        raise ValueError(
            f"Weights must have shape (B, ..., Tq, Tk). Received: weights shape {calls[0].shape} of layer {path!r}. "
            "Leave it out with `layers`."
        )
    if in_loop and len(calls) > 1:
        calls = calls[1:]  # Keras takes the first step once more, to see what it gives
    if len({weights.shape for weights in calls}) == 1 and calls[0].shape[-2] == 1:
        return [np.concatenate(calls, axis=-2)]
    return calls


def _safe(name: str) -> str:
    return re.sub(r"[^\w.-]+", "_", name).lstrip(".")[:100] or "_"


def _shown(choice: Any) -> str:
    return repr(choice if isinstance(choice, str) else getattr(choice, "name", type(choice).__name__))
