"""Callbacks of `keras.Model.fit` that show what attention layers do."""

import os
import warnings
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import keras

from .._checks.arguments import check_positive_integer
from .._heatmaps import matplotlib_figure
from ._inputs import (
    Tokens,
    Vocabulary,
    axis_tokens,
    check_inputs,
    check_labels,
    first_examples,
    named_inputs,
    tokens_of,
)
from ._pictures import picture
from ._watched import Watched, chosen_layers, collect_weights
from ._writers import PictureFiles, TensorBoardPictures, import_tensorflow

__all__ = ["AttentionLogger"]

Format = Literal["tensorboard", "png"]


class AttentionLogger(keras.callbacks.Callback):
    """Writes heat maps of attention weights while a model trains, to TensorBoard or to PNG files.

    After each epoch, or after a number of batches, the logger calls the model in inference mode with chosen inputs, and
    asks each attention layer in it for its weights. The model need not return them. Training goes on as if there were
    no logger: weights, seeds, metrics and the compiled step do not change.

    Attention layers are those whose `call` takes `return_attention_scores`: the layers of this package, Keras's own,
    and yours. They are found at any depth and named by their path, such as `encoder/attention`. A second call of a
    layer in the same model gets its own picture, `encoder/attention/1`. Calls with one query each are steps of a loop,
    and become the rows of one picture.

    A picture has one map for each example and head, with queries down and keys across, on one colour scale from 0 to
    the largest weight. Weights of exactly zero, as of masked keys, are striped grey. NaN and infinity are black.

    Args:
        log_dir: Folder to write to, as a path. TensorBoard shows the pictures as the run `attention`, under images. PNG
            files are `log_dir/attention/PATH/STEP.png`.
        inputs: What to call the model with: arrays `(B, ...)`, or a list, tuple or dict of them, including lengths and
            masks, in the dtypes that `fit` gets.
        layers: Names, paths or layers, or None for all. A dict also says which inputs are the queries and the keys, if
            two inputs in `labels` have the same length: `{"attention": ("target", "source")}`.
        every: `"epoch"`, or a number of batches.
        max_examples: The largest number of examples to show, from the first on.
        max_heads: The largest number of heads to show of each example.
        labels: Tokens for the axes, as a dict from the name of an input of ids, `(B, T)`, to its vocabulary: tokens in
            the order of their ids, or a dict from id to token. An axis is labelled with the input that has its length,
            if there is just one. If the model has a single input, any name stands for it.
        format: `"tensorboard"`, `"png"`, or None: TensorBoard if Keras runs on TensorFlow, else PNG files.

    The step of a picture is the number of the epoch, from 0, as in `keras.callbacks.TensorBoard`. If `every` is a
    number, it is the number of batches trained so far with this logger.

    If a picture cannot be written, there is a `RuntimeWarning` and training goes on. Each picture is written out at
    once, so nothing is lost after Ctrl-C.

    Raises:
        ImportError: If matplotlib is not installed, or TensorFlow is not and `format` is `"tensorboard"`.
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of range. When training begins: if the model has no attention layer, or none
            of a name in `layers`, or does not accept the inputs.
        OSError: When training begins, if the folder cannot be made.

    Example:
        >>> logger = AttentionLogger("logs", [x_val[:4], lengths_val[:4]])
        >>> model.fit([x, lengths], y, epochs=10, callbacks=[logger])
    """

    def __init__(
        self,
        log_dir: str | os.PathLike[str],
        inputs: Any,
        *,
        layers: Iterable[Any] | Mapping[str, tuple[str, str]] | None = None,
        every: int | Literal["epoch"] = "epoch",
        max_examples: int = 4,
        max_heads: int = 8,
        labels: Mapping[str, Vocabulary] | None = None,
        format: Format | None = None,
    ) -> None:
        """Checks the arguments; the model is looked at when training begins."""
        super().__init__()
        matplotlib_figure("AttentionLogger")
        self.log_dir = os.fspath(log_dir)
        self.every = _checked_every(every)
        self.max_examples = check_positive_integer("max_examples", max_examples)
        self.max_heads = check_positive_integer("max_heads", max_heads)
        self.layers = _listed(layers)
        self.labels = check_labels(labels, self.layers)
        self.format = _checked_format(format)
        self.inputs = check_inputs(inputs)
        # Keras waits for every batch where a callback may look at it, unless that says it need not.
        self.async_safe = self.every == "epoch"
        self._examples: Any = None
        self._tokens: Mapping[str, Tokens] = {}
        self._watched: Mapping[str, Watched] = {}
        self._writer: PictureFiles | TensorBoardPictures | None = None
        self._batches = self._batches_before = 0

    def on_train_begin(self, logs: Any = None) -> None:
        """Finds the layers, and tries the inputs before time is spent on training."""
        self._watched = {}
        if self.model.built:
            self._find()
        self._close()
        self._writer = (TensorBoardPictures if self.format == "tensorboard" else PictureFiles)(self.log_dir)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Goes on counting batches."""
        self._batches_before = self._batches

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Looks at a model that the first batch has built: on TensorFlow one without declared inputs."""
        if not self._watched and self.model.built:
            self._find()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Draws after every so many batches; of several that ran in one step, after the last."""
        if self.every == "epoch":
            return
        last, self._batches = self._batches, self._batches_before + batch + 1
        if self._batches // self.every > last // self.every:
            self._log(self._batches)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Draws after an epoch."""
        if self.every == "epoch":
            self._log(epoch)

    def on_train_end(self, logs: Any = None) -> None:
        """Closes what is open."""
        self._close()

    def _find(self) -> None:
        """Finds the layers, and tries the inputs."""
        self._examples = first_examples(self.model, self.inputs, self.max_examples)
        watched = chosen_layers(self.model, self.layers)
        self._tokens = tokens_of(named_inputs(self.model, self._examples), self.labels)
        collect_weights(self.model, self._examples, watched)
        self._watched = watched

    def _log(self, step: int) -> None:
        if self._writer is None:
            raise RuntimeError(
                "`on_train_begin` must come first. In a loop of your own call the methods as `fit` does."
            )
        if not self._watched:
            self._find()
        for path, weights in collect_weights(self.model, self._examples, self._watched).items():
            try:
                self._writer.write(path, step, self._picture(path, weights, step))
            except OSError as error:
                warnings.warn(
                    f"The picture of layer {path!r} at step {step} could not be written to {self.log_dir!r}: {error}. "
                    "It is left out, and training goes on.",
                    RuntimeWarning,
                    stacklevel=2,
                )

    def _picture(self, path: str, weights: Any, step: int) -> bytes:
        watched = self._watched.get(path) or self._watched[path.rpartition("/")[0]]  # of a further call
        sizes = zip(weights.shape[-2:], watched.axes, strict=True)
        queries, keys = (axis_tokens(len(weights), size, name, self._tokens) for size, name in sizes)
        return picture(
            weights,
            f"{path}, {'epoch' if self.every == 'epoch' else 'batch'} {step}",
            max_examples=self.max_examples,
            max_heads=self.max_heads,
            queries=queries,
            keys=keys,
        )

    def _close(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()


def _listed(layers: Any) -> Any:
    if layers is None or isinstance(layers, Mapping):
        return layers
    return [layers] if isinstance(layers, str | keras.layers.Layer) else [*layers]


def _checked_every(every: Any) -> Any:
    if isinstance(every, str) and every != "epoch":
        raise ValueError(f'`every` must be "epoch" or a number of batches. Received: every={every!r}.')
    return every if every == "epoch" else check_positive_integer("every", every)


def _checked_format(format: Any) -> str:
    if format is None:
        return "tensorboard" if keras.backend.backend() == "tensorflow" else "png"
    if format not in ("tensorboard", "png"):
        raise ValueError(f'`format` must be "tensorboard", "png" or None. Received: format={format!r}.')
    if format == "tensorboard":
        import_tensorflow()
    return str(format)
