"""Time series, video and volumes: forecasts, classification and reconstruction."""

from keras import layers as L  # noqa: N812 - used in every line of the models
from keras import ops

from .blocks import conv_block, pre_norm_block
from .registry import architecture


@architecture()
def lstm_forecast(readings=(None, 7)):
    """Hochreiter and Schmidhuber, 1997: LSTM, as in the Keras example on weather forecasts."""
    return {"next": L.Dense(1)(L.LSTM(32)(readings))}


# Not in float16: normalization over a single feature multiplies rounding errors by 1000, and onnxruntime's float16
# rounding depends on the processor. With AVX512-FP16 the export is refused; on others the difference was 6e-4.
@architecture(precisions=("int8",))
def series_transformer(series=(48, 1)):
    """Keras examples, Timeseries classification with a Transformer, with convolutions and pooling over features."""
    x = series
    for _ in range(2):
        y = L.MultiHeadAttention(4, 8, dropout=0.25)(x, x)
        x = L.LayerNormalization(epsilon=1e-6)(y) + x
        y = L.Conv1D(1, 1)(L.Conv1D(4, 1, activation="relu")(x))
        x = L.LayerNormalization(epsilon=1e-6)(y) + x
    x = L.GlobalAveragePooling1D(data_format="channels_first")(x)
    x = L.Dense(32, activation="relu")(x)
    return {"classes": L.Dense(2, activation="softmax")(x)}


@architecture()
def wave_net(series=(None, 2)):
    """van den Oord et al., 2016: WaveNet, gated causal convolutions with doubling dilations."""
    x, skips = L.Conv1D(12, 1)(series), []
    for power in range(4):
        gate, value = (
            L.Conv1D(12, 2, padding="causal", dilation_rate=2**power, activation=activation)(x)
            for activation in ("sigmoid", "tanh")
        )
        y = gate * value
        skips.append(L.Conv1D(12, 1)(y))
        x = x + L.Conv1D(12, 1)(y)
    x = L.Conv1D(16, 1, activation="relu")(L.ReLU()(L.Add()(skips)))
    return {"next": L.Conv1D(8, 1, activation="softmax")(x)}


@architecture()
def anomaly_autoencoder(series=(32, 1)):
    """Keras examples, Timeseries anomaly detection using an Autoencoder, with strided and transposed convolutions."""
    x = L.Dropout(0.2)(L.Conv1D(16, 7, padding="same", strides=2, activation="relu")(series))
    x = L.Conv1D(8, 7, padding="same", strides=2, activation="relu")(x)
    for filters in (8, 16):
        x = L.Conv1DTranspose(filters, 7, padding="same", strides=2, activation="relu")(x)
    return {"again": L.Conv1DTranspose(1, 7, padding="same")(x)}


@architecture()
def next_frame(frames=(None, 12, 12, 1)):
    """Shi et al., 2015: Convolutional LSTM Network, the next frames of a video."""
    x = frames
    for size in (3, 1):
        x = L.BatchNormalization()(L.ConvLSTM2D(6, size, padding="same", return_sequences=True, activation="relu")(x))
    return {"next": L.Conv3D(1, 3, activation="sigmoid", padding="same")(x)}


@architecture()
def patched_forecast(series=(48, 3)):
    """Nie et al., 2023: A Time Series is Worth 64 Words (PatchTST), each series normalized by itself."""
    mean, spread = ops.mean(series, 1, keepdims=True), ops.std(series, 1, keepdims=True) + 1e-5
    x = ops.reshape(ops.swapaxes((series - mean) / spread, 1, 2), (-1, 6, 8))
    x = pre_norm_block(L.Dense(16)(x), 2, 32)
    x = ops.reshape(L.Dense(6)(L.Flatten()(x)), (-1, 3, 6))
    return {"forecast": ops.swapaxes(x, 1, 2) * spread + mean}


@architecture()
def deep_autoregression(series=(None, 1), known=(None, 4)):
    """Salinas et al., 2020: DeepAR, a distribution for each step."""
    scale = 1.0 + ops.mean(ops.abs(series), 1, keepdims=True)
    x = L.Concatenate()([series / scale, known])
    for _ in range(2):
        x = L.LSTM(12, return_sequences=True)(x)
    return {"mean": L.Dense(1)(x) * scale, "spread": L.Dense(1, activation="softplus")(x) * scale}


@architecture()
def three_dimensional_scan(scan=(16, 16, 12, 1)):
    """Zunair et al., 2020: 3D convolutions over CT scans, as in the Keras example."""
    x = scan
    for filters in (8, 12):
        x = L.BatchNormalization()(L.MaxPooling3D(2)(L.Conv3D(filters, 3, activation="relu")(x)))
    x = L.Dropout(0.3)(L.Dense(16, activation="relu")(L.GlobalAveragePooling3D()(x)))
    return {"sick": L.Dense(1, activation="sigmoid")(x)}


@architecture()
def residual_spectrogram(spectrogram=(None, 16, 1)):
    """He et al., 2016: Deep Residual Learning, on a spectrogram of any length as one channel."""
    x = conv_block(spectrogram, 12)
    for _ in range(2):
        x = L.ReLU()(x + conv_block(conv_block(x, 12), 12, activation="linear"))
    return {"classes": L.Dense(6, activation="softmax")(L.GlobalMaxPooling2D()(x))}
