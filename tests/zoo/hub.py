"""Backbones and tasks of keras_hub, from small configurations of their own; nothing is downloaded.

keras_hub is imported when a model is built, so that the list is there without it.
"""

import inspect
from collections.abc import Mapping
from functools import partial
from importlib import import_module
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_attn.decoding import greedy

from .registry import HALF, add, architecture, ids

WORDS = 97
SIZES: dict[str, Any] = {
    "vocabulary_size": WORDS, "vocab_size": WORDS, "max_sequence_length": 128, "max_position_embeddings": 128,
    "num_layers": 2, "hidden_dim": 16, "hidden_size": 16, "embedding_dim": 16, "intermediate_dim": 32, "mlp_dim": 32,
    "ffn_dim": 32, "intermediate_size": 8, "num_heads": 2, "num_attention_heads": 2, "num_query_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "num_experts": 4, "top_k": 2, "num_query_tokens": 2, "vision_dim": 16,
    "image_shape": (32, 32, 3), "image_size": 16, "patch_size": 8, "projection_dim": 8, "mlp_ratio": 2.0, "theta": 1e4,
    "partial_rotary_factor": 1.0, "attention_bias": False, "mlp_bias": False, "use_bias": True, "use_patch_bias": True,
    "use_class_token": True, "use_mha_bias": True, "use_mlp_bias": True, "dropout": 0.0, "dropout_rate": 0.0,
    "attention_dropout": 0.0, "layer_norm_epsilon": 1e-6, "initializer_range": 0.02,
}  # fmt: skip


def hub() -> Any:
    """Return keras_hub's models."""
    import keras_hub

    return keras_hub.models


def small(kind: str, **sizes: Any) -> Any:
    """Build a model or layer of keras_hub, by its public name or its module and class below `keras_hub.src.models`.

    Arguments without a default take the size of their name, or of its end: `encoder_hidden_dim` that of `hidden_dim`.
    """
    module, _, name = kind.rpartition(".")
    cls = getattr(import_module(f"keras_hub.src.models.{module}") if module else hub(), name)
    for name, parameter in inspect.signature(cls.__init__).parameters.items():
        ends = (name[start:] for start, letter in enumerate(f"_{name}") if letter == "_")
        size = next((SIZES[end] for end in ends if end in SIZES), None)
        if size is not None and (parameter.default is parameter.empty or name == "max_sequence_length"):
            sizes.setdefault(name, size)
    return cls(**{name: size() if callable(size) else size for name, size in sizes.items()})


def part(kind: str, **sizes: Any) -> Any:
    """Return a function that builds a part of a model."""
    return partial(small, kind, **sizes)


def with_sizes(
    group: str, name: str, source: str, backbone: str, /, *, task: str = "", fixed: Any = (), **sizes: Any
) -> None:
    """Put a backbone on the list, or a task with it: a classifier or a language model.

    `fixed` holds shapes of inputs with axes that are open in the backbone.
    """
    options = {option: sizes.pop(option) for option in ("precisions", "samples", "nightly") if option in sizes}
    classes = {"num_classes": 3} if "Classifier" in task else {}

    def make() -> Any:
        made = small(backbone, **sizes)
        if fixed:
            inputs = {}
            for name, old in ((tensor.name, tensor) for tensor in made.inputs):
                inputs[name] = keras.Input(batch_shape=fixed.get(name, old.shape), dtype=old.dtype, name=name)
            return keras.Model(inputs, made(inputs))
        return getattr(hub(), task)(made, preprocessor=None, **classes) if task else made

    whose = "'s classifier" if classes else "'s language model" if task else ""
    add(group, name, f"{source}; keras_hub{whose}.", make, **options)


listed = partial(with_sizes, "hub")
listed("bert", "Devlin et al., 2019: BERT", "BertBackbone", task="BertTextClassifier", precisions=HALF)
listed("albert", "Lan et al., 2020: ALBERT, A Lite BERT", "AlbertBackbone", embedding_dim=8)
listed("roberta", "Liu et al., 2019: RoBERTa", "RobertaBackbone", task="RobertaTextClassifier")
listed("distil_bert", "Sanh et al., 2019: DistilBERT", "DistilBertBackbone")
listed("deberta", "He et al., 2021: DeBERTaV3", "DebertaV3Backbone", bucket_size=16)
listed("electra", "Clark et al., 2020: ELECTRA", "ElectraBackbone")
listed("fourier_net", "Lee-Thorp et al., 2022: FNet", "FNetBackbone")
listed("gpt2", "Radford et al., 2019: GPT-2", "GPT2Backbone", task="GPT2CausalLM")


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
    writer = hub().GPT2CausalLM(small("GPT2Backbone", num_layers=1), preprocessor=None)
    first, token, position = (keras.Input((), dtype="int32", name=name) for name in ("first", "token", "position"))
    cache = keras.Input((1, 2, room, 2, 8), name="cache")
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


listed("gpt_neo_x", "Black et al., 2022: GPT-NeoX-20B", "GPTNeoXBackbone", hidden_dim=32, rotary_percentage=0.5)
listed("opt", "Zhang et al., 2022: OPT, Open Pre-trained Transformer Language Models", "OPTBackbone")
listed("bloom", "BigScience, 2022: BLOOM, with biases linear in the distance", "BloomBackbone")
listed("llama", "Touvron et al., 2023: LLaMA", "LlamaBackbone", task="LlamaCausalLM")
listed("llama3", "Grattafiori et al., 2024: The Llama 3 Herd of Models", "Llama3Backbone", precisions=HALF)
listed("mistral", "Jiang et al., 2023: Mistral 7B, a sliding window", "MistralBackbone", sliding_window=6)
FEW = {"num_query_heads": 2, "num_key_value_heads": 1}
listed("gemma", "Gemma Team, 2024: Gemma", "GemmaBackbone", **FEW)
listed("falcon", "Almazrouei et al., 2023: The Falcon Series of Open Language Models", "FalconBackbone")
LONG = {"rope_scaling_type": "su", "rope_scaling_short_factor": [1.2, 1.4], "rope_scaling_long_factor": [0.8, 0.6]}
listed("phi3", "Abdin et al., 2024: Phi-3", "Phi3Backbone", pretraining_sequence_length=8, **LONG)
SMOL = {"num_attention_heads": 4, "rope_layer_enabled_list": [True, False], "layer_types": ["attention"] * 2}
listed("smol_lm3", "Bakouch et al., 2025: SmolLM3, some layers without positions", "SmolLM3Backbone", **SMOL)
listed("qwen", "Yang et al., 2024: Qwen2", "QwenBackbone")
listed("qwen3", "Yang et al., 2025: Qwen3", "Qwen3Backbone")
listed("mixtral", "Jiang et al., 2024: Mixtral of Experts", "MixtralBackbone", sliding_window=8)
listed("qwen_moe", "Qwen Team, 2024: Qwen1.5-MoE, with a shared expert", "QwenMoeBackbone")
listed("qwen3_moe", "Yang et al., 2025: Qwen3, a mixture of experts", "Qwen3MoeBackbone", norm_top_k_prob=True)
GATES = {"linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 4, "linear_value_head_dim": 4}
GATES |= {"layer_types": ["linear_attention", "full_attention"], "nightly": True}
GATES |= {"fixed": {"token_ids": (None, 8), "padding_mask": (None, 8)}}
listed("qwen3_5_moe", "Qwen Team, 2026: Qwen3.5, experts, texts of 8 tokens", "Qwen3_5MoeBackbone", **GATES)
listed("gpt_oss", "OpenAI, 2025: gpt-oss, attention sinks and experts", "GptOssBackbone", sliding_window=6)
listed("t5", "Raffel et al., 2020: T5, Exploring the Limits of Transfer Learning", "T5Backbone")
SIDES = {f"{side}_layer_types": ["sliding_attention", "full_attention"] for side in ("encoder", "decoder")}
SIDES |= {"decoder_num_attention_heads": 4, "cross_attention_hidden_size": 16, "sliding_window": 6}
listed("t5_gemma", "Zhang et al., 2025: T5Gemma, Encoder-Decoder Gemma", "T5GemmaBackbone", **SIDES)
listed("t5_gemma2", "Zhang et al., 2025: T5Gemma 2, merged attention", "T5Gemma2Backbone", nightly=True, **SIDES)
listed("bart", "Lewis et al., 2020: BART, Denoising Sequence-to-Sequence Pre-training", "BartBackbone")
WHISPER = "Radford et al., 2023: Whisper, Robust Speech Recognition via Large-Scale Weak Supervision"
SOUND = {"num_mels": 8, "max_encoder_sequence_length": 128, "max_decoder_sequence_length": 128}
listed("whisper", WHISPER, "WhisperBackbone", **SOUND)
listed("xlnet", "Yang et al., 2019: XLNet, Generalized Autoregressive Pretraining", "XLNetBackbone")
listed("xlm_roberta", "Conneau et al., 2020: XLM-RoBERTa", "XLMRobertaBackbone")
listed("roformer", "Su et al., 2022: RoFormerV2, rotary positions", "RoformerV2Backbone", head_size=8)
listed("esm2", "Lin et al., 2023: ESM-2, language models of proteins", "ESM2Backbone")
RECOMMENDATION = {"num_layers_enc": 2, "num_layers_dec": 2, "nightly": True}
listed("edrec", "Google, 2025: EdRec, an encoder and decoder", "EdRecBackbone", **RECOMMENDATION)


@architecture()
def recurrent_receptance(token_ids=(16, "int32"), padding_mask=(16, "int32")):
    """Peng et al., 2025: RWKV-7 "Goose"; keras_hub, texts of 16 tokens, since its length is a number in Python."""
    ranks = dict.fromkeys(["gate_lora", "mv_lora", "aaa_lora", "decay_lora"], 8)
    backbone = small("RWKV7Backbone", hidden_size=32, head_size=16, num_layers=1, **ranks)
    return backbone({"token_ids": token_ids, "padding_mask": padding_mask})


@architecture()
def gated_delta_net(token_ids=(8, "int32"), padding_mask=(8, "int32")):
    """Yang et al., 2025: Gated Delta Networks, as in Qwen3.5; keras_hub, texts of 8 tokens, as RWKV-7."""
    heads = {"linear_num_key_heads": 2, "linear_num_value_heads": 2, "linear_key_head_dim": 8}
    layers = {"linear_value_head_dim": 8, "layer_types": ["linear_attention", "full_attention"]}
    return small("Qwen3_5Backbone", **FEW, **heads, **layers)({"token_ids": token_ids, "padding_mask": padding_mask})
