"""What Keras does not tell of how TensorFlow runs a program; all that is not public there is here."""


def is_eager() -> bool:
    """Whether TensorFlow runs operations one by one."""
    import tensorflow as tf

    return bool(tf.executing_eagerly())


def is_compiled_by_xla() -> bool:
    """Whether TensorFlow is tracing a function that XLA will compile, with `jit_compile=True`."""
    import tensorflow as tf
    from tensorflow.python.ops import control_flow_util

    return not is_eager() and bool(control_flow_util.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph()))
