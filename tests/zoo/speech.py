"""Recognition of speech, speakers and sounds."""

from keras import layers as L  # noqa: N812 - used in every line of the models
from keras import ops

from .blocks import conv_block, feed_forward
from .registry import LOW_PRECISIONS, architecture


@architecture(precisions=LOW_PRECISIONS)
def conformer(features=(None, 20)):
    """Gulati et al., 2020: Conformer, half-step feed-forward layers around attention and a gated convolution."""
    x = L.Dense(24)(features)
    for _ in range(2):
        x = x + 0.5 * feed_forward(L.LayerNormalization()(x), 48, "swish")
        y = L.LayerNormalization()(x)
        x = x + L.MultiHeadAttention(3, 8)(y, y)
        y = L.Conv1D(48, 1)(L.LayerNormalization()(x))
        value, gate = ops.split(y, 2, axis=-1)
        y = L.DepthwiseConv1D(7, padding="same")(value * ops.sigmoid(gate))
        x = x + L.Conv1D(24, 1)(ops.silu(L.BatchNormalization()(y)))
        x = L.LayerNormalization()(x + 0.5 * feed_forward(L.LayerNormalization()(x), 48, "swish"))
    return {"letters": L.Dense(30, activation="log_softmax")(x)}


@architecture()
def speaker_residuals(spectrum=(256, 1)):
    """Keras examples, Speaker Recognition: one-dimensional residual blocks over the spectrum of one second."""
    x = spectrum
    for filters, count in ((8, 2), (12, 2), (16, 3)):
        shortcut = L.Conv1D(filters, 1, padding="same")(x)
        for _ in range(count - 1):
            x = L.Conv1D(filters, 3, padding="same", activation="relu")(x)
        x = L.Conv1D(filters, 3, padding="same")(x)
        x = L.MaxPooling1D(2, 2)(L.ReLU()(x + shortcut))
    x = L.Flatten()(L.AveragePooling1D(3, 3)(x))
    return {"speakers": L.Dense(5, activation="softmax")(L.Dense(24, activation="relu")(x))}


@architecture()
def mel_spectrogram(sound=(2048,)):
    """Keras's layer MelSpectrogram (Stevens et al., 1937) before a small convolutional network."""
    x = L.MelSpectrogram(fft_length=256, sequence_stride=128, sampling_rate=8000, num_mel_bins=20)(sound)
    x = conv_block(ops.expand_dims(x, -1), 8, strides=2)
    return {"classes": L.Dense(4, activation="softmax")(L.GlobalAveragePooling2D()(x))}


@architecture()
def spectrum_of_sound(sound=(256,)):
    """Keras examples, Speaker Recognition: the magnitude spectrum, computed by a Fourier transform in the model."""
    real, imaginary = ops.rfft(sound)
    spectrum = ops.sqrt(ops.square(real) + ops.square(imaginary) + 1e-9)
    x = L.MaxPooling1D(4)(L.Conv1D(8, 5, padding="same", activation="relu")(ops.expand_dims(spectrum, -1)))
    return {"speakers": L.Dense(5)(L.GlobalAveragePooling1D()(x))}
