# %% [markdown]
"""Classification of a table with strings and numbers: one ONNX file predicts the species of penguins.

Islands and sexes are words, the measures are numbers, and some are missing. `keras.utils.FeatureSpace` converts both to
features. The ONNX file contains the lookups, the normalization and the model, and returns the name of the species.
`serve_bundle.py` serves the file. This opens as a notebook, and runs as a script; start it in an empty folder.

Source of the table: Gorman, Williams and Fraser 2014, https://doi.org/10.1371/journal.pone.0090081, from the package
`palmerpenguins`.
"""

# %%
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before TensorFlow is imported

import keras
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import tensorflow as tf
from keras.utils import FeatureSpace
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from palmerpenguins import load_penguins

from keras_attn_export import export_model, predict

keras.utils.set_random_seed(0)
MEASURES = ["bill_length_mm", "bill_depth_mm", "flipper_length_mm", "body_mass_g"]

# %% [markdown]
# ## The table
#
# Penguins without measures are dropped; a missing sex becomes an empty string. Inputs of `FeatureSpace` have shape
# (B, 1).

# %%
penguins = load_penguins().dropna(subset=MEASURES).sample(frac=1.0, random_state=0)
table = {name: penguins[[name]].to_numpy("float32") for name in MEASURES}
table |= {name: penguins[[name]].fillna("").to_numpy(object) for name in ("island", "sex")}
species, labels = np.unique(penguins["species"].to_numpy(str), return_inverse=True)
train, test = slice(0, 240), slice(240, None)
print(f"{len(labels)} penguins, {(table['sex'] == '').sum()} of unknown sex, of {', '.join(species)}")


def select_rows(part):
    """Return the rows of a slice, by column, (B, 1) each."""
    return {name: table[name][part] for name in sorted(table)}


# %% [markdown]
# ## The model
#
# The vocabularies and the means of the measures come from the training rows.

# %%
words = {name: FeatureSpace.string_categorical(output_mode="one_hot") for name in ("island", "sex")}
features = FeatureSpace(words | {name: FeatureSpace.float_normalized() for name in MEASURES}, output_mode="concat")
features.adapt(tf.data.Dataset.from_tensor_slices(select_rows(train)).batch(32))

hidden = keras.layers.Dense(16, activation="relu")(features.get_encoded_features())
scores = keras.layers.Dense(len(species), activation="softmax", name="probabilities")(hidden)
look_up_species = keras.layers.StringLookup(vocabulary=list(species), num_oov_indices=0, invert=True, name="species")
inputs = dict(features.get_inputs())

trained = keras.Model(inputs, scores)
trained.compile(keras.optimizers.Adam(0.01), "sparse_categorical_crossentropy")
data = tf.data.Dataset.from_tensor_slices((select_rows(train), labels[train])).shuffle(240, seed=0).batch(32)
trained.fit(data, epochs=20, shuffle=False, verbose=0)

model = keras.Model(inputs, {"probabilities": scores, "species": look_up_species(keras.ops.argmax(scores, axis=-1))})

# %% [markdown]
# ## One file
#
# The file accepts raw rows. The parity check with Keras includes words that are in no vocabulary.

# %%
bundle = export_model(model, "bundle", overwrite=True, progress=False)
print(bundle.report.summary())
predictions = bundle.run(select_rows(test))
accuracy = np.mean(predictions["species"] == species[labels[test]])
print(f"{accuracy:.1%} of the held-out penguins are correct")

# %% [markdown]
# ## Decision regions
#
# The colours are the answers for bills of all sizes, with the median of the other measures. The points are the held-out
# penguins; a ring marks a wrong prediction from all inputs.

# %%
length, depth = np.meshgrid(np.linspace(32, 60, 150, dtype="float32"), np.linspace(13, 22, 100, dtype="float32"))
grid = {name: np.full((length.size, 1), np.median(table[name]), "float32") for name in MEASURES}
grid |= {"bill_length_mm": length.reshape(-1, 1), "bill_depth_mm": depth.reshape(-1, 1)}
grid |= {name: np.full((length.size, 1), word, object) for name, word in (("island", "Biscoe"), ("sex", ""))}
colours = np.array([to_rgb(colour) for colour in ("tab:orange", "tab:purple", "tab:cyan")])
shades = 1 - bundle.run(grid)["probabilities"] @ (1 - colours) / 2

figure = Figure(figsize=(6, 4), layout="constrained")
axis = figure.subplots()
axis.imshow(shades.reshape(*length.shape, 3), origin="lower", extent=(32, 60, 13, 22), aspect="auto")
x, y = (table[name][test, 0] for name in ("bill_length_mm", "bill_depth_mm"))
for name, colour in zip(species, colours, strict=True):
    is_species = species[labels[test]] == name
    axis.scatter(x[is_species], y[is_species], s=22, color=colour, edgecolor="white", linewidth=0.5, label=name)
is_wrong = predictions["species"] != species[labels[test]]
axis.scatter(x[is_wrong], y[is_wrong], s=110, facecolor="none", edgecolor="black", label="wrong")
axis.set(xlabel="length of the bill, mm", ylabel="depth of the bill, mm")
axis.legend(fontsize=8)
figure.savefig("penguins.png", dpi=90)

# %% [markdown]
# ## A table in Parquet
#
# Each input is a column; other columns are copied to the output.

# %%
columns = {name: column[:, 0].tolist() for name, column in select_rows(test).items()}
pq.write_table(pa.table({"known": species[labels[test]].tolist(), **columns}), "penguins.parquet")
run = predict(bundle, "penguins.parquet", "predictions", progress=False)
output = pq.read_table("predictions/penguins.parquet")
print(f"{run.rows} rows, {run.errors} errors; columns {', '.join(output.column_names)}")
assert output["species"].to_pylist() == predictions["species"].tolist()
