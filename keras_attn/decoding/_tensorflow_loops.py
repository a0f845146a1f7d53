"""Decoding loops as `tf.while_loop`, and eager calls through a cached `tf.function`."""

import weakref
from collections.abc import Callable, Hashable
from typing import Any

import tensorflow as tf

from .._keras.private_api import stateless_scope
from .._shapes import dtype_of
from .._types import Shape, Tensor
from . import _loop_state
from ._loop_state import Carry, DecodingLoop, Specs, Tensors

_FUNCTIONS: weakref.WeakKeyDictionary[Any, tuple[Hashable, Any]] = weakref.WeakKeyDictionary()


def run_inner(loop: DecodingLoop, first_step: Tensor, carry: Carry, memory: Tensors) -> tuple[Tensor, Carry, Tensors]:
    """Run the inner loop as a `tf.while_loop`; see `_loops._run_inner`."""
    # One entry per iteration, written at the loop's own counter: as a scan output of an ONNX Loop, without an offset.
    arrays = {
        name: tf.TensorArray(dtype, 0, dynamic_size=True, element_shape=shape)
        for name, (shape, dtype) in loop.output_specs().items()
    }
    # Outside of the loop, so that these are not computed again at each step.
    max_finished = _loop_state.max_finished_rows(loop, carry.rows["done"])
    row_offsets = _loop_state.compute_row_offsets(carry, loop.width)
    last_step = loop.max_steps - 1 - first_step

    def condition(counter: Tensor, carry: Carry, arrays: Any) -> Tensor:
        return _loop_state.should_continue(loop, counter, last_step, carry.rows["done"], max_finished)

    def body(counter: Tensor, carry: Carry, arrays: Any) -> tuple[Any, ...]:
        carry, latest = loop.advance(first_step + counter, carry, memory, row_offsets)
        return counter + 1, carry, {name: array.write(counter, latest[name]) for name, array in arrays.items()}

    initial = (tf.constant(0), carry, arrays)
    invariants = (tf.TensorShape([]), _carry_shapes(loop), {name: tf.TensorShape(None) for name in arrays})
    counter, carry, arrays = tf.while_loop(condition, body, initial, shape_invariants=invariants)
    return first_step + counter, carry, {name: array.stack() for name, array in arrays.items()}


def run_outer(loop: DecodingLoop, body: Callable[..., Any], initial: tuple[Any, ...]) -> Any:
    """Run the outer loop as a `tf.while_loop`; see `_loops._run_outer`."""
    num_entries, specs = tf.shape(loop.carry.rows["done"])[0] * loop.width, loop.output_specs()
    outputs = {
        name: tf.zeros([0, num_entries, *(size or 0 for size in shape[1:])], dtype)
        for name, (shape, dtype) in specs.items()
    }

    def condition(step: Tensor, carry: Carry, rows: Tensors, outputs: Tensors) -> Tensor:
        # At least one iteration, even for a batch without rows: it determines the shapes of the outputs.
        return tf.equal(step, 0) | (tf.less(step, loop.max_steps) & ~tf.reduce_all(rows["done"]))

    carry_shapes = _carry_shapes(loop)
    output_shapes = {name: tf.TensorShape([None, *shape]) for name, (shape, _) in specs.items()}
    invariants = (tf.TensorShape([]), carry_shapes, carry_shapes.rows, output_shapes)
    return tf.while_loop(condition, body, (*initial, outputs), shape_invariants=invariants)


def _carry_shapes(loop: DecodingLoop) -> Carry:
    rows = {name: _loop_state.spec_of(x) for name, x in loop.carry.rows.items()}
    return Carry(_tensor_shapes(rows), _tensor_shapes(loop.state_specs))


def _tensor_shapes(specs: Specs) -> dict[str, tf.TensorShape]:
    return {name: tf.TensorShape(shape) for name, (shape, _) in specs.items()}


def run_as_function(method: Any, inputs: Tensors, num_rows: Any, shapes: dict[str, Shape]) -> Tensors:
    """Call a method of a layer, which takes tensors by name and a number of rows, as a cached `tf.function`."""
    # `shapes` have None for each size that may change, so one trace serves all sizes.
    # Without a trace the loops take about 50 times as long. A new trace is made if the variables change: those of a
    # quantized layer, or the values that a stateless scope puts in their place.
    layer, scope = method.__self__, stateless_scope()
    variables, dtypes = map(id, layer.variables), ((name, dtype_of(x)) for name, x in inputs.items())
    key: Hashable = (None if scope is None else weakref.ref(scope), *variables, *dtypes)
    if layer not in _FUNCTIONS or _FUNCTIONS[layer][0] != key:
        # A strong reference from the function to the layer would keep both alive: the function is a value of the layer.
        weak_method: Any = weakref.WeakMethod(method)
        signature = {name: tf.TensorSpec(shapes[name], x.dtype, name=name) for name, x in inputs.items()}
        specs = [signature, tf.TensorSpec([], tf.int32)]
        function = tf.function(
            lambda inputs, count: weak_method()(inputs, count), input_signature=specs, autograph=False
        )
        _FUNCTIONS[layer] = key, function
    outputs: Tensors = _FUNCTIONS[layer][1](inputs, tf.constant(num_rows, tf.int32))
    return outputs
