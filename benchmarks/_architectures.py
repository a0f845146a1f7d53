"""Whole models at the sizes that people run: published backbones, and models as the examples of Keras write them.

None has a layer of ours. keras_hub is imported when one of its models is built, so that the list is there without it.
"""

import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before TensorFlow is imported, or it has no effect
warnings.filterwarnings("ignore", message=".*np.object", category=FutureWarning)  # Keras's exporter in 3.15.1

import keras  # noqa: E402
import numpy as np  # noqa: E402
from keras import layers as L  # noqa: E402, N812 - this file consists of them
from keras import ops  # noqa: E402

WORDS = 8000
IMAGE = (224, 224, 3)
Build = Callable[[], keras.Model]


@dataclass(frozen=True)
class Architecture:
    """A model and how it is run.

    Attributes:
        build: Makes it.
        lengths: The lengths of its sequences that are timed; one where it has no sequences of any length.
        package: What must be installed for it.
        optimizer: What `onnxruntime.transformers.optimizer` is told that it is.
        lost: Numbers that Keras's exporter makes inputs of, for its file alone.
    """

    build: Build
    lengths: tuple[int, ...] = (128, 512)
    package: str = "keras"
    optimizer: str = "bert"
    lost: dict[str, np.ndarray] = field(default_factory=dict)

    def model(self) -> keras.Model:
        """Return the model with weights that are like trained ones: nothing is zero or one that need not be."""
        keras.utils.set_random_seed(0)
        model, rng = self.build(), np.random.default_rng(1)
        for variable in model.variables:
            if variable.path.endswith("moving_variance"):
                variable.assign(rng.uniform(0.5, 1.5, variable.shape))
            elif variable.path.endswith(("gamma", "beta", "bias", "moving_mean")):
                variable.assign(variable + rng.normal(0, 0.1, variable.shape))
        return model


def inputs_of(model: keras.Model, batch: int, length: int) -> dict[str, np.ndarray]:
    """Return pixels, ids of words or normal numbers, all of them valid, by the names of the inputs."""
    rng, arrays = np.random.default_rng(0), {}
    for tensor in model.inputs:
        shape = [batch, *(length if size is None else size for size in tensor.shape[1:])]
        if tensor.dtype == "bool" or "mask" in tensor.name:
            array = np.ones(shape)
        elif "segment" in tensor.name:
            array = np.zeros(shape)
        elif "int" in tensor.dtype:
            array = rng.integers(1, WORDS, shape)
        else:
            array = rng.uniform(0, 255, shape) if tensor.shape[-1] == 3 else rng.standard_normal(shape)
        arrays[tensor.name] = array.astype(tensor.dtype)
    return arrays


# ------------------------------------------------------------------- what packages have


def application(name: str, **options: Any) -> Architecture:
    """A family of keras.applications, at 224 pixels and a thousand classes."""

    def build() -> keras.Model:
        return getattr(keras.applications, name)(weights=None, input_tensor=keras.Input(IMAGE, name="image"), **options)

    return Architecture(build, (0,), optimizer="vit")


def backbone(name: str, optimizer: str = "bert", lost: dict[str, Any] | None = None, **sizes: Any) -> Architecture:
    """A backbone of keras_hub, from a configuration of four layers; nothing is downloaded."""

    def build() -> keras.Model:
        import keras_hub

        return getattr(keras_hub.models, name)(**sizes)

    return Architecture(build, package="keras_hub", optimizer=optimizer, lost=lost or {})


TEXT = {"vocabulary_size": WORDS, "num_layers": 4, "hidden_dim": 256, "intermediate_dim": 1024}
HEADS = {**TEXT, "num_heads": 4}
SHORT = {**HEADS, "max_sequence_length": 512}
GROUPS = {**TEXT, "num_query_heads": 4, "num_key_value_heads": 2}
SCALE = {"gemma_backbone_1/Mul/y:0": np.float32(TEXT["hidden_dim"] ** 0.5)}
SOUND = {"num_mels": 80, "max_encoder_sequence_length": 512, "max_decoder_sequence_length": 512}


# ------------------------------------------------------------------- what users write


def recurrent(cell: str, *, both_directions: bool = False, masked: bool = False) -> Architecture:
    """Two recurrent layers over words, and classes."""

    def build() -> keras.Model:
        ids = keras.Input((None,), dtype="int32", name="ids")
        hidden = L.Embedding(WORDS, 128, mask_zero=masked)(ids)
        for sequences in (True, False):
            layer = getattr(L, cell)(128, return_sequences=sequences)
            hidden = (L.Bidirectional(layer) if both_directions else layer)(hidden)
        return keras.Model(ids, L.Dense(5, activation="softmax")(hidden))

    return Architecture(build)


def forecast() -> keras.Model:
    """Two LSTM layers over a series, as Keras's example on the weather has one."""
    series = keras.Input((None, 16), name="series")
    hidden = L.LSTM(64)(L.LSTM(64, return_sequences=True)(series))
    return keras.Model(series, L.Dense(24)(hidden))


def series_transformer() -> keras.Model:
    """Keras examples, Timeseries classification with a Transformer model."""
    series = hidden = keras.Input((500, 1), name="series")
    for _ in range(4):
        normal = L.LayerNormalization(epsilon=1e-6)(hidden)
        hidden = hidden + L.MultiHeadAttention(4, 64)(normal, normal)
        normal = L.LayerNormalization(epsilon=1e-6)(hidden)
        hidden = hidden + L.Conv1D(1, 1)(L.Conv1D(4, 1, activation="relu")(normal))
    pooled = L.GlobalAveragePooling1D(data_format="channels_first")(hidden)
    return keras.Model(series, L.Dense(2, activation="softmax")(L.Dense(128, activation="relu")(pooled)))


def additive(queries: int | None) -> Architecture:
    """`keras.layers.AdditiveAttention` over dense layers, for one query or any number of them."""

    def build() -> keras.Model:
        sequences = [keras.Input((size, 256), name=name) for name, size in (("queries", queries), ("keys", None))]
        projected = [L.Dense(128)(each) for each in sequences]
        return keras.Model(sequences, L.Dense(64)(L.AdditiveAttention()(projected)))

    return Architecture(build)


def dilated() -> keras.Model:
    """Seven dilated causal convolutions, as WaveNet (van den Oord et al., 2016) stacks them."""
    series = keras.Input((None, 8), name="series")
    hidden = L.Conv1D(64, 1)(series)
    for rate in (1, 2, 4, 8, 16, 32, 64):
        seen = L.Conv1D(64, 2, dilation_rate=rate, padding="causal", activation="relu")(hidden)
        hidden = hidden + L.Conv1D(64, 1)(seen)
    return keras.Model(series, L.Dense(8)(hidden))


def u_net() -> keras.Model:
    """Ronneberger et al., 2015: U-Net, with normalization, at 128 pixels."""

    def twice(hidden: Any, filters: int) -> Any:
        for _ in range(2):
            hidden = L.ReLU()(L.BatchNormalization()(L.Conv2D(filters, 3, padding="same")(hidden)))
        return hidden

    image = hidden = keras.Input((128, 128, 3), name="image")
    skipped = []
    for filters in (32, 64, 128):
        skipped.append(twice(hidden, filters))
        hidden = L.MaxPooling2D()(skipped[-1])
    hidden = twice(hidden, 256)
    for filters in (128, 64, 32):
        wider = L.Conv2DTranspose(filters, 2, strides=2)(hidden)
        hidden = twice(L.Concatenate()([wider, skipped.pop()]), filters)
    return keras.Model(image, L.Conv2D(4, 1, activation="softmax")(hidden))


class Position(L.Layer):
    """Adds a vector of each place, which is learned."""

    def build(self, shape: Any) -> None:
        self.places = self.add_weight(shape=(1, *shape[1:]), initializer="normal")

    def call(self, inputs: Any) -> Any:
        return inputs + self.places


def wide(hidden: Any, activation: str = "gelu") -> Any:
    """Two dense layers, the first of them four times as wide."""
    width = hidden.shape[-1]
    return L.Dense(width)(L.Dense(4 * width, activation=activation)(hidden))


def patches(width: int) -> tuple[Any, Any]:
    """An image, and its 196 patches of 16 pixels as vectors."""
    image = keras.Input(IMAGE, name="image")
    return image, L.Reshape((196, width))(L.Conv2D(width, 16, strides=16)(L.Rescaling(1 / 255)(image)))


def vision_transformer() -> keras.Model:
    """Dosovitskiy et al., 2021: An Image is Worth 16x16 Words; six blocks of Keras's layers."""
    image, hidden = patches(192)
    hidden = Position()(hidden)
    for _ in range(6):
        normal = L.LayerNormalization(epsilon=1e-6)(hidden)
        hidden = hidden + L.MultiHeadAttention(3, 64)(normal, normal)
        hidden = hidden + wide(L.LayerNormalization(epsilon=1e-6)(hidden))
    return keras.Model(image, L.Dense(1000)(L.GlobalAveragePooling1D()(hidden)))


def mixer() -> keras.Model:
    """Tolstikhin et al., 2021: MLP-Mixer."""
    image, hidden = patches(256)
    for _ in range(6):
        turned = L.Permute((2, 1))(L.LayerNormalization()(hidden))
        hidden = hidden + L.Permute((2, 1))(L.Dense(196)(L.Dense(128, activation="gelu")(turned)))
        hidden = hidden + wide(L.LayerNormalization()(hidden))
    return keras.Model(image, L.Dense(1000)(L.GlobalAveragePooling1D()(hidden)))


def translation() -> keras.Model:
    """Vaswani et al., 2017: Attention Is All You Need; two blocks each, padding masked."""
    source, target = (keras.Input((None,), dtype="int32", name=name) for name in ("source", "target"))
    x, y = (L.Embedding(WORDS, 256, mask_zero=True)(ids) for ids in (source, target))
    for _ in range(2):
        x = L.LayerNormalization()(x + L.MultiHeadAttention(4, 64)(x, x))
        x = L.LayerNormalization()(x + wide(x, "relu"))
    for _ in range(2):
        y = L.LayerNormalization()(y + L.MultiHeadAttention(4, 64)(y, y, use_causal_mask=True))
        y = L.LayerNormalization()(y + L.MultiHeadAttention(4, 64)(y, x))
        y = L.LayerNormalization()(y + wide(y, "relu"))
    return keras.Model([source, target], L.Dense(WORDS)(y))


class WrittenByHand(L.Layer):
    """Attention of several heads from operations alone, with one dense layer for queries, keys and values."""

    def __init__(self, heads: int, **options: Any) -> None:
        super().__init__(**options)
        self.heads = heads

    def build(self, shape: Any) -> None:
        self.width = shape[-1]
        self.together, self.out = L.Dense(3 * self.width), L.Dense(self.width)
        self.together.build(shape)
        self.out.build(shape)

    def call(self, inputs: Any) -> Any:
        batch, length = ops.shape(inputs)[:2]
        size = self.width // self.heads
        queries, keys, values = (
            ops.transpose(ops.reshape(each, (batch, length, self.heads, size)), (0, 2, 1, 3))
            for each in ops.split(self.together(inputs), 3, axis=-1)
        )
        scores = ops.matmul(queries, ops.transpose(keys, (0, 1, 3, 2))) / size**0.5
        attended = ops.transpose(ops.matmul(ops.softmax(scores), values), (0, 2, 1, 3))
        return self.out(ops.reshape(attended, (batch, length, self.width)))


def by_hand() -> keras.Model:
    """Four encoder blocks whose attention is no layer of a library."""
    ids = keras.Input((None,), dtype="int32", name="ids")
    hidden = L.Embedding(WORDS, 256)(ids)
    for _ in range(4):
        hidden = L.LayerNormalization()(hidden + WrittenByHand(4)(hidden))
        hidden = L.LayerNormalization()(hidden + wide(hidden))
    return keras.Model(ids, hidden)


ARCHITECTURES = {
    "GRU over words": recurrent("GRU"),
    "LSTM over words, both directions": recurrent("LSTM", both_directions=True),
    "LSTM over words, padding masked": recurrent("LSTM", masked=True),
    "LSTM over a series": Architecture(forecast),
    "Transformer over a series": Architecture(series_transformer, (500,)),
    "additive attention of Keras": additive(None),
    "additive attention of Keras, one query": additive(1),
    "dilated convolutions": Architecture(dilated),
    "encoder and decoder": Architecture(translation),
    "attention written by hand": Architecture(by_hand),
    "U-Net": Architecture(u_net, (0,)),
    "Vision Transformer": Architecture(vision_transformer, (0,), optimizer="vit"),
    "MLP-Mixer": Architecture(mixer, (0,), optimizer="vit"),
    "MobileNetV2": application("MobileNetV2"),
    "MobileNetV3": application("MobileNetV3Small"),
    "EfficientNet": application("EfficientNetB0"),
    "EfficientNetV2": application("EfficientNetV2B0"),
    "ResNet50": application("ResNet50"),
    "DenseNet": application("DenseNet121"),
    "Inception": application("InceptionV3"),
    "Xception": application("Xception"),
    "NASNet": application("NASNetMobile"),
    "ConvNeXt": application("ConvNeXtTiny"),
    "BERT": backbone("BertBackbone", **SHORT),
    "DistilBERT": backbone("DistilBertBackbone", **SHORT),
    "ALBERT": backbone("AlbertBackbone", **SHORT, embedding_dim=128),
    "DeBERTa": backbone("DebertaV3Backbone", **SHORT, bucket_size=64),
    "FNet": backbone("FNetBackbone", **TEXT, max_sequence_length=512),
    "GPT-2": backbone("GPT2Backbone", "gpt2", **SHORT),
    "OPT": backbone("OPTBackbone", "gpt2", **SHORT),
    "Bloom": backbone("BloomBackbone", "gpt2", **HEADS),
    "GPT-NeoX": backbone("GPTNeoXBackbone", "gpt_neox", **SHORT),
    "Llama": backbone("LlamaBackbone", "gpt2", **GROUPS),
    "Mistral": backbone("MistralBackbone", "gpt2", **GROUPS, sliding_window=64),
    "Gemma": backbone("GemmaBackbone", "gpt2", SCALE, **TEXT, num_query_heads=4, num_key_value_heads=1, head_dim=64),
    "Qwen": backbone("QwenBackbone", "gpt2", **GROUPS),
    "Falcon": backbone("FalconBackbone", "gpt2", **TEXT, num_attention_heads=4),
    "T5": backbone("T5Backbone", "t5", **HEADS),
    "BART": backbone("BartBackbone", "bart", **SHORT),
    "Whisper": backbone("WhisperBackbone", "bart", **HEADS, **SOUND),
}
