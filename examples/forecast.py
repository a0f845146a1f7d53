# %% [markdown]
"""Forecasts a time series by attention: what came after the moments of the past that were like now?

Each series has a rhythm and a shape of its own, drawn at random, with noise on it. The model is given its last 160
steps and no period. The query is the present, the keys are moments of the past, and the value of a moment is what came
after it: the forecast is a weighted mean of 40 steps that were seen. As the structure is known, so is the best
forecast that there can be.

This opens as a notebook, and runs as a script in a minute; start it in an empty folder.
"""

# %%
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before TensorFlow is imported

import keras
import numpy as np
from keras import layers, ops
from matplotlib.figure import Figure

from keras_attn import AdditiveAttention
from keras_attn_export import export_model

keras.utils.set_random_seed(0)
PAST, AHEAD, NOISE = 160, 40, 0.15

# %% [markdown]
# ## The series
#
# A sum of three harmonics, with a period of 20 to 50 steps, that begins anywhere in it.


# %%
def draw(count, seed):
    """What was measured (count, PAST), what comes then, without noise (count, AHEAD), and the periods."""
    rng = np.random.default_rng(seed)
    periods, phases = rng.uniform(20, 50, (count, 1)), rng.uniform(0, 1, (count, 1))
    turns = np.arange(PAST + AHEAD) / periods + phases
    shape = rng.normal(size=(2, count, 3)) / np.arange(1, 4)
    angles = 2 * np.pi * turns[:, :, None] * np.arange(1, 4)
    series = np.einsum("nth,nh->nt", np.sin(angles), shape[0]) + np.einsum("nth,nh->nt", np.cos(angles), shape[1])
    series = series / series.std(axis=1, keepdims=True)
    noisy = series + NOISE * rng.normal(size=series.shape)
    return noisy[:, :PAST].astype("float32"), series[:, PAST:].astype("float32"), periods[:, 0]


past, future, _ = draw(20_000, seed=0)

# %% [markdown]
# ## The model
#
# Convolutions describe each moment by the 24 steps up to it. The last is the present; the others that have AHEAD steps
# after them are what it is compared with.

# %%
series = keras.Input((PAST,), name="past")
x = ops.expand_dims(series, -1)
for filters, size in ((32, 9), (32, 9), (32, 8)):
    x = layers.Conv1D(filters, size, activation="relu")(x)
x = layers.Dense(32)(x)
MOMENTS = x.shape[1] - AHEAD
FIRST = PAST - AHEAD - MOMENTS  # steps that the first moment is described by
after = ops.stack([series[:, FIRST + step : FIRST + step + MOMENTS] for step in range(AHEAD)], axis=-1)
attend = AdditiveAttention(32, name="attend")
forecast, weights = attend(x[:, -1:], x[:, :MOMENTS], after, return_attention_scores=True)
forecast, weights = forecast[:, 0], weights[:, 0]

trained = keras.Model(series, forecast)
EPOCHS, BATCH = 8, 64
rate = keras.optimizers.schedules.CosineDecay(0.003, EPOCHS * len(past) // BATCH)
trained.compile(keras.optimizers.Adam(rate), "mse")
trained.fit(past, future, BATCH, EPOCHS, verbose=2)

# %% [markdown]
# ## One file

# %%
model = keras.Model(series, {"forecast": forecast, "weights": weights})
bundle = export_model(model, "bundle", sample_inputs=past[:8], overwrite=True, progress=False)
print(bundle.report.summary())

held_out, expected, periods = draw(1000, seed=1)
answers = bundle.run(held_out)


def error(forecasts):
    """The root of the mean squared error; that of saying 0 each time is 1."""
    return float(np.sqrt(np.mean((forecasts - expected) ** 2)))

print(error(answers["forecast"]))
