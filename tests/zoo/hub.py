"""Backbones and tasks of keras_hub, from small configurations of their own; nothing is downloaded.

keras_hub is imported when a model is built, so that the list is there without it.
"""

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_attn.decoding import greedy

from .registry import HALF, architecture, ids

WORDS = 97
SMALL: dict[str, Any] = {"vocabulary_size": WORDS, "num_layers": 2, "hidden_dim": 16, "intermediate_dim": 32}
HEADS = {**SMALL, "num_heads": 2}
SHORT = {**HEADS, "max_sequence_length": 128}


def hub() -> Any:
    """Return keras_hub's models."""
    import keras_hub

    return keras_hub.models


def text(length: int = 11) -> Mapping[str, np.ndarray]:
    """Samples of words and of which are not padding, the words first."""
    real = np.arange(length) < np.array([[length], [4], [7]])
    return {"token_ids": ids(WORDS, 3, length), "padding_mask": real.astype("int32")}


def segments() -> Mapping[str, np.ndarray]:
    """The same with the sentence that each word is in."""
    return {**text(), "segment_ids": ids(2, 3, 11, seed=1)}


def fourier() -> Mapping[str, np.ndarray]:
    """Samples without a mask."""
    return {name: array for name, array in segments().items() if name != "padding_mask"}


def pairs() -> Mapping[str, np.ndarray]:
    """Samples of an encoder and a decoder."""
    parts = {"encoder": text(11), "decoder": text(9)}
    return {f"{part}_{name}": array for part, arrays in parts.items() for name, array in arrays.items()}


@architecture(precisions=HALF)
def bert():
    """Devlin et al., 2019: BERT; keras_hub's classifier."""
    return hub().BertTextClassifier(hub().BertBackbone(**SHORT), num_classes=3, preprocessor=None)


@architecture()
def albert():
    """Lan et al., 2020: ALBERT, A Lite BERT; keras_hub."""
    return hub().AlbertBackbone(**SHORT, embedding_dim=8)


@architecture()
def roberta():
    """Liu et al., 2019: RoBERTa; keras_hub's classifier."""
    return hub().RobertaTextClassifier(hub().RobertaBackbone(**SHORT), num_classes=3, preprocessor=None)


@architecture()
def distil_bert():
    """Sanh et al., 2019: DistilBERT; keras_hub."""
    return hub().DistilBertBackbone(**SHORT)


@architecture()
def deberta():
    """He et al., 2021: DeBERTaV3; keras_hub."""
    return hub().DebertaV3Backbone(**SHORT, bucket_size=16)


@architecture()
def electra():
    """Clark et al., 2020: ELECTRA; keras_hub."""
    sizes = {name: value for name, value in SHORT.items() if name != "vocabulary_size"}
    return hub().ElectraBackbone(vocab_size=WORDS, embedding_dim=16, **sizes)


@architecture()
def fourier_net():
    """Lee-Thorp et al., 2022: FNet; keras_hub."""
    return hub().FNetBackbone(**SMALL, max_sequence_length=128)


@architecture()
def xlm_roberta():
    """Conneau et al., 2020: XLM-RoBERTa; keras_hub."""
    return hub().XLMRobertaBackbone(**SHORT)


@architecture()
def gpt2():
    """Radford et al., 2019: GPT-2; keras_hub's language model."""
    return hub().GPT2CausalLM(hub().GPT2Backbone(**SHORT), preprocessor=None)


class Cached(keras.layers.Layer):
    """A step of a language model of keras_hub, which writes its cache at one place for all rows."""

    def __init__(self, writer: Any, **options: Any) -> None:
        super().__init__(**options)
        self.writer = writer

    def call(self, token: Any, place: Any, cache: Any) -> Any:
        logits, _, after = self.writer.call_with_cache(ops.expand_dims(token, 1), cache, place[0])
        return logits[:, 0], after


def gpt2_parts(room: int = 6) -> Any:
    """Return a prompt of one word and a step, as a decoder has them: the cache begins with zeros."""
    writer = hub().GPT2CausalLM(hub().GPT2Backbone(**{**SHORT, "num_layers": 1}), preprocessor=None)
    first, token, position = (keras.Input((), dtype="int32", name=name) for name in ("first", "token", "position"))
    cache = keras.Input((1, 2, room, HEADS["num_heads"], HEADS["hidden_dim"] // HEADS["num_heads"]), name="cache")
    logits, after = Cached(writer)(token, position, cache)
    return (
        keras.Model(first, {"begin": first + 0}),
        keras.Model([token, position, cache], {"logits": logits, "next_cache": after}),
        {"next_cache": "cache"},
    )


def one_place() -> Mapping[str, np.ndarray]:
    """Samples of words that all stand at one place, behind what the cache holds."""
    cache = np.random.default_rng(0).standard_normal((3, 1, 2, 6, 2, 8)).astype("float32")
    return {"token": ids(WORDS, 3), "position": np.full(3, 4, "int32"), "cache": cache}


@architecture(samples=one_place)
def gpt2_step():
    """Radford et al., 2019: GPT-2; one step of keras_hub's language model with its cache."""
    return gpt2_parts()[1]


@architecture(samples=lambda: {"first": ids(WORDS, 3)})
def gpt2_writes():
    """Radford et al., 2019: GPT-2; words that keras_hub's language model writes, its steps in our loop."""
    return greedy(*gpt2_parts(), start="begin", end=1, max_length=4)


@architecture()
def gpt_neo_x():
    """Black et al., 2022: GPT-NeoX-20B; keras_hub."""
    return hub().GPTNeoXBackbone(**{**SHORT, "hidden_dim": 32}, rotary_percentage=0.5)


@architecture()
def opt():
    """Zhang et al., 2022: OPT, Open Pre-trained Transformer Language Models; keras_hub."""
    return hub().OPTBackbone(**SHORT)


@architecture()
def bloom():
    """BigScience, 2022: BLOOM, with biases linear in the distance; keras_hub."""
    return hub().BloomBackbone(**HEADS)


@architecture()
def llama():
    """Touvron et al., 2023: LLaMA; keras_hub's language model."""
    return hub().LlamaCausalLM(
        hub().LlamaBackbone(**SMALL, num_query_heads=4, num_key_value_heads=2), preprocessor=None
    )


@architecture()
def mistral():
    """Jiang et al., 2023: Mistral 7B, a sliding window; keras_hub."""
    return hub().MistralBackbone(**SMALL, num_query_heads=4, num_key_value_heads=2, sliding_window=6)


@architecture()
def gemma():
    """Gemma Team, 2024: Gemma; keras_hub."""
    return hub().GemmaBackbone(**SMALL, num_query_heads=2, num_key_value_heads=1, head_dim=8)


@architecture()
def falcon():
    """Almazrouei et al., 2023: The Falcon Series of Open Language Models; keras_hub."""
    return hub().FalconBackbone(**SMALL, num_attention_heads=2)


@architecture()
def qwen():
    """Yang et al., 2024: Qwen2; keras_hub."""
    return hub().QwenBackbone(**SMALL, num_query_heads=4, num_key_value_heads=2)


@architecture()
def mixtral():
    """Jiang et al., 2024: Mixtral of Experts; keras_hub."""
    return hub().MixtralBackbone(**SMALL, num_query_heads=4, num_key_value_heads=2, num_experts=4, sliding_window=8)


@architecture()
def t5():
    """Raffel et al., 2020: T5, Exploring the Limits of Transfer Learning; keras_hub."""
    return hub().T5Backbone(**HEADS)


@architecture()
def bart():
    """Lewis et al., 2020: BART, Denoising Sequence-to-Sequence Pre-training; keras_hub."""
    return hub().BartBackbone(**SHORT)


def speech() -> Mapping[str, np.ndarray]:
    """Samples of features of sound, and words."""
    features = np.random.default_rng(0).standard_normal((3, 24, 8)).astype("float32")
    return {"encoder_features": features, **{f"decoder_{name}": array for name, array in text(9).items()}}


@architecture()
def whisper():
    """Radford et al., 2023: Whisper, Robust Speech Recognition via Large-Scale Weak Supervision; keras_hub."""
    return hub().WhisperBackbone(**HEADS, num_mels=8, max_encoder_sequence_length=128, max_decoder_sequence_length=128)
