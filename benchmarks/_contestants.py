"""Every way to compute an attention that is timed. Each is run in a process of its own, by `_worker.py`.

A contestant is made in two steps, so that memory can be measured from between them: `KINDS[kind](spec)` imports what it
needs and returns `build`; `build(inputs)` makes the model and returns a `Runner`.
"""

import os
from pathlib import Path
from typing import Any

import numpy as np
from _runner import Arrays, Build, Runner
from _sizes import Size

LARGE_RATE, RATE = 1e3, 1e-3  # a large step shows the gradient in float32 weights; timed steps leave them as they are


class UnavailableError(Exception):
    """This machine lacks what the contestant needs."""


def onnx(spec: dict[str, Any]) -> Build:
    """An ONNX file in onnxruntime, on the provider asked for."""
    from keras_attn_export._standalone import verify

    ort = verify.check_provider(spec["provider"])

    def build(inputs: Arrays) -> Runner:
        session = verify.open_session(Path(spec["options"]["model"]), spec["provider"], threads=spec["threads"])
        read = {each.name for each in session.get_inputs()}
        inputs = {name: array for name, array in inputs.items() if name in read}
        if spec["provider"] == "cpu":
            return Runner(lambda: session.run(None, inputs), lambda: session.run(None, inputs))
        binding = session.io_binding()  # inputs and outputs stay on the device
        for name, array in inputs.items():
            binding.bind_ortvalue_input(name, ort.OrtValue.ortvalue_from_numpy(array, "cuda", 0))
        for output in session.get_outputs():
            binding.bind_output(output.name, "cuda")

        def run() -> Any:
            session.run_with_iobinding(binding)
            binding.synchronize_outputs()
            return binding

        return Runner(run, lambda: run().copy_outputs_to_cpu())

    return build


def _tensorflow(spec: dict[str, Any]) -> Any:
    """Import TensorFlow with the threads of the spec, and see to its device."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(spec["threads"])
    tf.config.threading.set_inter_op_parallelism_threads(spec["threads"])
    if spec["provider"] == "cuda" and not tf.config.list_physical_devices("GPU"):
        raise UnavailableError("this TensorFlow has no GPU")
    return tf


def tensorflow(spec: dict[str, Any]) -> Build:
    """Our layer, or the one of Keras, in a `tf.function`; with `jit` compiled by XLA."""
    tf = _tensorflow(spec)
    import _models

    options, size = spec["options"], Size(**spec["options"]["size"])

    def build(inputs: Arrays) -> Runner:
        if options["layer"] == "keras":
            call = _models.keras_layer_call(size, options["weights"])
        else:
            model = _models.attention_model(size)
            model.set_weights(options["weights"])

            def call(*tensors: Any) -> Any:
                return model(list(tensors), training=False)

        function = tf.function(call, jit_compile=options["jit"], autograph=False)
        tensors = [tf.constant(array) for array in inputs.values()]

        def run() -> list[np.ndarray]:
            return [output.numpy() for output in tf.nest.flatten(function(*tensors))]

        return Runner(run, run)

    return build


def _keras_backend(spec: dict[str, Any]) -> None:
    """Import the backend of the options, TensorFlow unless they say another, with the threads of the spec."""
    backend = spec["options"].get("backend", "tensorflow")
    if backend == "tensorflow":
        _tensorflow(spec)
    elif backend == "torch":
        import torch

        torch.set_num_threads(spec["threads"])
    else:
        import jax  # noqa: F401 - to be missed here


class _KerasTraining:
    """Training steps of a Keras model, through the loop that `fit` uses."""

    def __init__(self, options: dict[str, Any], inputs: Arrays) -> None:
        import _models

        self.model = _models.attention_model(Size(**options["size"]), query_block_size=options["query_block_size"])
        self.optimizer = _models.keras.optimizers.SGD(RATE)
        self.model.compile(self.optimizer, "mse", jit_compile=options["jit"])
        *self.arrays, self.target = inputs.values()

    def run(self) -> None:
        self.model.train_on_batch(self.arrays, self.target)

    def set(self, weights: list[np.ndarray], rate: float) -> None:
        self.model.set_weights(weights)
        self.optimizer.learning_rate = rate

    def read(self) -> list[np.ndarray]:
        return list(self.model.get_weights())


def _training_runner(training: Any, weights: list[np.ndarray]) -> Runner:
    def gradients() -> list[np.ndarray]:
        training.set(weights, LARGE_RATE)
        training.run()
        moved = [(before - after) / LARGE_RATE for before, after in zip(weights, training.read(), strict=True)]
        training.set(weights, RATE)
        return moved

    training.set(weights, RATE)
    return Runner(training.run, gradients)


def keras_training(spec: dict[str, Any]) -> Build:
    """Training steps of our layer, on the backend of the options, or on TensorFlow."""
    _keras_backend(spec)
    import _models  # noqa: F401 - part of the imports, not of the model

    options = spec["options"]
    return lambda inputs: _training_runner(_KerasTraining(options, inputs), options["weights"])


def _torch_device(spec: dict[str, Any], models: Any) -> str:
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(Path(spec["answer"]).parent / "inductor")
    models.torch.set_num_threads(spec["threads"])
    if spec["provider"] == "cuda" and not models.torch.cuda.is_available():
        raise UnavailableError("this PyTorch has no CUDA device")
    return str(spec["provider"])


def torch(spec: dict[str, Any]) -> Build:
    """The same in PyTorch; with `compile` through torch.compile."""
    import _torch_models

    device = _torch_device(spec, _torch_models)

    def build(inputs: Arrays) -> Runner:
        run = _torch_models.inference(spec["options"], inputs, device)
        return Runner(run, lambda: [output.cpu().numpy() for output in run()])

    return build


def torch_training(spec: dict[str, Any]) -> Build:
    """Training steps in PyTorch."""
    import _torch_models

    device = _torch_device(spec, _torch_models)
    options = {**spec["options"], "rate": RATE}
    return lambda inputs: _training_runner(_torch_models.Training(options, inputs, device), options["weights"])


def multi_head_training(spec: dict[str, Any]) -> Build:
    """Training steps of multi-head attention, ours or Keras's, on the backend of the options."""
    _keras_backend(spec)
    import _multi_head

    options = spec["options"]
    weights = _multi_head.random_weights(options)
    return lambda inputs: _training_runner(_multi_head.Training(options, inputs, RATE), weights)


def loop_over_rows(spec: dict[str, Any]) -> Build:
    """A plain loop over the rows of a table."""
    import _rows

    return _rows.loop(spec)


def predict(spec: dict[str, Any]) -> Build:
    """`predict` over the rows of a table."""
    import _rows

    return _rows.ours(spec)


def decoding_loop(spec: dict[str, Any]) -> Build:
    """A loop in Python over the file of a step."""
    import _decoding_loop

    return _decoding_loop.loop(spec)


KINDS = {
    "onnx": onnx,
    "tensorflow": tensorflow,
    "keras training": keras_training,
    "multi-head training": multi_head_training,
    "torch": torch,
    "torch training": torch_training,
    "loop over rows": loop_over_rows,
    "predict": predict,
    "decoding loop": decoding_loop,
}
