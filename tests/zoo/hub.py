"""Backbones and tasks of keras_hub in small configurations, without downloads.

keras_hub is imported when a model is built, so that the zoo can be listed without it.
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

from .registry import LOW_PRECISIONS, add_architecture, architecture, draw_ids

VOCABULARY_SIZE = 97
SIZES: dict[str, Any] = {
    "vocabulary_size": VOCABULARY_SIZE, "vocab_size": VOCABULARY_SIZE, "max_sequence_length": 128, "ffn_dim": 32,
    "max_position_embeddings": 128, "hidden_dim": 16, "hidden_size": 16, "embedding_dim": 16, "intermediate_dim": 32,
    "mlp_dim": 32, "num_layers": 2, "intermediate_size": 8, "num_heads": 2, "num_attention_heads": 2, "theta": 1e4,
    "num_query_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "num_experts": 4, "top_k": 2, "num_query_tokens": 2,
    "vision_dim": 16, "image_shape": (32, 32, 3), "image_size": 16, "patch_size": 8, "projection_dim": 8,
    "mlp_ratio": 2.0, "partial_rotary_factor": 1.0, "attention_bias": False, "mlp_bias": False, "use_bias": True,
    "use_patch_bias": True, "use_class_token": True, "use_mha_bias": True, "use_mlp_bias": True, "dropout": 0.0,
    "dropout_rate": 0.0, "attention_dropout": 0.0, "initializer_range": 0.02, "layer_norm_epsilon": 1e-6,
}  # fmt: skip


def hub() -> Any:
    """Import keras_hub, and return its module of models."""
    import keras_hub

    return keras_hub.models


def build_small(path: str, **sizes: Any) -> Any:
    """Build a model or layer of keras_hub from its public name, or from module and class below `keras_hub.src.models`.

    Arguments without a default are set from `SIZES` by a suffix of their name: `encoder_hidden_dim` by `hidden_dim`.
    """
    module, _, name = path.rpartition(".")
    cls = getattr(import_module(f"keras_hub.src.models.{module}") if module else hub(), name)
    for name, parameter in inspect.signature(cls.__init__).parameters.items():
        suffixes = (name[start:] for start, letter in enumerate(f"_{name}") if letter == "_")
        size = next((SIZES[suffix] for suffix in suffixes if suffix in SIZES), None)
        if size is not None and (parameter.default is parameter.empty or name == "max_sequence_length"):
            sizes.setdefault(name, size)
    return cls(**{name: size() if callable(size) else size for name, size in sizes.items()})


def part(path: str, **sizes: Any) -> Any:
    """Return a function that builds a part of a model, as `build_small`."""
    return partial(build_small, path, **sizes)


def add_backbone(
    kind: str, name: str, source: str, backbone: str, /, *, task: str = "", fixed: Any = (), **sizes: Any
) -> None:
    """Add a backbone to the zoo, or a task with this backbone: a classifier or a language model.

    `fixed` maps input names to shapes that replace dynamic axes of the backbone.
    """
    options = {option: sizes.pop(option) for option in ("precisions", "samples", "nightly") if option in sizes}
    classes = {"num_classes": 3} if "Classifier" in task else {}

    def build() -> Any:
        model = build_small(backbone, **sizes)
        if fixed:
            shapes = {tensor.name: fixed.get(tensor.name, tensor.shape) for tensor in model.inputs}
            dtypes = {tensor.name: tensor.dtype for tensor in model.inputs}
            inputs = {name: keras.Input(batch_shape=shapes[name], dtype=dtypes[name], name=name) for name in shapes}
            return keras.Model(inputs, model(inputs))
        return getattr(hub(), task)(model, preprocessor=None, **classes) if task else model

    suffix = "'s classifier" if classes else "'s language model" if task else ""
    add_architecture(kind, name, f"{source}; keras_hub{suffix}.", build, **options)


add = partial(add_backbone, "hub")
add("bert", "Devlin et al., 2019: BERT", "BertBackbone", task="BertTextClassifier", precisions=LOW_PRECISIONS)
add("albert", "Lan et al., 2020: ALBERT, A Lite BERT", "AlbertBackbone", embedding_dim=8)
add("roberta", "Liu et al., 2019: RoBERTa", "RobertaBackbone", task="RobertaTextClassifier")
add("distil_bert", "Sanh et al., 2019: DistilBERT", "DistilBertBackbone")
add("deberta", "He et al., 2021: DeBERTaV3", "DebertaV3Backbone", bucket_size=16)
add("electra", "Clark et al., 2020: ELECTRA", "ElectraBackbone")
add("fourier_net", "Lee-Thorp et al., 2022: FNet", "FNetBackbone")
add("gpt2", "Radford et al., 2019: GPT-2", "GPT2Backbone", task="GPT2CausalLM")


class CachedStep(keras.layers.Layer):
    """One decoding step of a language model of keras_hub, which writes its cache at the same position in all rows."""

    def __init__(self, causal_lm: Any, **options: Any) -> None:
        super().__init__(**options)
        self.causal_lm = causal_lm

    def call(self, token: Any, position: Any, cache: Any) -> Any:
        logits, _, next_cache = self.causal_lm.call_with_cache(ops.expand_dims(token, 1), cache, position[0])
        return logits[:, 0], next_cache


def build_gpt2_parts() -> Any:
    """Build the model of the first token, the decoding step and the map of its states; the first cache is zeros."""
    causal_lm = hub().GPT2CausalLM(build_small("GPT2Backbone", num_layers=1), preprocessor=None)
    first, token, position = (keras.Input((), dtype="int32", name=name) for name in ("first", "token", "position"))
    cache = keras.Input((1, 2, 6, 2, 8), name="cache")
    logits, next_cache = CachedStep(causal_lm)(token, position, cache)
    step = keras.Model([token, position, cache], {"logits": logits, "next_cache": next_cache})
    return keras.Model(first, {"begin": first + 0}), step, {"next_cache": "cache"}


def draw_step_inputs() -> Mapping[str, np.ndarray]:
    """Return tokens at position 4 of all rows, and a random cache of capacity 6."""
    cache = np.random.default_rng(0).standard_normal((3, 1, 2, 6, 2, 8)).astype("float32")
    return {"token": draw_ids(VOCABULARY_SIZE, 3), "position": np.full(3, 4, "int32"), "cache": cache}


@architecture(samples=draw_step_inputs)
def gpt2_step():
    """Radford et al., 2019: GPT-2; one step of keras_hub's language model with its cache."""
    return build_gpt2_parts()[1]


@architecture(samples=lambda: {"first": draw_ids(VOCABULARY_SIZE, 3)})
def gpt2_writes():
    """Radford et al., 2019: GPT-2; greedy decoding with keras_hub's language model in our loop."""
    return greedy(*build_gpt2_parts(), start="begin", end=1, max_length=4)


add("gpt_neo_x", "Black et al., 2022: GPT-NeoX-20B", "GPTNeoXBackbone", hidden_dim=32, rotary_percentage=0.5)
add("opt", "Zhang et al., 2022: OPT, Open Pre-trained Transformer Language Models", "OPTBackbone")
add("bloom", "BigScience, 2022: BLOOM, with biases linear in the distance", "BloomBackbone")
add("llama", "Touvron et al., 2023: LLaMA", "LlamaBackbone", task="LlamaCausalLM")
add("llama3", "Grattafiori et al., 2024: The Llama 3 Herd of Models", "Llama3Backbone", precisions=LOW_PRECISIONS)
add("mistral", "Jiang et al., 2023: Mistral 7B, a sliding window", "MistralBackbone", sliding_window=6)
FEW_HEADS = {"num_query_heads": 2, "num_key_value_heads": 1}
add("gemma", "Gemma Team, 2024: Gemma", "GemmaBackbone", **FEW_HEADS)
add("falcon", "Almazrouei et al., 2023: The Falcon Series of Open Language Models", "FalconBackbone")
ROPE = {"rope_scaling_type": "su", "rope_scaling_short_factor": [1.2, 1.4], "rope_scaling_long_factor": [0.8, 0.6]}
add("phi3", "Abdin et al., 2024: Phi-3", "Phi3Backbone", pretraining_sequence_length=8, **ROPE)
SMOL_LM = {"num_attention_heads": 4, "rope_layer_enabled_list": [True, False], "layer_types": ["attention"] * 2}
add("smol_lm3", "Bakouch et al., 2025: SmolLM3, some layers without positions", "SmolLM3Backbone", **SMOL_LM)
add("qwen", "Yang et al., 2024: Qwen2", "QwenBackbone")
add("qwen3", "Yang et al., 2025: Qwen3", "Qwen3Backbone")
add("mixtral", "Jiang et al., 2024: Mixtral of Experts", "MixtralBackbone", sliding_window=8)
add("qwen_moe", "Qwen Team, 2024: Qwen1.5-MoE, with a shared expert", "QwenMoeBackbone")
add("qwen3_moe", "Yang et al., 2025: Qwen3, a mixture of experts", "Qwen3MoeBackbone", norm_top_k_prob=True)
DELTA_NET = {"linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 4}
DELTA_NET |= {"linear_value_head_dim": 4, "layer_types": ["linear_attention", "full_attention"], "nightly": True}
DELTA_NET |= {"fixed": {"token_ids": (None, 8), "padding_mask": (None, 8)}}
add("qwen3_5_moe", "Qwen Team, 2026: Qwen3.5, experts, texts of 8 tokens", "Qwen3_5MoeBackbone", **DELTA_NET)
add("gpt_oss", "OpenAI, 2025: gpt-oss, attention sinks and experts", "GptOssBackbone", sliding_window=6)
add("t5", "Raffel et al., 2020: T5, Exploring the Limits of Transfer Learning", "T5Backbone")
T5_GEMMA = {f"{side}_layer_types": ["sliding_attention", "full_attention"] for side in ("encoder", "decoder")}
T5_GEMMA |= {"decoder_num_attention_heads": 4, "cross_attention_hidden_size": 16, "sliding_window": 6}
add("t5_gemma", "Zhang et al., 2025: T5Gemma, Encoder-Decoder Gemma", "T5GemmaBackbone", **T5_GEMMA)
add("t5_gemma2", "Zhang et al., 2025: T5Gemma 2, merged attention", "T5Gemma2Backbone", nightly=True, **T5_GEMMA)
add("bart", "Lewis et al., 2020: BART, Denoising Sequence-to-Sequence Pre-training", "BartBackbone")
WHISPER = "Radford et al., 2023: Whisper, Robust Speech Recognition via Large-Scale Weak Supervision"
AUDIO = {"num_mels": 8, "max_encoder_sequence_length": 128, "max_decoder_sequence_length": 128}
add("whisper", WHISPER, "WhisperBackbone", **AUDIO)
add("xlnet", "Yang et al., 2019: XLNet, Generalized Autoregressive Pretraining", "XLNetBackbone")
add("xlm_roberta", "Conneau et al., 2020: XLM-RoBERTa", "XLMRobertaBackbone")
add("roformer", "Su et al., 2022: RoFormerV2, rotary positions", "RoformerV2Backbone", head_size=8)
add("esm2", "Lin et al., 2023: ESM-2, language models of proteins", "ESM2Backbone")
EDREC = {"num_layers_enc": 2, "num_layers_dec": 2, "nightly": True}
add("edrec", "Google, 2025: EdRec, an encoder and decoder", "EdRecBackbone", **EDREC)


@architecture()
def recurrent_receptance(token_ids=(16, "int32"), padding_mask=(16, "int32")):
    """Peng et al., 2025: RWKV-7 "Goose"; keras_hub, texts of 16 tokens, since its length is a number in Python."""
    ranks = dict.fromkeys(["gate_lora", "mv_lora", "aaa_lora", "decay_lora"], 8)
    backbone = build_small("RWKV7Backbone", hidden_size=32, head_size=16, num_layers=1, **ranks)
    return backbone({"token_ids": token_ids, "padding_mask": padding_mask})


@architecture()
def gated_delta_net(token_ids=(8, "int32"), padding_mask=(8, "int32")):
    """Yang et al., 2025: Gated Delta Networks, as in Qwen3.5; keras_hub, texts of 8 tokens, as RWKV-7."""
    heads = {"linear_num_key_heads": 2, "linear_num_value_heads": 2, "linear_key_head_dim": 8}
    layers = {"linear_value_head_dim": 8, "layer_types": ["linear_attention", "full_attention"]}
    backbone = build_small("Qwen3_5Backbone", **FEW_HEADS, **heads, **layers)
    return backbone({"token_ids": token_ids, "padding_mask": padding_mask})
