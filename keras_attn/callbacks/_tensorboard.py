"""Pictures in TensorBoard: all that is used of TensorFlow's summaries, in one place."""

import os
import struct
from collections.abc import Callable
from typing import Any


class TensorBoardPictures:
    """Writes images to the run `attention` in a folder, or wherever TensorFlow can write, such as `gs://`.

    Raises:
        ImportError: If TensorFlow is not installed.
        OSError: If there can be no such folder.
    """

    def __init__(self, folder: Any) -> None:
        self._tf = summaries()
        path = os.path.join(os.fspath(folder), "attention")
        self._writer = self._tried(lambda: self._tf.summary.create_file_writer(path))

    def write(self, tag: str, step: int, png: bytes) -> None:
        """Writes an image, which is in the file at once: after Ctrl-C nobody closes it."""
        self._tried(lambda: self._write(tag, step, png))

    def close(self) -> None:
        """Closes the file."""
        self._tried(self._writer.close)

    def _write(self, tag: str, step: int, png: bytes) -> None:
        tf = self._tf
        width, height = struct.unpack(">II", png[16:24])  # the first that a PNG file says
        # What `tf.summary.image` writes. That is TensorBoard's, which newer releases of TensorFlow do not bring along.
        image = tf.constant([str(width).encode(), str(height).encode(), png])
        metadata = tf.compat.v1.SummaryMetadata(data_class="DATA_CLASS_BLOB_SEQUENCE")
        metadata.plugin_data.plugin_name = "images"
        # `keras.callbacks.TensorBoard` forbids all summaries of most batches. A writer flushes once it is not default.
        with tf.device("CPU:0"), tf.summary.record_if(True), self._writer.as_default():
            tf.summary.write(tag, image, step=step, metadata=metadata)

    def _tried(self, action: Callable[[], Any]) -> Any:
        try:
            return action()
        except self._tf.errors.OpError as error:
            raise OSError(error.message) from error


def summaries() -> Any:
    """TensorFlow."""
    try:
        import tensorflow as tf
    except ImportError as error:
        raise ImportError(
            '`format="tensorboard"` needs TensorFlow, which is not installed. '
            'Install it with `pip install tensorflow`, or pass `format="png"`.'
        ) from error
    return tf
