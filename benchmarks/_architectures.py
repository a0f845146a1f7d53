"""Complete models of common sizes without layers of this package: published backbones, and models of Keras's examples.

keras_hub is imported when one of its models is built, so that the list can be read without keras_hub.
"""

import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # has no effect after TensorFlow is imported
warnings.filterwarnings("ignore", message=".*np.object", category=FutureWarning)  # Keras's exporter in 3.15.1

import keras  # noqa: E402
import numpy as np  # noqa: E402
from keras import layers as L  # noqa: E402, N812 - used in every line of the models
from keras import ops  # noqa: E402

VOCABULARY_SIZE = 8000
IMAGE_SHAPE = (224, 224, 3)
Build = Callable[[], keras.Model]


@dataclass(frozen=True)
class Architecture:
    """Model with the options of its runs.

    Attributes:
        build: Function that builds the model.
        lengths: Sequence lengths to time; (0,) for a model without dynamic lengths.
        package: Package that defines the model.
        optimizer: Model type for `onnxruntime.transformers.optimizer`.
        missing_constants: Constants that Keras's exporter writes as inputs; only its file receives them.
    """

    build: Build
    lengths: tuple[int, ...] = (128, 512)
    package: str = "keras"
    optimizer: str = "bert"
    missing_constants: dict[str, np.ndarray] = field(default_factory=dict)

    def build_model(self) -> keras.Model:
        """Build the model and randomize weights that are initialized to zeros or ones, as if they were trained."""
        keras.utils.set_random_seed(0)
        model, rng = self.build(), np.random.default_rng(1)
        for variable in model.variables:
            if variable.path.endswith("moving_variance"):
                variable.assign(rng.uniform(0.5, 1.5, variable.shape))
            elif variable.path.endswith(("gamma", "beta", "bias", "moving_mean")):
                variable.assign(variable + rng.normal(0, 0.1, variable.shape))
        return model


def make_inputs(model: keras.Model, batch: int, length: int) -> dict[str, np.ndarray]:
    """Return random inputs by name: pixels, ids, normal floats; masks are True, and segments 0."""
    rng, arrays = np.random.default_rng(0), {}
    for tensor in model.inputs:
        shape = [batch, *(length if size is None else size for size in tensor.shape[1:])]
        if tensor.dtype == "bool" or "mask" in tensor.name:
            array = np.ones(shape)
        elif "segment" in tensor.name:
            array = np.zeros(shape)
        elif "int" in tensor.dtype:
            array = rng.integers(1, VOCABULARY_SIZE, shape)
        else:
            array = rng.uniform(0, 255, shape) if tensor.shape[-1] == 3 else rng.standard_normal(shape)
        arrays[tensor.name] = array.astype(tensor.dtype)
    return arrays


# ------------------------------------------------------------------- models of packages


def make_application(name: str, **options: Any) -> Architecture:
    """Return a model of keras.applications with images of 224 pixels and 1000 classes."""

    def build() -> keras.Model:
        image = keras.Input(IMAGE_SHAPE, name="image")
        return getattr(keras.applications, name)(weights=None, input_tensor=image, **options)

    return Architecture(build, (0,), optimizer="vit")


def make_backbone(
    name: str, optimizer: str = "bert", missing_constants: dict[str, Any] | None = None, **sizes: Any
) -> Architecture:
    """Return a backbone of keras_hub with four layers and random weights."""

    def build() -> keras.Model:
        import keras_hub

        return getattr(keras_hub.models, name)(**sizes)

    return Architecture(build, package="keras_hub", optimizer=optimizer, missing_constants=missing_constants or {})


TEXT = {"vocabulary_size": VOCABULARY_SIZE, "num_layers": 4, "hidden_dim": 256, "intermediate_dim": 1024}
HEADS = {**TEXT, "num_heads": 4}
POSITIONS = {**HEADS, "max_sequence_length": 512}
GROUPED_HEADS = {**TEXT, "num_query_heads": 4, "num_key_value_heads": 2}
ONE_KV_HEAD = {"num_query_heads": 4, "num_key_value_heads": 1, "head_dim": 64}
GEMMA_SCALE = {"gemma_backbone_1/Mul/y:0": np.float32(TEXT["hidden_dim"] ** 0.5)}
AUDIO = {"num_mels": 80, "max_encoder_sequence_length": 512, "max_decoder_sequence_length": 512}


# ------------------------------------------------------------------- models of Keras's examples and of papers


def make_recurrent(cell: str, *, both_directions: bool = False, masked: bool = False) -> Architecture:
    """Return two recurrent layers over words, and classes."""

    def build() -> keras.Model:
        ids = keras.Input((None,), dtype="int32", name="ids")
        hidden = L.Embedding(VOCABULARY_SIZE, 128, mask_zero=masked)(ids)
        for sequences in (True, False):
            layer = getattr(L, cell)(128, return_sequences=sequences)
            hidden = (L.Bidirectional(layer) if both_directions else layer)(hidden)
        return keras.Model(ids, L.Dense(5, activation="softmax")(hidden))

    return Architecture(build)


def build_forecast() -> keras.Model:
    """Build two LSTM layers over a series; Keras's weather example has one."""
    series = keras.Input((None, 16), name="series")
    hidden = L.LSTM(64)(L.LSTM(64, return_sequences=True)(series))
    return keras.Model(series, L.Dense(24)(hidden))


def build_series_transformer() -> keras.Model:
    """Build the model of Keras's example "Timeseries classification with a Transformer model"."""
    series = hidden = keras.Input((500, 1), name="series")
    for _ in range(4):
        normalized = L.LayerNormalization(epsilon=1e-6)(hidden)
        hidden = hidden + L.MultiHeadAttention(4, 64)(normalized, normalized)
        normalized = L.LayerNormalization(epsilon=1e-6)(hidden)
        hidden = hidden + L.Conv1D(1, 1)(L.Conv1D(4, 1, activation="relu")(normalized))
    pooled = L.GlobalAveragePooling1D(data_format="channels_first")(hidden)
    return keras.Model(series, L.Dense(2, activation="softmax")(L.Dense(128, activation="relu")(pooled)))


def make_additive(queries: int | None) -> Architecture:
    """Return `keras.layers.AdditiveAttention` over dense layers, for a static or dynamic number of queries."""

    def build() -> keras.Model:
        sequences = [keras.Input((size, 256), name=name) for name, size in (("queries", queries), ("keys", None))]
        projected = [L.Dense(128)(sequence) for sequence in sequences]
        return keras.Model(sequences, L.Dense(64)(L.AdditiveAttention()(projected)))

    return Architecture(build)


def build_dilated() -> keras.Model:
    """Build seven dilated causal convolutions, as in WaveNet (van den Oord et al., 2016)."""
    series = keras.Input((None, 8), name="series")
    hidden = L.Conv1D(64, 1)(series)
    for rate in (1, 2, 4, 8, 16, 32, 64):
        filtered = L.Conv1D(64, 2, dilation_rate=rate, padding="causal", activation="relu")(hidden)
        hidden = hidden + L.Conv1D(64, 1)(filtered)
    return keras.Model(series, L.Dense(8)(hidden))


def build_u_net() -> keras.Model:
    """Build a U-Net (Ronneberger et al., 2015) with batch normalization, for images of 128 pixels."""

    def add_convolutions(hidden: Any, filters: int) -> Any:
        for _ in range(2):
            hidden = L.ReLU()(L.BatchNormalization()(L.Conv2D(filters, 3, padding="same")(hidden)))
        return hidden

    image = hidden = keras.Input((128, 128, 3), name="image")
    skip_inputs = []
    for filters in (32, 64, 128):
        skip_inputs.append(add_convolutions(hidden, filters))
        hidden = L.MaxPooling2D()(skip_inputs[-1])
    hidden = add_convolutions(hidden, 256)
    for filters in (128, 64, 32):
        upsampled = L.Conv2DTranspose(filters, 2, strides=2)(hidden)
        hidden = add_convolutions(L.Concatenate()([upsampled, skip_inputs.pop()]), filters)
    return keras.Model(image, L.Conv2D(4, 1, activation="softmax")(hidden))


class PositionEmbedding(L.Layer):
    """Learned position embedding that is added to the inputs (B, T, D)."""

    def build(self, shape: Any) -> None:
        self.positions = self.add_weight(shape=(1, *shape[1:]), initializer="normal")

    def call(self, inputs: Any) -> Any:
        return inputs + self.positions


def add_feed_forward(hidden: Any, activation: str = "gelu") -> Any:
    """Apply two dense layers; the first is four times as wide as the input."""
    width = hidden.shape[-1]
    return L.Dense(width)(L.Dense(4 * width, activation=activation)(hidden))


def embed_patches(width: int) -> tuple[Any, Any]:
    """Return an image input, and its 196 patches of 16 by 16 pixels as vectors (B, 196, width)."""
    image = keras.Input(IMAGE_SHAPE, name="image")
    return image, L.Reshape((196, width))(L.Conv2D(width, 16, strides=16)(L.Rescaling(1 / 255)(image)))


def build_vision_transformer() -> keras.Model:
    """Build a vision Transformer (Dosovitskiy et al., 2021) of six blocks of Keras's layers."""
    image, hidden = embed_patches(192)
    hidden = PositionEmbedding()(hidden)
    for _ in range(6):
        normalized = L.LayerNormalization(epsilon=1e-6)(hidden)
        hidden = hidden + L.MultiHeadAttention(3, 64)(normalized, normalized)
        hidden = hidden + add_feed_forward(L.LayerNormalization(epsilon=1e-6)(hidden))
    return keras.Model(image, L.Dense(1000)(L.GlobalAveragePooling1D()(hidden)))


def build_mixer() -> keras.Model:
    """Build an MLP-Mixer (Tolstikhin et al., 2021)."""
    image, hidden = embed_patches(256)
    for _ in range(6):
        transposed = L.Permute((2, 1))(L.LayerNormalization()(hidden))
        hidden = hidden + L.Permute((2, 1))(L.Dense(196)(L.Dense(128, activation="gelu")(transposed)))
        hidden = hidden + add_feed_forward(L.LayerNormalization()(hidden))
    return keras.Model(image, L.Dense(1000)(L.GlobalAveragePooling1D()(hidden)))


def build_translation() -> keras.Model:
    """Build an encoder and a decoder of two blocks each (Vaswani et al., 2017), with masked padding."""
    source, target = (keras.Input((None,), dtype="int32", name=name) for name in ("source", "target"))
    encoded, decoded = (L.Embedding(VOCABULARY_SIZE, 256, mask_zero=True)(ids) for ids in (source, target))
    for _ in range(2):
        encoded = L.LayerNormalization()(encoded + L.MultiHeadAttention(4, 64)(encoded, encoded))
        encoded = L.LayerNormalization()(encoded + add_feed_forward(encoded, "relu"))
    for _ in range(2):
        decoded = L.LayerNormalization()(decoded + L.MultiHeadAttention(4, 64)(decoded, decoded, use_causal_mask=True))
        decoded = L.LayerNormalization()(decoded + L.MultiHeadAttention(4, 64)(decoded, encoded))
        decoded = L.LayerNormalization()(decoded + add_feed_forward(decoded, "relu"))
    return keras.Model([source, target], L.Dense(VOCABULARY_SIZE)(decoded))


class HandwrittenAttention(L.Layer):
    """Multi-head self-attention of plain operators, with one dense layer for queries, keys and values."""

    def __init__(self, heads: int, **options: Any) -> None:
        super().__init__(**options)
        self.heads = heads

    def build(self, shape: Any) -> None:
        self.width = shape[-1]
        self.project_inputs, self.project_output = L.Dense(3 * self.width), L.Dense(self.width)
        self.project_inputs.build(shape)
        self.project_output.build(shape)

    def call(self, inputs: Any) -> Any:
        batch, length = ops.shape(inputs)[:2]
        size = self.width // self.heads
        queries, keys, values = (
            ops.transpose(ops.reshape(projection, (batch, length, self.heads, size)), (0, 2, 1, 3))
            for projection in ops.split(self.project_inputs(inputs), 3, axis=-1)
        )
        scores = ops.matmul(queries, ops.transpose(keys, (0, 1, 3, 2))) / size**0.5
        attended = ops.transpose(ops.matmul(ops.softmax(scores), values), (0, 2, 1, 3))
        return self.project_output(ops.reshape(attended, (batch, length, self.width)))


def build_handwritten() -> keras.Model:
    """Build four encoder blocks with attention of plain operators."""
    ids = keras.Input((None,), dtype="int32", name="ids")
    hidden = L.Embedding(VOCABULARY_SIZE, 256)(ids)
    for _ in range(4):
        hidden = L.LayerNormalization()(hidden + HandwrittenAttention(4)(hidden))
        hidden = L.LayerNormalization()(hidden + add_feed_forward(hidden))
    return keras.Model(ids, hidden)


ARCHITECTURES = {
    "GRU over words": make_recurrent("GRU"),
    "LSTM over words, both directions": make_recurrent("LSTM", both_directions=True),
    "LSTM over words, padding masked": make_recurrent("LSTM", masked=True),
    "LSTM over a series": Architecture(build_forecast),
    "Transformer over a series": Architecture(build_series_transformer, (500,)),
    "additive attention of Keras": make_additive(None),
    "additive attention of Keras, one query": make_additive(1),
    "dilated convolutions": Architecture(build_dilated),
    "encoder and decoder": Architecture(build_translation),
    "attention written by hand": Architecture(build_handwritten),
    "U-Net": Architecture(build_u_net, (0,)),
    "Vision Transformer": Architecture(build_vision_transformer, (0,), optimizer="vit"),
    "MLP-Mixer": Architecture(build_mixer, (0,), optimizer="vit"),
    "MobileNetV2": make_application("MobileNetV2"),
    "MobileNetV3": make_application("MobileNetV3Small"),
    "EfficientNet": make_application("EfficientNetB0"),
    "EfficientNetV2": make_application("EfficientNetV2B0"),
    "ResNet50": make_application("ResNet50"),
    "DenseNet": make_application("DenseNet121"),
    "Inception": make_application("InceptionV3"),
    "Xception": make_application("Xception"),
    "NASNet": make_application("NASNetMobile"),
    "ConvNeXt": make_application("ConvNeXtTiny"),
    "BERT": make_backbone("BertBackbone", **POSITIONS),
    "DistilBERT": make_backbone("DistilBertBackbone", **POSITIONS),
    "ALBERT": make_backbone("AlbertBackbone", **POSITIONS, embedding_dim=128),
    "DeBERTa": make_backbone("DebertaV3Backbone", **POSITIONS, bucket_size=64),
    "FNet": make_backbone("FNetBackbone", **TEXT, max_sequence_length=512),
    "GPT-2": make_backbone("GPT2Backbone", "gpt2", **POSITIONS),
    "OPT": make_backbone("OPTBackbone", "gpt2", **POSITIONS),
    "Bloom": make_backbone("BloomBackbone", "gpt2", **HEADS),
    "GPT-NeoX": make_backbone("GPTNeoXBackbone", "gpt_neox", **POSITIONS),
    "Llama": make_backbone("LlamaBackbone", "gpt2", **GROUPED_HEADS),
    "Mistral": make_backbone("MistralBackbone", "gpt2", **GROUPED_HEADS, sliding_window=64),
    "Gemma": make_backbone("GemmaBackbone", "gpt2", GEMMA_SCALE, **TEXT, **ONE_KV_HEAD),
    "Qwen": make_backbone("QwenBackbone", "gpt2", **GROUPED_HEADS),
    "Falcon": make_backbone("FalconBackbone", "gpt2", **TEXT, num_attention_heads=4),
    "T5": make_backbone("T5Backbone", "t5", **HEADS),
    "BART": make_backbone("BartBackbone", "bart", **POSITIONS),
    "Whisper": make_backbone("WhisperBackbone", "bart", **HEADS, **AUDIO),
}
