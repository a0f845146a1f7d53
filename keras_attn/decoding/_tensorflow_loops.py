"""Decoding loops as `tf.while_loop`, and eager calls through a cached `tf.function`."""

import weakref
from collections.abc import Callable, Hashable
from typing import Any

import tensorflow as tf

from .._keras.private_api import stateless_scope
from .._shapes import dtype_of
from .._types import Shape, Tensor
from ._loop_state import Carry, Search, Specs, Tensors, first_entries, goes_on, most_done, spec_of

_PROGRAMS: weakref.WeakKeyDictionary[Any, tuple[Hashable, Any]] = weakref.WeakKeyDictionary()


def inner(search: Search, first: Tensor, carry: Carry, memory: Tensors) -> tuple[Tensor, Carry, Tensors]:
    """The inner loop of a search, as a `tf.while_loop`."""
    # As long as what is written, at the number of the loop's own step: so ONNX has them, with nothing to move.
    arrays = {
        name: tf.TensorArray(dtype, 0, dynamic_size=True, element_shape=shape)
        for name, (shape, dtype) in search.kept().items()
    }
    # Outside of the loop, so that they are not computed again at each step.
    most, entries = most_done(search, carry.rows["done"]), first_entries(carry, search.width)
    last = search.limit - 1 - first

    def condition(taken: Tensor, carry: Carry, arrays: Any) -> Tensor:
        return goes_on(search, taken, last, carry.rows["done"], most)

    def body(taken: Tensor, carry: Carry, arrays: Any) -> tuple[Any, ...]:
        carry, kept = search.advance(first + taken, carry, memory, entries)
        return taken + 1, carry, {name: each.write(taken, kept[name]) for name, each in arrays.items()}

    begin = (tf.constant(0), carry, arrays)
    invariants = (tf.TensorShape([]), _carry_shapes(search), {name: tf.TensorShape(None) for name in arrays})
    taken, carry, arrays = tf.while_loop(condition, body, begin, shape_invariants=invariants)
    return first + taken, carry, {name: each.stack() for name, each in arrays.items()}


def outer(search: Search, body: Callable[..., Any], first: tuple[Any, ...]) -> Any:
    """The outer loop of a search, as a `tf.while_loop`."""
    count, kept = tf.shape(search.carry.rows["done"])[0] * search.width, search.kept()
    steps = {
        name: tf.zeros([0, count, *(size or 0 for size in shape[1:])], dtype) for name, (shape, dtype) in kept.items()
    }

    def condition(step: Tensor, carry: Carry, rows: Tensors, steps: Tensors) -> Tensor:
        # A first time for a batch without rows too, which shows the shapes of what is kept.
        return tf.equal(step, 0) | (tf.less(step, search.limit) & ~tf.reduce_all(rows["done"]))

    of_carry = _carry_shapes(search)
    of_steps = {name: tf.TensorShape([None, *shape]) for name, (shape, _) in kept.items()}
    invariants = (tf.TensorShape([]), of_carry, of_carry.rows, of_steps)
    return tf.while_loop(condition, body, (*first, steps), shape_invariants=invariants)


def _carry_shapes(search: Search) -> Carry:
    rows = {name: spec_of(x) for name, x in search.carry.rows.items()}
    return Carry(_shapes(rows), _shapes(search.states))


def _shapes(specs: Specs) -> dict[str, tf.TensorShape]:
    return {name: tf.TensorShape(shape) for name, (shape, _) in specs.items()}


def run_as_program(method: Any, inputs: Tensors, count: Any, shapes: dict[str, Shape]) -> Tensors:
    """Call a method of a layer as a program, traced once for all sizes: its loops would take fifty times as long.

    The method takes tensors by name and a number of rows; `shapes` have None for each size that may change. It is
    traced anew where it would compute with other variables than those that it was traced with: those of a quantized
    layer, or the values that a stateless scope puts in their place.
    """
    layer, scope = method.__self__, stateless_scope()
    of = (*(id(variable) for variable in layer.variables), *((name, dtype_of(x)) for name, x in inputs.items()))
    made_of: Hashable = (None if scope is None else weakref.ref(scope), of)
    if layer not in _PROGRAMS or _PROGRAMS[layer][0] != made_of:
        owned: Any = weakref.WeakMethod(method)  # or the program would keep its layer alive, and that the program
        signature = {name: tf.TensorSpec(shapes[name], x.dtype, name=name) for name, x in inputs.items()}
        specs = [signature, tf.TensorSpec([], tf.int32)]
        program = tf.function(lambda inputs, count: owned()(inputs, count), input_signature=specs, autograph=False)
        _PROGRAMS[layer] = made_of, program
    found: Tensors = _PROGRAMS[layer][1](inputs, tf.constant(count, tf.int32))
    return found
