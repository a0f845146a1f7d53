"""Backbones and tasks of keras_hub, from small configurations of their own; nothing is downloaded.

keras_hub is imported when a model is built, so that the list is there without it.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_attn.decoding import greedy

from .registry import HALF, add, architecture, ids

WORDS = 97
SMALL: dict[str, Any] = {"vocabulary_size": WORDS, "num_layers": 2, "hidden_dim": 16, "intermediate_dim": 32}
HEADS = {**SMALL, "num_heads": 2}
SHORT = {**HEADS, "max_sequence_length": 128}
GROUPS = {**SMALL, "num_query_heads": 4, "num_key_value_heads": 2}


def hub() -> Any:
    """Return keras_hub's models."""
    import keras_hub

    return keras_hub.models


def with_sizes(kind: str, name: str, source: str, backbone: str, sizes: Any, *, task: str = "", **options: Any) -> None:
    """Put a backbone on the list, or a task with it: a classifier or a language model."""
    classes = {"num_classes": 3} if "Classifier" in task else {}

    def make() -> Any:
        made = getattr(hub(), backbone)(**sizes)
        return getattr(hub(), task)(made, preprocessor=None, **classes) if task else made

    whose = "'s classifier" if classes else "'s language model" if task else ""
    add(kind, name, f"{source}; keras_hub{whose}.", make, **options)


listed = partial(with_sizes, "hub")
listed("bert", "Devlin et al., 2019: BERT", "BertBackbone", SHORT, task="BertTextClassifier", precisions=HALF)
listed("albert", "Lan et al., 2020: ALBERT, A Lite BERT", "AlbertBackbone", {**SHORT, "embedding_dim": 8})
listed("roberta", "Liu et al., 2019: RoBERTa", "RobertaBackbone", SHORT, task="RobertaTextClassifier")
listed("distil_bert", "Sanh et al., 2019: DistilBERT", "DistilBertBackbone", SHORT)
listed("deberta", "He et al., 2021: DeBERTaV3", "DebertaV3Backbone", {**SHORT, "bucket_size": 16})
ELECTRA = {"vocab_size" if name == "vocabulary_size" else name: size for name, size in SHORT.items()}
listed("electra", "Clark et al., 2020: ELECTRA", "ElectraBackbone", {**ELECTRA, "embedding_dim": 16})
listed("fourier_net", "Lee-Thorp et al., 2022: FNet", "FNetBackbone", {**SMALL, "max_sequence_length": 128})
listed("gpt2", "Radford et al., 2019: GPT-2", "GPT2Backbone", SHORT, task="GPT2CausalLM")


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
    """Radford et al., 2019: GPT-2; greedy decoding with keras_hub's language model in our loop."""
    return greedy(*gpt2_parts(), start="begin", end=1, max_length=4)


EXPERTS = {**GROUPS, "num_experts": 4, "sliding_window": 8}
FEW = {**SMALL, "num_query_heads": 2, "num_key_value_heads": 1, "head_dim": 8}
SOUND = {**HEADS, "num_mels": 8, "max_encoder_sequence_length": 128, "max_decoder_sequence_length": 128}
TURNED = {**SHORT, "hidden_dim": 32, "rotary_percentage": 0.5}
listed("gpt_neo_x", "Black et al., 2022: GPT-NeoX-20B", "GPTNeoXBackbone", TURNED)
listed("opt", "Zhang et al., 2022: OPT, Open Pre-trained Transformer Language Models", "OPTBackbone", SHORT)
listed("bloom", "BigScience, 2022: BLOOM, with biases linear in the distance", "BloomBackbone", HEADS)
listed("llama", "Touvron et al., 2023: LLaMA", "LlamaBackbone", GROUPS, task="LlamaCausalLM")
WINDOW = {**GROUPS, "sliding_window": 6}
listed("mistral", "Jiang et al., 2023: Mistral 7B, a sliding window", "MistralBackbone", WINDOW)
listed("gemma", "Gemma Team, 2024: Gemma", "GemmaBackbone", FEW)
FALCON = "Almazrouei et al., 2023: The Falcon Series of Open Language Models"
listed("falcon", FALCON, "FalconBackbone", {**SMALL, "num_attention_heads": 2})
listed("qwen", "Yang et al., 2024: Qwen2", "QwenBackbone", GROUPS)
listed("mixtral", "Jiang et al., 2024: Mixtral of Experts", "MixtralBackbone", EXPERTS)
listed("t5", "Raffel et al., 2020: T5, Exploring the Limits of Transfer Learning", "T5Backbone", HEADS)
listed("bart", "Lewis et al., 2020: BART, Denoising Sequence-to-Sequence Pre-training", "BartBackbone", SHORT)
WHISPER = "Radford et al., 2023: Whisper, Robust Speech Recognition via Large-Scale Weak Supervision"
listed("whisper", WHISPER, "WhisperBackbone", SOUND)
XLNET = "Yang et al., 2019: XLNet, Generalized Autoregressive Pretraining"
listed("xlnet", XLNET, "XLNetBackbone", HEADS)


@architecture()
def recurrent_receptance(token_ids=(16, "int32"), padding_mask=(16, "int32")):
    """Peng et al., 2025: RWKV-7 "Goose"; keras_hub, texts of 16 tokens, since its length is a number in Python."""
    ranks = dict.fromkeys(["gate_lora", "mv_lora", "aaa_lora", "decay_lora"], 8)
    sizes = {"vocabulary_size": WORDS, "hidden_size": 32, "head_size": 16, "num_layers": 1, "intermediate_dim": 32}
    return hub().RWKV7Backbone(**sizes, **ranks)({"token_ids": token_ids, "padding_mask": padding_mask})


@architecture()
def gated_delta_net(token_ids=(8, "int32"), padding_mask=(8, "int32")):
    """Yang et al., 2025: Gated Delta Networks, as in Qwen3.5; keras_hub, texts of 8 tokens, as RWKV-7."""
    heads = {"linear_num_key_heads": 2, "linear_num_value_heads": 2, "linear_key_head_dim": 8}
    backbone = hub().Qwen3_5Backbone(
        **FEW, **heads, linear_value_head_dim=8, layer_types=["linear_attention", "full_attention"]
    )
    return backbone({"token_ids": token_ids, "padding_mask": padding_mask})
