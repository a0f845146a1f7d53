"""Write images to PNG files or to TensorBoard."""

import struct
from pathlib import Path
from typing import Any


def make_png_writer(folder: str) -> Any:
    """Return a function `(layer path, step, PNG bytes)` that writes `FOLDER/attention/PATH/STEP.png`."""
    Path(folder, "attention").mkdir(parents=True, exist_ok=True)

    def write(path: str, step: int, png: bytes) -> None:
        file = Path(folder, "attention", path, f"{step}.png")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(png)

    return write


def make_tensorboard_writer(folder: str) -> Any:
    """Return a function `(layer path, step, PNG bytes)` that writes to the TensorBoard run `attention`."""
    import tensorflow as tf

    writer = tf.summary.create_file_writer(f"{folder}/attention")
    # The data format of `tf.summary.image`, which would require the package tensorboard.
    metadata = tf.compat.v1.SummaryMetadata(data_class="DATA_CLASS_BLOB_SEQUENCE")
    metadata.plugin_data.plugin_name = "images"

    def write(path: str, step: int, png: bytes) -> None:
        width, height = struct.unpack(">II", png[16:24])  # in the header of a PNG file
        image = tf.constant([str(width).encode(), str(height).encode(), png])
        # `record_if`, because `keras.callbacks.TensorBoard` turns summaries off for most batches. `as_default` flushes.
        with tf.device("CPU:0"), tf.summary.record_if(True), writer.as_default():
            tf.summary.write(path, image, step=step, metadata=metadata)

    return write
