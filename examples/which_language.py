# %% [markdown]
"""Which language is a text in? A file takes strings, names the language, and shows which characters gave it away.

The texts are lists such as "Frankreich, Ungarisch und Yen": names of countries, languages and currencies in twenty
languages, and how each joins three of them, as the package `babel` has them from Unicode's CLDR. The model splits a
text into characters; three learned queries look for what tells languages apart, by additive attention.

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
# 250 countries, languages and currencies are held out: the training has none of their names, in any language.

# %%
rng = np.random.default_rng(0)
things = [(kind, key) for kind in KINDS for key in sorted(getattr(Locale("en"), kind))]
things = [things[number] for number in rng.permutation(len(things))]


def write_texts(things, count):
    """As many texts in each language, and the numbers of their languages."""
    texts = []
    for code in LANGUAGES:
        names = [getattr(Locale(code), kind).get(key) for kind, key in things]
        names = [name for name in names if name]  # not every language has a name for each
        texts += [format_list(list(rng.choice(names, 3, replace=False)), locale=code) for _ in range(count)]
    return np.array(texts, object), np.repeat(np.arange(len(LANGUAGES)), count)


texts, labels = write_texts(things[250:], 800)
held_out, expected = write_texts(things[:250], 100)
print(f"{len(texts)} texts such as '{texts[3000]}'; {len(held_out)} held out")

# %% [markdown]
# ## The model
#
# A convolution reads each character with its neighbours. The queries are weights of the model, the same for each text.
# What pads a text is hidden from them by its length.

# %%
text = keras.Input((), dtype="string", name="text")
split = layers.TextVectorization(standardize=None, split="character")
split.adapt(texts)
ids = ops.pad(split(text), [[0, 0], [0, 1]])  # a batch of empty texts alone would leave the convolution nothing
is_there = ops.expand_dims(ops.cast(ids != 0, "float32"), -1)  # or a text would be read otherwise beside a longer one
characters = layers.Dropout(0.2)(layers.Embedding(split.vocabulary_size(), 32)(ids)) * is_there
read = layers.Conv1D(128, 5, padding="same", activation="relu")(characters)

lengths = ops.count_nonzero(ids, axis=1)
queries = layers.Embedding(3, 128, name="queries")(0 * ops.expand_dims(lengths, 1) + ops.arange(3))
found, weights = AdditiveAttention(32)(queries, read, read, lengths, return_attention_scores=True)
hidden = layers.Dropout(0.2)(layers.Reshape((3 * 128,))(found))
scores = layers.Dense(len(LANGUAGES), activation="softmax")(hidden)

trained = keras.Model(text, scores)
rate = keras.optimizers.schedules.CosineDecay(0.004, 6 * len(texts) // 64)
trained.compile(keras.optimizers.Adam(rate), "sparse_categorical_crossentropy", metrics=["accuracy"])
trained.fit(texts, labels, batch_size=64, epochs=6, verbose=2)

# %% [markdown]
# ## One file
#
# Strings go in, the code of the language comes out as a string, and beside it how the weights lay.

# %%
code_of = layers.StringLookup(vocabulary=LANGUAGES, num_oov_indices=0, invert=True)
language = code_of(ops.argmax(scores, axis=-1))
model = keras.Model(text, {"language": language, "scores": scores, "weights": weights})
bundle = export_model(model, "bundle", sample_inputs=held_out[:8], overwrite=True, progress=False)
print(bundle.report.summary())

answers = bundle.run(held_out)
is_right = answers["language"] == np.array(LANGUAGES)[expected]
accuracy = is_right.mean()
print(f"{accuracy:.1%} of the held-out texts are given the right language")
by_language = is_right.reshape(len(LANGUAGES), -1).mean(axis=1)
print(*(f"{code} {share:.0%}" for code, share in zip(LANGUAGES, by_language, strict=True)))

# %% [markdown]
# ## What it looks at
#
# One text of each language, and the mean of the three queries' weights: the word for "and" tells most, and where two
# languages share it, letters do.

# %%
COLUMNS = 45
shown = [next(n for n in range(100 * k, 100 * k + 100) if len(held_out[n]) < COLUMNS) for k in range(len(LANGUAGES))]
few = bundle.run(held_out[shown])
image = np.zeros((len(shown), COLUMNS))
image[:, : few["weights"].shape[2]] = np.sqrt(few["weights"].mean(axis=1))[:, :COLUMNS]  # so that small ones are seen

figure = Figure(figsize=(6, 5), layout="constrained")
axis = figure.subplots()
axis.imshow(image, aspect="auto", cmap="Oranges", vmax=1.2)
for row, (number, code, share) in enumerate(zip(shown, few["language"], few["scores"].max(axis=1), strict=True)):
    for column, character in enumerate(held_out[number]):
        axis.text(column, row, character, ha="center", va="center", family="monospace", fontsize=9)
    colour = "black" if code == LANGUAGES[row] else "tab:red"
    axis.text(COLUMNS, row, f"{code} {share:.0%}", va="center", color=colour, fontsize=9)
axis.set_yticks(range(len(shown)), LANGUAGES)
axis.set_xticks([])
axis.set_title("Left: the language. Right: the answer. Between them: what it looks at", fontsize=10)
figure.savefig("which_language.png", dpi=100)
