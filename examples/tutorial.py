# %% [markdown]
"""From `keras.Input` to onnxruntime: the code of [the tutorial](../docs/tutorial.md), which explains it.

It opens as a notebook, in Jupyter with jupytext and in VS Code, and runs as a script. Start it in an empty folder: it
writes `weights.png`, `receipts.keras` and `bundle/` to where it is started.

## The task

Someone asks what an item on a receipt cost. The model has to find the line and say the price.
"""

# %%
# ruff: noqa: E402 - each import stands where the tutorial needs it first
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before TensorFlow is imported, or it has no effect

# %%
import numpy as np

ITEMS = ["apples", "bread", "cheese", "dates", "eggs"]
ITEMS += ["flour", "grapes", "honey", "ice", "jam"]


def write_receipts(count, seed):
    """Return receipts of 2 to 8 lines with a query item, and its prices."""
    rng = np.random.default_rng(seed)
    items = np.argsort(rng.random((count, len(ITEMS))), axis=1)[:, :8].astype("int32")
    prices = rng.uniform(1, 9, (count, 8, 1)).round(2).astype("float32")
    valid_lens = rng.integers(2, 9, count).astype("int32")
    rows, line = np.arange(count), rng.integers(0, valid_lens)
    query_item = items[rows, line][:, None]
    receipts = {"query_item": query_item, "items": items, "prices": prices}
    return {**receipts, "valid_lens": valid_lens}, prices[rows, line][:, None]


receipts, targets = write_receipts(20_000, seed=0)
print({name: array.shape for name, array in receipts.items()})

# %% [markdown]
# ## The model
#
# The query is the item that is asked for, the keys are the items on the receipt, the values are the prices.

# %%
import keras

from keras_attn import AdditiveAttention

keras.utils.set_random_seed(0)
query_item = keras.Input((1,), dtype="int32", name="query_item")
items = keras.Input((None,), dtype="int32", name="items")
prices = keras.Input((None, 1), name="prices")
valid_lens = keras.Input((), dtype="int32", name="valid_lens")

embed = keras.layers.Embedding(len(ITEMS), 16, name="embed")
attend = AdditiveAttention(num_hiddens=64, name="attend")
query, keys = embed(query_item), embed(items)
price, weights = attend(query, keys, prices, valid_lens, return_attention_scores=True)
inputs = [query_item, items, prices, valid_lens]
model = keras.Model(inputs, price)

model.compile(keras.optimizers.Adam(0.01), "mae")
history = model.fit(receipts, targets, batch_size=256, epochs=4, verbose=0)
print([f"{loss:.4f}" for loss in history.history["loss"]])

# %% [markdown]
# On receipts that the model has not seen:

# %%
new_receipts, new_targets = write_receipts(1000, seed=1)
error = np.abs(model.predict(new_receipts, verbose=0) - new_targets)
print(f"{np.mean(error < 0.005):.1%} of the prices are right to the cent")

# %% [markdown]
# ## Look at the weights
#
# Nearly all weight is on the line that was asked for. Behind the last line the weights are zero.

# %%
from keras_attn import show_heatmaps

reader = keras.Model(inputs, {"price": price, "weights": weights})
samples = {name: array[:12] for name, array in new_receipts.items()}
answer = reader.predict(samples, verbose=0)
for n in range(3):
    lines = samples["valid_lens"][n]
    names = [ITEMS[item] for item in samples["items"][n, :lines]]
    print(ITEMS[samples["query_item"][n, 0]], "among", names, answer["weights"][n, 0].round(3))

grid = answer["weights"][None, None, :, 0]
figure = show_heatmaps(grid, xlabel="Lines", ylabel="Receipts", figsize=(4, 3.6))
figure.savefig("weights.png")

# %% [markdown]
# ## What masking promises
#
# What a length hides has no say, whatever it holds.

# %%
poisoned = {name: array.copy() for name, array in samples.items()}
for n, lines in enumerate(samples["valid_lens"]):
    poisoned["prices"][n, lines:] = np.nan
    poisoned["items"][n, lines:] = samples["query_item"][n]  # a key equal to the query
print(np.array_equal(reader.predict(poisoned, verbose=0)["price"], answer["price"]))

# %% [markdown]
# A receipt without any line has weights of zero, and a price of zero.

# %%
empty = {**samples, "valid_lens": np.zeros(12, "int32")}
print(reader.predict(empty, verbose=0)["price"].ravel())

# %% [markdown]
# ## Save it

# %%
reader.save("receipts.keras")
loaded = keras.saving.load_model("receipts.keras")
print(np.array_equal(loaded.predict(samples, verbose=0)["price"], answer["price"]))

# %% [markdown]
# ## Export it
#
# The folder that this writes holds the model, and the check that it gives Keras's numbers.

# %%
from keras_attn_export import export_model

bundle = export_model(reader, "bundle", overwrite=True)
print(bundle.report.summary())

# %%
from pathlib import Path

print(*sorted(path.name for path in Path("bundle").glob("*")), sep="\n")

# %% [markdown]
# ## Run it without TensorFlow
#
# Check the folder with `keras-attn verify bundle`, or without this package with `python bundle/verify.py`. Then run it.
# This cell is a program of its own, for a machine with numpy and onnxruntime.

# %%
import numpy as np
import onnxruntime

providers = ["CPUExecutionProvider"]
session = onnxruntime.InferenceSession("bundle/model.onnx", providers=providers)
receipt = {
    "query_item": np.array([[1]], "int32"),  # bread
    "items": np.array([[4, 1, 7]], "int32"),  # eggs, bread, honey
    "prices": np.array([[[2.99], [4.25], [6.50]]], "float32"),
    "valid_lens": np.array([3], "int32"),
}
price, weights = session.run(["price", "weights"], receipt)
print(price.round(2), weights.round(3))
