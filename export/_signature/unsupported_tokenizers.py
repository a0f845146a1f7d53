"""Refuse tokenizers of KerasHub that cannot be exported."""

from __future__ import annotations

from typing import Any

from .._errors import UnsupportedModelError

_WHY = {
    "BytePairTokenizer": "Keras itself gives other numbers for some texts in a graph than without one",
    "SentencePieceTokenizer": "Its pieces are found by a library of its own, for which ONNX has no operator",
}


def refuse_tokenizer(layer: Any) -> None:
    """Raise what is against a layer, if it is a tokenizer."""
    kinds = [each.__name__ for each in type(layer).__mro__ if each.__module__.startswith("keras_hub.")]
    if "Tokenizer" not in kinds:
        return
    for kind in kinds:
        if kind in _WHY:
            raise UnsupportedModelError(
                f"Layer `{layer.name}` is a `{kind}` of KerasHub, which no file can hold. {_WHY[kind]}. Tokenize "
                "before the model, and let it take the numbers; or take a `WordPieceTokenizer`, a "
                "`UnicodeCodepointTokenizer` or a `ByteTokenizer`."
            )
    if not layer.sequence_length:
        raise UnsupportedModelError(
            f"Layer `{layer.name}` ({type(layer).__name__}) gives rows of unequal lengths, which no tensor holds. Set "
            "`sequence_length`."
        )
    if getattr(layer, "special_tokens_in_strings", False):
        raise UnsupportedModelError(
            f"Layer `{layer.name}` ({type(layer).__name__}) looks for special tokens within texts, which no operator "
            "does. Leave out `special_tokens_in_strings`."
        )
