"""A small Transformer decoder with a cache: as one model to train, and as the two that decode, joined to one."""

from typing import Any

import keras
from keras import layers, ops
from number_data import END, EQUALS, vocabulary_size

from keras_attn import DotProductAttention, MultiHeadAttention, RotaryEmbedding
from keras_attn.decoding import greedy

NUM_HEADS, NUM_KV_HEADS = 4, 2


class Block:
    """Attention of each token to those before it and to itself, then two dense layers, each added to what came in."""

    def __init__(self, width: int, name: str) -> None:
        self.before_attend = layers.LayerNormalization(name=f"{name}_before_attend")
        self.attend = MultiHeadAttention(
            DotProductAttention(),
            NUM_HEADS,
            num_kv_heads=NUM_KV_HEADS,  # half of what the cache would hold
            process_heads=RotaryEmbedding(),
            name=f"{name}_attend",
        )
        self.attend.build(*3 * [(None, None, width)])
        self.before_widen = layers.LayerNormalization(name=f"{name}_before_widen")
        self.widen = layers.Dense(4 * width, activation="relu", name=f"{name}_widen")
        self.narrow = layers.Dense(width, name=f"{name}_narrow")

    def at_once(self, x: Any) -> tuple[Any, Any]:
        """All tokens (B, T, width): what comes out, and the normalized ones that keys and values are made of."""
        keys = self.before_attend(x)
        return self._after(x, self.attend(keys, keys, keys, use_causal_mask=True)), keys

    def step(self, x: Any, cache: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """One token (B, 1, width) behind those of the cache: what comes out, and the cache with it."""
        key = self.before_attend(x)
        cache = self.attend.append(cache, key, key)
        return self._after(x, self.attend(key, cache, use_causal_mask=True)), cache

    def _after(self, x: Any, attended: Any) -> Any:
        x = x + attended
        return x + self.narrow(self.widen(self.before_widen(x)))


class Speller:
    """The layers that all the models share, and for how many tokens of an answer there is room."""

    def __init__(self, width: int, depth: int, longest_answer: int) -> None:
        self.width, self.longest_answer = width, longest_answer
        self.embed = layers.Embedding(vocabulary_size(), width, name="embed")
        self.blocks = [Block(width, f"block_{n}") for n in range(depth)]
        self.before_answer = layers.LayerNormalization(name="before_answer")
        self.answer = layers.Dense(vocabulary_size(), name="answer")

    def at_once(self, tokens: Any) -> Any:
        """All tokens (B, T) without a cache: what the last block gives, (B, T, width)."""
        x = self.embed(tokens)
        for block in self.blocks:
            x, _ = block.at_once(x)
        return x

    def logits(self, x: Any) -> Any:
        return self.answer(self.before_answer(x))


def training_model(speller: Speller) -> keras.Model:
    """From the tokens of prompt and answer (B, T) to the logits of what comes after each, (B, T, V).

    No length is needed: a token sees those before it alone, and padding comes behind all of them.
    """
    tokens = keras.Input((None,), dtype="int32", name="tokens")
    return keras.Model(tokens, speller.logits(speller.at_once(tokens)), name="training")


def prompt_model(speller: Speller) -> keras.Model:
    """The prompt at once: for each block its cache, with room for an answer, and how many tokens are in it."""
    prompt = keras.Input((None,), dtype="int32", name="prompt")
    valid_lens = keras.Input((), dtype="int32", name="valid_lens")
    # Steps write over the padding of a prompt that is shorter than others.
    places = ops.cumsum(ops.ones_like(prompt), axis=1) - 1
    length = ops.sum(ops.cast(places < ops.expand_dims(valid_lens, 1), "int32"), axis=1)
    outputs = {"length": length}
    x = speller.embed(prompt)
    for n, block in enumerate(speller.blocks):
        x, keys = block.at_once(x)
        state = block.attend.precompute(keys, keys)
        for name, past in _names(n).items():
            outputs[past] = ops.pad(state[name], [[0, 0], [0, 0], [0, speller.longest_answer], [0, 0]])
    return keras.Model([prompt, valid_lens], outputs, name="prompt")


def step_model(speller: Speller) -> keras.Model:
    """One token (B,), with the cache that it is put into: the logits of the next (B, V), and the cache with it."""
    token, length = (keras.Input((), dtype="int32", name=name) for name in ("token", "length"))
    size = (NUM_KV_HEADS, None, speller.width // NUM_HEADS)
    inputs, outputs = [token, length], {"next_length": length + 1}
    x = speller.embed(ops.expand_dims(token, 1))
    for n, block in enumerate(speller.blocks):
        cache = {name: keras.Input(size, name=past) for name, past in _names(n).items()}
        inputs += cache.values()
        x, cache = block.step(x, {**cache, "length": length})
        outputs |= {f"next_{past}": cache[name] for name, past in _names(n).items()}
    return keras.Model(inputs, {"logits": ops.squeeze(speller.logits(x), 1), **outputs}, name="step")


def state_of(speller: Speller) -> dict[str, str]:
    """From outputs of the step to the inputs that they are at the next."""
    names = ["length", *(past for n in range(len(speller.blocks)) for past in _names(n).values())]
    return {f"next_{name}": name for name in names}


def answering_model(speller: Speller) -> keras.Model:
    """From prompts to whole answers: both models and the loop around them."""
    return greedy(
        prompt_model(speller),
        step_model(speller),
        state_of(speller),
        start=EQUALS,
        end=END,
        max_length=speller.longest_answer,
        name="answering",
    )


def _names(block: int) -> dict[str, str]:
    """From the tensors of a block's state to their names in the models."""
    return {"projected_keys": f"keys_{block}", "projected_values": f"values_{block}"}
