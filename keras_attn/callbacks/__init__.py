"""Callbacks for `keras.Model.fit`."""

import os
import warnings
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import keras

from .._checks.constructor_arguments import check_positive_integer
from .._heatmaps import import_figure_class
from ._axis_labels import Vocabulary, find_axis_tokens, look_up_tokens
from ._heatmap_grid import draw_heatmaps
from ._image_writers import make_png_writer, make_tensorboard_writer
from ._weight_capture import capture_weights, choose_layers

__all__ = ["AttentionLogger"]


class AttentionLogger(keras.callbacks.Callback):
    """Write heat maps of attention weights while a model trains, to TensorBoard or to PNG files.

    After each epoch, or after a number of batches, the logger calls the model in inference mode and captures the
    weights of its attention layers. The model need not return them, and the training does not change.

    An attention layer is any layer, at any depth, whose `call` takes `return_attention_scores`. Its path, such as
    `encoder/attention`, names its images; a second call of it in a model has the path `encoder/attention/1`. Calls
    with a single query, as in a decoder's loop, become the rows of one map.

    An image has a map for each example and head, with queries down and keys across, and colours from 0 to the largest
    weight. Weights of zero, as of masked keys, are striped grey; NaN and infinity are black. Its step is the number of
    the epoch, from 0, or of the batches trained with this logger. A failed write issues a `RuntimeWarning`.

    Args:
        log_dir: Folder. The images are in the TensorBoard run `attention`, or in files `attention/PATH/STEP.png`.
        inputs: Arrays `(B, ...)` to call the model with, or a list, tuple or dict of them, as `fit` takes them.
        layers: Names, paths or layers; None for all attention layers outside of a `keras.layers.RNN` without `unroll`.
        every: `"epoch"`, or a number of batches.
        max_examples: Largest number of examples to use. A model with a fixed batch size needs that number.
        max_heads: Largest number of heads to draw of each example.
        labels: Dict from the name of an integer input `(B, T)`, or any name if there is one input, to its tokens: a
            list in the order of ids, or a dict by id. An axis gets the tokens of the only input of its length.
        format: `"tensorboard"`, `"png"`, or None: TensorBoard if Keras runs on TensorFlow, PNG files if not.

    Raises:
        ImportError: If matplotlib is not installed, or TensorFlow for `format="tensorboard"`.
        TypeError: If an argument has a wrong type.
        ValueError: If an argument is out of range. Also if no layer matches or the model does not accept the inputs;
            this is checked when training begins, or after the first batch if that batch builds the model.

    Example:
        >>> model.fit([x, lengths], y, callbacks=[AttentionLogger("logs", [x_val[:4], lengths_val[:4]])])
    """

    def __init__(
        self,
        log_dir: str | os.PathLike[str],
        inputs: Any,
        *,
        layers: Iterable[Any] | None = None,
        every: int | Literal["epoch"] = "epoch",
        max_examples: int = 4,
        max_heads: int = 8,
        labels: Mapping[str, Vocabulary] | None = None,
        format: Literal["tensorboard", "png"] | None = None,
    ) -> None:
        """Check the arguments."""
        super().__init__()
        import_figure_class("AttentionLogger")
        format = format or ("tensorboard" if keras.backend.backend() == "tensorflow" else "png")
        if format not in ("tensorboard", "png"):
            raise ValueError(f'`format` must be "tensorboard", "png" or None. Received: format={format!r}.')
        if isinstance(every, str) and every != "epoch":
            raise ValueError(f'`every` must be "epoch" or a number of batches. Received: every={every!r}.')
        if isinstance(layers, Mapping):
            raise TypeError(f"`layers` must be names, paths or layers; `labels` sets tokens. Received: {layers!r:.40}.")
        if not isinstance(labels, Mapping | None):
            raise TypeError(f"`labels` must be a dict from names of inputs to vocabularies. Received: {labels!r:.40}.")
        self.log_dir = os.fspath(log_dir)
        self.every = every if every == "epoch" else check_positive_integer("every", every)
        self.max_examples = check_positive_integer("max_examples", max_examples)
        self.max_heads = check_positive_integer("max_heads", max_heads)
        self.layers = [layers] if isinstance(layers, str | keras.layers.Layer) else layers and [*layers]
        self.labels, self.format = labels or {}, format
        self.inputs = _take_examples(inputs, self.max_examples)
        # With False, Keras runs `on_train_batch_end` before the next batch, which would change the weights.
        self.async_safe = self.every == "epoch"
        self._batches = 0

    def on_train_begin(self, logs: Any = None) -> None:
        """Check the inputs with a built model, and open the log."""
        self._attention_layers: dict[str, Any] = {}
        self._batches_before_epoch = self._batches
        self._prepare()
        self._write = (make_png_writer if self.format == "png" else make_tensorboard_writer)(self.log_dir)

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Check the inputs with a subclassed model, which on TensorFlow the first batch builds."""
        self._prepare()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Write images if a step, which may train several batches, completes a multiple of `every`."""
        # With `steps_per_execution` a step trains several batches, so compare quotients instead of remainders.
        old_batches, self._batches = self._batches, self._batches_before_epoch + batch + 1
        if self.every != "epoch" and self._batches // self.every > old_batches // self.every:
            self._log(f"batch {self._batches}", self._batches)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Write images if `every` is "epoch"."""
        self._batches_before_epoch = self._batches
        if self.every == "epoch":
            self._log(f"epoch {epoch}", epoch)

    def _prepare(self) -> None:
        """Choose layers, check the inputs by one call, and look up tokens, once the model is built."""
        if self.model.built and not self._attention_layers:
            self._attention_layers = choose_layers(self.model, self.layers)
            capture_weights(self.model, self.inputs, self._attention_layers)
            self._tokens = look_up_tokens(self.model, self.inputs, self.labels)

    def _log(self, moment: str, step: int) -> None:
        self._prepare()
        for path, weights in capture_weights(self.model, self.inputs, self._attention_layers).items():
            maps = weights.reshape(len(weights), -1, *weights.shape[-2:])[:, : self.max_heads]  # (B, heads, Tq, Tk)
            queries, keys = (find_axis_tokens(self._tokens, len(maps), size) for size in maps.shape[-2:])
            try:
                self._write(path, step, draw_heatmaps(maps, f"{path}, {moment}", queries, keys))
            except Exception as error:  # noqa: BLE001 - of the system or of TensorFlow, such as a full disk
                message = f"The attention of {path} at {moment} was not logged: {error}"
                warnings.warn(message, RuntimeWarning, stacklevel=2)


def _take_examples(inputs: Any, count: int) -> Any:
    """Return the first `count` examples of each array, (B, ...) each."""
    shapes = [tuple(getattr(array, "shape", ())) for array in keras.tree.flatten(inputs)]
    counts = {shape[0] if shape else 0 for shape in shapes}
    if len(counts) != 1 or 0 in counts:
        raise ValueError(f"`inputs` must be arrays with the same number of examples, at least one. Received: {shapes}.")
    return keras.tree.map_structure(lambda array: array[:count], inputs)
