# %% [markdown]
"""Language identification: one ONNX file maps strings to languages, and returns the weights of the characters.

The texts are lists such as "Frankreich, Ungarisch und Yen": names of countries, languages and currencies in twenty
languages, joined as in each language. The data is Unicode's CLDR, from the package `babel`. The model splits a text
into characters; three learned queries attend to characters that distinguish languages, by additive attention.

This opens as a notebook, and runs as a script in a minute; start it in an empty folder.
"""

# %%
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before TensorFlow is imported

import keras
import numpy as np
from babel import Locale
from babel.lists import format_list
from keras import layers, ops
from matplotlib.figure import Figure

from keras_attn import AdditiveAttention
from keras_attn_export import export_model

keras.utils.set_random_seed(0)
LANGUAGES = ["ca", "cs", "da", "de", "en", "es", "et", "fi", "fr", "hr", "hu", "it", "lt", "nl", "pl", "pt", "ro"]
LANGUAGES += ["sv", "tr", "vi"]
KINDS = ["territories", "languages", "currencies"]

# %% [markdown]
# ## The texts
#
# 250 countries, languages and currencies are held out: their names do not occur in training, in any language.

# %%
rng = np.random.default_rng(0)
entries = [(kind, key) for kind in KINDS for key in sorted(getattr(Locale("en"), kind))]
entries = [entries[number] for number in rng.permutation(len(entries))]


def write_texts(entries, count):
    """Return `count` texts in each language, and the indices of the languages."""
    texts = []
    for code in LANGUAGES:
        names = [getattr(Locale(code), kind).get(key) for kind, key in entries]
        names = [name for name in names if name]  # some languages lack some names
        texts += [format_list(list(rng.choice(names, 3, replace=False)), locale=code) for _ in range(count)]
    return np.array(texts, object), np.repeat(np.arange(len(LANGUAGES)), count)


texts, labels = write_texts(entries[250:], 800)
held_out, expected = write_texts(entries[:250], 100)
print(f"{len(texts)} texts such as '{texts[3000]}'; {len(held_out)} held out")

# %% [markdown]
# ## The model
#
# A convolution reads each character with its neighbours. The queries are weights of the model, the same for each text.
# Valid lengths mask the padding.

# %%
text = keras.Input((), dtype="string", name="text")
split = layers.TextVectorization(standardize=None, split="character")
split.adapt(texts)
ids = ops.pad(split(text), [[0, 0], [0, 1]])  # a batch of empty texts would have length 0
mask = ops.expand_dims(ops.cast(ids != 0, "float32"), -1)  # so that results do not depend on the padding
characters = layers.Dropout(0.2)(layers.Embedding(split.vocabulary_size(), 32)(ids)) * mask
features = layers.Conv1D(128, 5, padding="same", activation="relu")(characters)

lengths = ops.count_nonzero(ids, axis=1)
queries = layers.Embedding(3, 128, name="queries")(0 * ops.expand_dims(lengths, 1) + ops.arange(3))
context, weights = AdditiveAttention(32)(queries, features, features, lengths, return_attention_scores=True)
hidden = layers.Dropout(0.2)(layers.Reshape((3 * 128,))(context))
scores = layers.Dense(len(LANGUAGES), activation="softmax")(hidden)

trained = keras.Model(text, scores)
rate = keras.optimizers.schedules.CosineDecay(0.004, 6 * len(texts) // 64)
trained.compile(keras.optimizers.Adam(rate), "sparse_categorical_crossentropy", metrics=["accuracy"])
trained.fit(texts, labels, batch_size=64, epochs=6, verbose=2)

# %% [markdown]
# ## One file
#
# The input is a string; the outputs are the code of the language, as a string, the scores and the attention weights.

# %%
look_up_code = layers.StringLookup(vocabulary=LANGUAGES, num_oov_indices=0, invert=True)
language = look_up_code(ops.argmax(scores, axis=-1))
model = keras.Model(text, {"language": language, "scores": scores, "weights": weights})
bundle = export_model(model, "bundle", sample_inputs=held_out[:8], overwrite=True, progress=False)
print(bundle.report.summary())

answers = bundle.run(held_out)
is_correct = answers["language"] == np.array(LANGUAGES)[expected]
accuracy = is_correct.mean()
print(f"{accuracy:.1%} of the held-out texts are correct")
accuracies = is_correct.reshape(len(LANGUAGES), -1).mean(axis=1)
print(*(f"{code} {share:.0%}" for code, share in zip(LANGUAGES, accuracies, strict=True)))

# %% [markdown]
# ## Attention weights
#
# One text of each language, with the mean weights of the three queries. The word for "and" has the largest weights; if
# two languages share this word, letters have.

# %%
COLUMNS = 45
blocks = [range(start, start + 100) for start in range(0, len(held_out), 100)]  # one for each language
examples = [next(number for number in block if len(held_out[number]) < COLUMNS) for block in blocks]
outputs = bundle.run(held_out[examples])
image = np.zeros((len(examples), COLUMNS))
image[:, : outputs["weights"].shape[2]] = np.sqrt(outputs["weights"].mean(axis=1))[:, :COLUMNS]  # sqrt: small ones too

figure = Figure(figsize=(6, 5), layout="constrained")
axis = figure.subplots()
axis.imshow(image, aspect="auto", cmap="Oranges", vmax=1.2)
for row, (number, code, share) in enumerate(
    zip(examples, outputs["language"], outputs["scores"].max(axis=1), strict=True)
):
    for column, character in enumerate(held_out[number]):
        axis.text(column, row, character, ha="center", va="center", family="monospace", fontsize=9)
    colour = "black" if code == LANGUAGES[row] else "tab:red"
    axis.text(COLUMNS, row, f"{code} {share:.0%}", va="center", color=colour, fontsize=9)
axis.set_yticks(range(len(examples)), LANGUAGES)
axis.set_xticks([])
axis.set_title("Left: the language. Right: the answer. Between them: attention weights", fontsize=10)
figure.savefig("which_language.png", dpi=100)
