"""What TensorFlow does to graphs and gives no public name."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2
from tensorflow.python.grappler import tf_optimizer

# Attributes of functions and of their calls.
IMPLEMENTS = "_implements"  # what `experimental_implements` was
KEPT_APART = "_noinline"
COMPILED = "_XlaMustCompile"
KEEPS_ITS_ARGUMENTS = "_nospecialize"  # or constants would be moved into it


def with_constants(function: Any, *, inline: bool = True) -> Any:
    """Return a concrete function whose variables are constants.

    Args:
        function: The concrete function; while control flow stays as it is, all else may be optimized.
        inline: Whether calls of functions are replaced by what is in them.
    """
    return convert_variables_to_constants_v2(function, lower_control_flow=False, aggressive_inlining=inline)


def optimized(config: tf.compat.v1.ConfigProto, meta_graph: Any) -> tf.compat.v1.GraphDef:
    """Return the graph of a meta graph after the optimizers of a session configuration."""
    return tf_optimizer.OptimizeGraph(config, meta_graph)
