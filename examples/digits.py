# %% [markdown]
"""Handwritten digits: a small vision Transformer, and the strokes that its heads attend to.

The images are the 1797 digits of 8 by 8 pixels in scikit-learn. Each pixel with its neighbours is a token. After a
block of self-attention, four heads with a learned query select the tokens that identify the digit: with sparsemax
instead of softmax, so that most weights are exactly zero.

This opens as a notebook, and runs as a script in a minute; start it in an empty folder.
"""

# %%
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before TensorFlow is imported

import keras
import numpy as np
from keras import layers, ops
from matplotlib.figure import Figure
from sklearn.datasets import load_digits

from keras_attn import DotProductAttention, MultiHeadAttention
from keras_attn_export import export_model

keras.utils.set_random_seed(0)
SIZE, WIDTH, HEADS = 8, 48, 4

# %% [markdown]
# ## The images
#
# The last quarter of the file is held out, in its order: other people wrote these digits.

# %%
digits = load_digits()
images = (digits.images[..., None] / 16).astype("float32")
train, test = slice(0, 1347), slice(1347, None)
print(f"{len(images[train])} images to train on, {len(images[test])} held out")

# %% [markdown]
# ## The model
#
# In training the images are shifted and rotated slightly, and get noise.

# %%
image = keras.Input((SIZE, SIZE, 1), name="image")
x = layers.RandomTranslation(1 / SIZE, 1 / SIZE, fill_mode="constant", interpolation="nearest")(image)
x = layers.GaussianNoise(0.1)(layers.RandomRotation(0.02, fill_mode="constant")(x))
for _ in range(2):
    x = layers.Conv2D(WIDTH, 3, padding="same", activation="relu")(x)
x = layers.Reshape((SIZE * SIZE, WIDTH))(x) + layers.Embedding(SIZE * SIZE, WIDTH, name="places")(ops.arange(SIZE**2))

normalized = layers.LayerNormalization()(x)
x = x + MultiHeadAttention(DotProductAttention(), HEADS)(normalized, normalized, normalized)
normalized = layers.LayerNormalization()(x)
x = x + layers.Dense(WIDTH)(layers.Dense(2 * WIDTH, activation="gelu")(normalized))

x = layers.LayerNormalization()(x)
query = layers.Embedding(1, WIDTH, name="query")(ops.zeros_like(x[:, :1, 0], dtype="int32"))
choose = MultiHeadAttention(DotProductAttention(normalizer="sparsemax"), HEADS, name="choose")
context, weights = choose(query, x, x, return_attention_scores=True)
probabilities = layers.Dense(10, activation="softmax", name="probabilities")(layers.Dropout(0.2)(context[:, 0]))

trained = keras.Model(image, probabilities)
EPOCHS, BATCH = 30, 32
rate = keras.optimizers.schedules.CosineDecay(0.003, EPOCHS * 1347 // BATCH)
trained.compile(keras.optimizers.Adam(rate), "sparse_categorical_crossentropy", metrics=["accuracy"])
trained.fit(images[train], digits.target[train], BATCH, EPOCHS, verbose=2)

# %% [markdown]
# ## One file
#
# The file also returns the weights of the four heads, as images.

# %%
maps = layers.Reshape((HEADS, SIZE, SIZE), name="maps")(weights)
model = keras.Model(image, {"probabilities": probabilities, "maps": maps})
bundle = export_model(model, "bundle", sample_inputs=images[test][:8], overwrite=True, progress=False)
print(bundle.report.summary())

answers = bundle.run(images[test])
predicted, expected = answers["probabilities"].argmax(axis=1), digits.target[test]
accuracy = np.mean(predicted == expected)
print(f"{accuracy:.1%} of the held-out digits are correct")

# %% [markdown]
# ## Attention of the heads
#
# One digit of each class, and two errors. Each head has a colour, and the area of a dot is its weight.

# %%
examples = [int(np.flatnonzero((expected == digit) & (predicted == digit))[0]) for digit in range(10)]
examples += np.flatnonzero(predicted != expected)[:2].tolist()
figure = Figure(figsize=(8, 3.2), layout="constrained")
for axis, number in zip(figure.subplots(2, 6).flat, examples, strict=True):
    axis.imshow(images[test][number], cmap="Greys", vmax=1.5)
    for head, head_map in enumerate(answers["maps"][number]):
        rows, columns = np.nonzero(head_map > 0.01)
        shift = 0.2 * np.array([(-1, -1), (1, -1), (-1, 1), (1, 1)])[head]  # so that dots of heads do not overlap
        axis.scatter(columns + shift[0], rows + shift[1], s=200 * head_map[rows, columns], color=f"C{head}", alpha=0.9)
    is_correct = predicted[number] == expected[number]
    title = str(predicted[number]) if is_correct else f"{predicted[number]}, is {expected[number]}"
    axis.set_title(title, color="black" if is_correct else "tab:red", fontsize=10)
    axis.set(xticks=[], yticks=[])
figure.savefig("digits.png", dpi=90)
