"""Where pictures go: files in a folder, or TensorBoard. What cannot be written is an `OSError`.

A picture is there as soon as it is written, even if the process ends at once.
"""

import contextlib
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any


class PictureFiles:
    """Writes `FOLDER/attention/TAG/STEP.png`.

    Raises:
        OSError: If there can be no such folder.
    """

    def __init__(self, folder: Any) -> None:
        self._folder = Path(folder) / "attention"
        self._folder.mkdir(parents=True, exist_ok=True)

    def write(self, tag: str, step: int, png: bytes) -> None:
        """Writes a file, which is there whole or not at all."""
        path = self._folder.joinpath(*tag.split("/"), f"{step}.png")
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        try:
            part.write_bytes(png)
            os.replace(part, path)
        finally:
            part.unlink(missing_ok=True)

    def close(self) -> None:
        """Nothing is open."""


class TensorBoardPictures:
    """Writes images to the run `attention` in a folder, or wherever TensorFlow can write, such as `gs://`.

    Raises:
        ImportError: If TensorFlow is not installed.
        OSError: If there can be no such folder.
    """

    def __init__(self, folder: Any) -> None:
        self._tf = import_tensorflow()
        with self._os_errors():
            self._writer = self._tf.summary.create_file_writer(os.path.join(os.fspath(folder), "attention"))

    def write(self, tag: str, step: int, png: bytes) -> None:
        """Writes an image, which is in the file at once: after Ctrl-C nobody closes it."""
        tf = self._tf
        width, height = struct.unpack(">II", png[16:24])  # the first that a PNG file says
        # What `tf.summary.image` writes. That is TensorBoard's, which newer releases of TensorFlow do not bring along.
        image = tf.constant([str(width).encode(), str(height).encode(), png])
        metadata = tf.compat.v1.SummaryMetadata(data_class="DATA_CLASS_BLOB_SEQUENCE")
        metadata.plugin_data.plugin_name = "images"
        # `keras.callbacks.TensorBoard` forbids all summaries of most batches. A writer flushes once it is not default.
        with self._os_errors(), tf.device("CPU:0"), tf.summary.record_if(True), self._writer.as_default():
            tf.summary.write(tag, image, step=step, metadata=metadata)

    def close(self) -> None:
        """Closes the file."""
        with self._os_errors():
            self._writer.close()

    @contextlib.contextmanager
    def _os_errors(self) -> Iterator[None]:
        try:
            yield
        except self._tf.errors.OpError as error:
            raise OSError(error.message) from error


def import_tensorflow() -> Any:
    """TensorFlow, for its summaries."""
    try:
        import tensorflow as tf
    except ImportError as error:
        raise ImportError(
            '`format="tensorboard"` needs TensorFlow, which is not installed. '
            'Install it with `pip install tensorflow`, or pass `format="png"`.'
        ) from error
    return tf
