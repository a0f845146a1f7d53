# %% [markdown]
"""A forecast that says where it looks: the next day of an hourly load, from the four weeks before.

The query is what the calendar knows of an hour to come, the keys are the hours that were measured, with their loads.
They differ in size, which additive attention takes as it is. The series is made here: hours of a day, days of a week
and holidays have their patterns, the level drifts, and there is noise, so that it is known how good a forecast can be.

This opens as a notebook, and runs as a script in a minute; start it in an empty folder.
"""

# %%
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before TensorFlow is imported

import keras
import numpy as np
from keras import layers
from matplotlib.figure import Figure

from keras_attn import AdditiveAttention
from keras_attn_export import export_model

keras.utils.set_random_seed(0)
PAST, NEXT = 28 * 24, 24  # hours

# %% [markdown]
# ## The series
#
# Three years of hours. A holiday falls on any day and is like a Sunday.

# %%
rng = np.random.default_rng(0)
days = 3 * 365
hour, day = np.tile(np.arange(24), days), np.repeat(np.arange(days), 24)
holiday = np.repeat(rng.random(days) < 0.04, 24)
kind = np.where(holiday | (day % 7 == 6), 2, np.where(day % 7 == 5, 1, 0))  # working day, Saturday, Sunday
peaks = np.array([[9, 19], [12, 20], [13, 21]])[kind]  # hours of a morning and an evening peak
shape = np.exp(-((hour - peaks[:, 0]) ** 2) / 12) + 1.3 * np.exp(-((hour - peaks[:, 1]) ** 2) / 8)
level = 1 + 0.2 * np.cumsum(rng.normal(size=days))[day] / np.sqrt(np.arange(1, days + 1))[day]
load = (level + np.array([1.0, 0.8, 0.6])[kind] * shape + 0.05 * rng.normal(size=len(day))).astype("float32")

angle = 2 * np.pi * hour / 24
weekday = np.eye(7)[day % 7]
calendar = np.column_stack([np.sin(angle), np.cos(angle), np.sin(2 * angle), np.cos(2 * angle), weekday, holiday])
calendar = calendar.astype("float32")


def windows(first, last):
    """Each day from `first` to `last`: its calendar, that of the weeks before with their loads, and its loads."""
    starts = 24 * np.arange(first, last)[:, None]
    future, past = starts + np.arange(NEXT), starts + np.arange(-PAST, 0)
    return {"coming": calendar[future], "calendar": calendar[past], "loads": load[past][..., None]}, load[future]


train, wanted = windows(28, 900)
test, expected = windows(900, days)
print(f"{len(wanted)} days to learn from, {len(expected)} to forecast, {int(holiday[::24].sum())} holidays")

# %% [markdown]
# ## The model
#
# Loads are counted from the mean of the weeks before, so that a drifting level is nothing new.

# %%
coming = keras.Input((None, calendar.shape[1]), name="coming")
past = keras.Input((None, calendar.shape[1]), name="calendar")
loads = keras.Input((None, 1), name="loads")

mean = keras.ops.mean(loads, axis=1, keepdims=True)
keys = layers.Concatenate(name="keys")([past, loads - mean])
pooled, weights = AdditiveAttention(32, name="attend")(coming, keys, loads, return_attention_scores=True)
forecast = layers.Reshape((-1,), name="forecast")(pooled)
model = keras.Model([coming, past, loads], {"forecast": forecast, "weights": weights})

training = keras.Model(model.input, forecast)
training.compile(keras.optimizers.Adam(keras.optimizers.schedules.CosineDecay(0.01, 10 * 28)), "mae")
training.fit(train, wanted, batch_size=32, epochs=10, verbose=2)

# %% [markdown]
# ## One file
#
# The forecast that takes the same hour of a week ago is what this one has to beat.

# %%
bundle = export_model(model, "bundle", overwrite=True, progress=False)
print(bundle.report.summary())
found = bundle.run(test)
error = np.abs(found["forecast"] - expected).mean()
naive = np.abs(test["loads"][:, -7 * 24 : -6 * 24, 0] - expected).mean()
print(f"mean absolute error {error:.3f}; of the same hour a week ago {naive:.3f}; the noise alone has 0.040")

# %% [markdown]
# ## Where it looks
#
# A working day and a Sunday: the forecast, and the weights of an hour in the evening over the hours before. For the
# working day they are on that hour of working days. For the Sunday they are not on the four Sundays alone: a mean of
# other hours of many more days gives the same load with less noise.

# %%
chosen = {"a working day": 7 * 20, "a Sunday": 7 * 20 + 2}  # days from the first that is forecast, a Friday
figure = Figure(figsize=(10, 5), layout="constrained")
for (name, number), row in zip(chosen.items(), figure.subplots(2, 2, width_ratios=[1, 2]), strict=True):
    row[0].plot(expected[number], "k.", label="measured")
    row[0].plot(found["forecast"][number], color="C3", label="forecast")
    row[0].set(title=name, xlabel="hour", ylabel="load")
    row[0].legend()
    grid = found["weights"][number, 20].reshape(28, 24)
    row[1].imshow(grid.T, cmap="Reds", aspect="auto", origin="lower")
    dates = (900 + number - 28 + np.arange(28)) % 7
    free = test["calendar"][number, ::24, -1] == 1
    labels = ["holiday" if is_free else "MTWTFSS"[date] for date, is_free in zip(dates, free, strict=True)]
    row[1].set_xticks(range(28), labels, rotation=90)
    row[1].set(title="weights for the hour from 20 to 21", ylabel="hour")
figure.savefig("forecast_load.png", dpi=80)
