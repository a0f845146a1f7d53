"""The loops of a search in a graph of TensorFlow, and so in an ONNX file."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from .._tensors import Tensor
from ._search import Carry, Search, Specs, Tensors, first_entries, goes_on, most_done


class GraphLoops:
    """Both loops as `tf.while_loop`, one within the other."""

    def inner(self, search: Search, first: Tensor, carry: Carry, memory: Tensors) -> tuple[Tensor, Carry, Tensors]:
        """Steps for as long as `goes_on` says."""
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

    def outer(self, search: Search, body: Callable[..., Any], first: tuple[Any, ...]) -> Any:
        """Calls `body` once, and again until no row is left or no step."""
        count, kept = tf.shape(first[2])[0] * search.width, search.kept()
        steps = {
            name: tf.zeros([0, count, *(size or 0 for size in shape[1:])], dtype)
            for name, (shape, dtype) in kept.items()
        }

        def condition(step: Tensor, carry: Carry, running: Tensor, rows: Tensors, steps: Tensors) -> Tensor:
            # A first time for a batch without rows too, which shows the shapes of what is kept.
            return tf.equal(step, 0) | (tf.less(step, search.limit) & tf.reduce_any(running))

        invariants = (
            tf.TensorShape([]),
            _carry_shapes(search),
            tf.TensorShape([None]),
            _shapes(search.rows),
            {name: tf.TensorShape([None, *shape]) for name, (shape, _) in kept.items()},
        )
        return tf.while_loop(condition, body, (*first, steps), shape_invariants=invariants)


def _carry_shapes(search: Search) -> Carry:
    return Carry(_shapes(search.rows), _shapes(search.states))


def _shapes(specs: Specs) -> dict[str, tf.TensorShape]:
    return {name: tf.TensorShape(shape) for name, (shape, _) in specs.items()}
