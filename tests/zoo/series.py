"""Series: forecasts, classes and reconstructions."""

import keras
from keras import layers as L  # noqa: N812 - these files consist of them
from keras import ops

from .blocks import conv_block, pre_norm_block
from .registry import HALF, architecture


@architecture(seeded=True)
def lstm_forecast():
    """Hochreiter and Schmidhuber, 1997: LSTM, as in the Keras example on weather forecasts."""
    x = keras.Input((None, 7), name="readings")
    return keras.Model(x, {"next": L.Dense(1)(L.LSTM(32)(x))})


@architecture(precisions=HALF)
def series_transformer():
    """Keras examples, Timeseries classification with a Transformer: convolutions between, pooled over features."""
    series = keras.Input((48, 1), name="series")
    x = series
    for _ in range(2):
        y = L.MultiHeadAttention(4, 8, dropout=0.25)(x, x)
        x = L.LayerNormalization(epsilon=1e-6)(y) + x
        y = L.Conv1D(1, 1)(L.Conv1D(4, 1, activation="relu")(x))
        x = L.LayerNormalization(epsilon=1e-6)(y) + x
    x = L.GlobalAveragePooling1D(data_format="channels_first")(x)
    x = L.Dense(32, activation="relu")(x)
    return keras.Model(series, {"classes": L.Dense(2, activation="softmax")(x)})


@architecture(seeded=True)
def wave_net():
    """van den Oord et al., 2016: WaveNet, gated causal convolutions whose dilations double."""
    series = keras.Input((None, 2), name="series")
    x, skipped = L.Conv1D(12, 1)(series), []
    for power in range(4):
        gate, value = (
            L.Conv1D(12, 2, padding="causal", dilation_rate=2**power, activation=activation)(x)
            for activation in ("sigmoid", "tanh")
        )
        y = gate * value
        skipped.append(L.Conv1D(12, 1)(y))
        x = x + L.Conv1D(12, 1)(y)
    x = L.Conv1D(16, 1, activation="relu")(L.ReLU()(L.Add()(skipped)))
    return keras.Model(series, {"next": L.Conv1D(8, 1, activation="softmax")(x)})


@architecture()
def temporal_convolutions():
    """Bai et al., 2018: An Empirical Evaluation of Generic Convolutional and Recurrent Networks (TCN)."""
    series = keras.Input((None, 3), name="series")
    x = series
    for power in range(3):
        y = x
        for _ in range(2):
            y = L.Conv1D(12, 3, padding="causal", dilation_rate=2**power)(y)
            y = L.SpatialDropout1D(0.1)(L.ReLU()(L.LayerNormalization()(y)))
        x = L.ReLU()(y + (x if x.shape[-1] == 12 else L.Conv1D(12, 1)(x)))
    return keras.Model(series, {"next": L.Dense(1)(x[:, -1])})


@architecture(seeded=True)
def basis_expansion():
    """Oreshkin et al., 2020: N-BEATS, blocks that each explain what the ones before left."""
    series = keras.Input((24,), name="series")
    rest, forecasts = series, []
    for _ in range(3):
        x = rest
        for _ in range(2):
            x = L.Dense(32, activation="relu")(x)
        rest = rest - L.Dense(24, use_bias=False)(L.Dense(6)(x))
        forecasts.append(L.Dense(8, use_bias=False)(L.Dense(6)(x)))
    return keras.Model(series, {"forecast": L.Add()(forecasts)})


@architecture()
def convolutional_series():
    """Wang et al., 2017: Time Series Classification from Scratch with Deep Neural Networks (FCN)."""
    series = keras.Input((None, 1), name="series")
    x = series
    for _ in range(3):
        x = L.ReLU()(L.BatchNormalization()(L.Conv1D(16, 3, padding="same")(x)))
    return keras.Model(series, {"classes": L.Dense(2, activation="softmax")(L.GlobalAveragePooling1D()(x))})


@architecture(seeded=True)
def inception_time():
    """Ismail Fawaz et al., 2020: InceptionTime, kernels of several lengths side by side."""
    series = keras.Input((None, 2), name="series")
    x = series
    for _ in range(2):
        narrow = L.Conv1D(8, 1, use_bias=False)(x)
        parts = [L.Conv1D(6, size, padding="same", use_bias=False)(narrow) for size in (3, 5, 9)]
        parts.append(L.Conv1D(6, 1, use_bias=False)(L.MaxPooling1D(3, 1, padding="same")(x)))
        y = L.ReLU()(L.BatchNormalization()(L.Concatenate()(parts)))
        x = L.ReLU()(y + L.BatchNormalization()(L.Conv1D(24, 1, use_bias=False)(x)))
    return keras.Model(series, {"classes": L.Dense(3, activation="softmax")(L.GlobalAveragePooling1D()(x))})


@architecture()
def anomaly_autoencoder():
    """Keras examples, Timeseries anomaly detection using an Autoencoder: convolutions down and up again."""
    series = keras.Input((32, 1), name="series")
    x = L.Dropout(0.2)(L.Conv1D(16, 7, padding="same", strides=2, activation="relu")(series))
    x = L.Conv1D(8, 7, padding="same", strides=2, activation="relu")(x)
    for filters in (8, 16):
        x = L.Conv1DTranspose(filters, 7, padding="same", strides=2, activation="relu")(x)
    return keras.Model(series, {"again": L.Conv1DTranspose(1, 7, padding="same")(x)})


@architecture()
def next_frame():
    """Shi et al., 2015: Convolutional LSTM Network, the next frames of a video."""
    frames = keras.Input((None, 12, 12, 1), name="frames")
    x = frames
    for size in (3, 1):
        x = L.BatchNormalization()(L.ConvLSTM2D(6, size, padding="same", return_sequences=True, activation="relu")(x))
    return keras.Model(frames, {"next": L.Conv3D(1, 3, activation="sigmoid", padding="same")(x)})


@architecture()
def patched_forecast():
    """Nie et al., 2023: A Time Series is Worth 64 Words (PatchTST), each series normalized by itself."""
    series = keras.Input((48, 3), name="series")
    mean, spread = ops.mean(series, 1, keepdims=True), ops.std(series, 1, keepdims=True) + 1e-5
    x = ops.reshape(ops.swapaxes((series - mean) / spread, 1, 2), (-1, 6, 8))
    x = pre_norm_block(L.Dense(16)(x), 2, 32)
    x = ops.reshape(L.Dense(6)(L.Flatten()(x)), (-1, 3, 6))
    return keras.Model(series, {"forecast": ops.swapaxes(x, 1, 2) * spread + mean})


@architecture()
def deep_autoregression():
    """Salinas et al., 2020: DeepAR, a distribution for each step."""
    series, known = keras.Input((None, 1), name="series"), keras.Input((None, 4), name="known")
    scale = 1.0 + ops.mean(ops.abs(series), 1, keepdims=True)
    x = L.Concatenate()([series / scale, known])
    for _ in range(2):
        x = L.LSTM(12, return_sequences=True)(x)
    return keras.Model(
        [series, known], {"mean": L.Dense(1)(x) * scale, "spread": L.Dense(1, activation="softplus")(x) * scale}
    )


@architecture()
def three_dimensional_scan():
    """Zunair et al., 2020: 3D convolutions over CT scans, as in the Keras example."""
    scan = keras.Input((16, 16, 12, 1), name="scan")
    x = scan
    for filters in (8, 12):
        x = L.BatchNormalization()(L.MaxPooling3D(2)(L.Conv3D(filters, 3, activation="relu")(x)))
    x = L.Dropout(0.3)(L.Dense(16, activation="relu")(L.GlobalAveragePooling3D()(x)))
    return keras.Model(scan, {"sick": L.Dense(1, activation="sigmoid")(x)})


@architecture()
def residual_spectrogram():
    """He et al., 2016: Deep Residual Learning, on a spectrogram of any length as one channel."""
    series = keras.Input((None, 16, 1), name="spectrogram")
    x = conv_block(series, 12)
    for _ in range(2):
        x = L.ReLU()(x + conv_block(conv_block(x, 12), 12, activation="linear"))
    return keras.Model(series, {"classes": L.Dense(6, activation="softmax")(L.GlobalMaxPooling2D()(x))})
