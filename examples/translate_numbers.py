# %% [markdown]
"""Translation by a Transformer with beam search in one ONNX file: "forty two" becomes "zweiundvierzig".

The texts are numbers below 10,000, spelled by the package `num2words`. The encoder reads English words; the decoder
writes German, French or Danish, one character at a time. The ONNX file contains both, the decoder's key/value cache and
the loop: the input is a string, the output is the best answer of a beam search.

This opens as a notebook, and runs as a script in a minute; start it in an empty folder.
"""

# %%
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before TensorFlow is imported

import keras
import numpy as np
from keras import layers, ops
from matplotlib.figure import Figure
from num2words import num2words

from keras_attn import DotProductAttention, MultiHeadAttention, RotaryEmbedding
from keras_attn.decoding import beam
from keras_attn_export import export_model

keras.utils.set_random_seed(0)
LANGUAGES = {"de": "German", "fr": "French", "da": "Danish"}
WIDTH, HEADS, BATCH, EPOCHS = 64, 4, 64, 2

# %% [markdown]
# ## The texts: token 0 ends an answer, and the start token identifies the language


# %%
def write_texts(numbers):  # English texts with target languages, and the translations
    pairs = [(number, code) for number in numbers for code in LANGUAGES]
    rows = [(num2words(number).replace("-", " "), code, num2words(number, lang=code)) for number, code in pairs]
    english, codes, targets = (np.array(column, object) for column in zip(*rows, strict=True))
    return {"text": english, "language": codes}, targets


numbers = np.random.default_rng(0).permutation(10_000).tolist()
sources, targets = write_texts(numbers[:3000])
held_out, expected = write_texts(numbers[-300:])
split_words, split_characters = layers.TextVectorization(), layers.TextVectorization(None, None, "character")
split_words.adapt(sources["text"])
split_characters.adapt(targets)
alphabet = split_characters.get_vocabulary()
look_up_language = layers.StringLookup(vocabulary=list(LANGUAGES))

starts = len(alphabet) + look_up_language(sources["language"]).numpy()
tokens = np.pad(split_characters(targets), [(0, 0), (0, 1)])
previous = np.column_stack([starts, tokens[:, :-1]])  # the previous token of each token
print(f"{len(targets)} texts such as '{sources['text'][0]}', in {sources['language'][0]} '{targets[0]}'")

# %% [markdown]
# ## The layers
#
# A convolution reads each word with its neighbours. The decoder attends to the words, and to its previous characters in
# a key/value cache of `precompute` or `append`.

# %%
embed_words = layers.Embedding(split_words.vocabulary_size(), WIDTH)
embed_characters = layers.Embedding(len(alphabet) + look_up_language.vocabulary_size(), WIDTH)
read_neighbours = layers.Conv1D(WIDTH, 3, padding="same")
look_back = MultiHeadAttention(DotProductAttention(), HEADS, process_heads=RotaryEmbedding())
translate = MultiHeadAttention(DotProductAttention(), num_heads=1)
look_back.build(*3 * [(None, None, WIDTH)])
translate.build(*3 * [(None, None, WIDTH)])
widen, narrow = layers.Dense(4 * WIDTH, activation="relu"), layers.Dense(WIDTH)
norms = [layers.LayerNormalization() for _ in range(4)]
answer = layers.Dense(embed_characters.input_dim)


def encode(ids):
    """Return the projected keys and values of the words, and the number of words (B,)."""
    words = embed_words(ids) * ops.expand_dims(ops.cast(ids != 0, "float32"), -1)
    words = words + read_neighbours(words)
    return translate.precompute(words, words), ops.count_nonzero(ids, axis=1)


def decode(x, cache, memory, valid_lens):
    """Return the logits (B, T, V) of the next character after each of x (B, T, D), and the weights of the words."""
    x = x + look_back(norms[0](x), cache, use_causal_mask=True)
    context, weights = translate(norms[1](x), memory, valid_lens=valid_lens, return_attention_scores=True)
    x = x + context
    return answer(norms[3](x + narrow(widen(norms[2](x))))), weights


# %% Training: all characters at once
ids, inputs = keras.Input((None,), dtype="int32"), keras.Input((None,), dtype="int32")
x = embed_characters(inputs)
logits, _ = decode(x, look_back.precompute(norms[0](x), norms[0](x)), *encode(ids))
training = keras.Model([ids, inputs], logits)
rate = keras.optimizers.schedules.CosineDecay(0.0, EPOCHS * len(tokens) // BATCH, warmup_target=0.01, warmup_steps=20)
embed = [layer.name for layer in (embed_words, embed_characters, answer)]  # by Adam: not matrices in the sense of Muon
optimizer = keras.optimizers.Muon(rate, adam_lr_ratio=0.5, weight_decay=0, adam_weight_decay=0, exclude_layers=embed)
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="mean_with_sample_weight")
training.compile(optimizer, loss)
sample_weight = np.column_stack([np.ones(len(tokens)), tokens[:, :-1] > 0])  # up to the first 0, which ends an answer
training.fit([split_words(sources["text"]), previous], tokens, BATCH, EPOCHS, verbose=2, sample_weight=sample_weight)

# %% [markdown]
# ## One character at a time
#
# `beam` connects an encoder and a step. The cache, empty at first, is a state: output of a step and input of the next.

# %%
PARTS = ("projected_keys", "projected_values")
text, language = (keras.Input((), dtype="string", name=name) for name in ("text", "language"))
memory, valid_lens = encode(ops.pad(split_words(text), [[0, 0], [0, 1]]))  # a batch of empty texts would have no word
start = len(alphabet) + look_up_language(language)
encoder = keras.Model({"text": text, "language": language}, {**memory, "valid_lens": valid_lens, "start": start})

token, count = (keras.Input((), dtype="int32", name=name) for name in ("token", "valid_lens"))
memory = {part: keras.Input((1, None, WIDTH), name=part) for part in PARTS}
cache = {part: keras.Input((HEADS, None, WIDTH // HEADS), name=f"past_{part}") for part in PARTS}
x = embed_characters(ops.expand_dims(token, 1))
next_cache = look_back.append(cache, norms[0](x), norms[0](x))
logits, weights = decode(x, next_cache, memory, count)
outputs = {"logits": logits[:, 0], "weights": weights[:, 0, 0], **{f"next_{part}": next_cache[part] for part in PARTS}}
step = keras.Model([token, count, *memory.values(), *cache.values()], outputs)

search = {"start": "start", "end": 0, "max_length": tokens.shape[1], "width": 4, "best": 1, "outputs": ["weights"]}
search["state"] = {f"next_{part}": f"past_{part}" for part in PARTS}
result = beam(encoder, step, **search)({"text": text, "language": language})
look_up_characters = layers.StringLookup(vocabulary=alphabet[2:], mask_token="", invert=True)
model = keras.Model([text, language], {"characters": look_up_characters(result["tokens"]), **result})

# %% [markdown]
# ## One file, and its attention weights
#
# The picture shows one number in three languages: the weights of the words for each character of an answer.

# %%
bundle = export_model(model, "bundle", sample_inputs={name: x[:6] for name, x in held_out.items()}, overwrite=True)
print(bundle.report.summary())
answers = bundle.run(held_out)
translations = ["".join(row) for row in answers["characters"][:, 0]]
accuracy = np.mean([text == target for text, target in zip(translations, expected, strict=True)])
print(f"{accuracy:.1%} of {len(translations)} translations of held-out numbers are exact")

figure = Figure(figsize=(9, 6), layout="constrained")
for row, (axis, name) in enumerate(zip(figure.subplots(1, len(LANGUAGES)), LANGUAGES.values(), strict=True)):
    words, length = held_out["text"][row].split(), len(translations[row])
    axis.imshow(answers["weights"][row, 0, :length, : len(words)], cmap="Reds", vmin=0, vmax=1, aspect="auto")
    axis.set_xticks(range(len(words)), words, rotation=60, ha="right")
    axis.set_yticks(range(length), translations[row], fontsize=8)
    axis.set_title(f"{name}, probability {np.exp(answers['scores'][row, 0]):.2f}", fontsize=10)
figure.savefig("translate_numbers.png", dpi=80)
