# %% [markdown]
"""Forecasts a time series by attention: what came after the moments of the past that were like now?

The series are generated: each repeats a shape of its own with a period of its own, and has noise on it. The model gets
the last 160 steps, and is not told the period. The query is the present, the keys are moments of the past, and the
value of a moment is the 40 steps that came after it: the forecast is a weighted mean of what was seen.

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
PAST, AHEAD, CONTEXT, NOISE = 160, 40, 24, 0.15
MOMENTS = PAST - AHEAD - CONTEXT + 1  # with CONTEXT steps up to them, and AHEAD after them

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
held_out, expected, periods = draw(1000, seed=1)

# %% [markdown]
# ## The model
#
# Convolutions describe each moment by the 24 steps up to it. The last moment is the present; it is compared with those
# that have 40 steps after them, which are their values.

# %%
series = keras.Input((PAST,), name="past")
x = ops.expand_dims(series, -1)
for filters, size in ((32, 9), (32, 9), (32, 8)):
    x = layers.Conv1D(filters, size, activation="relu")(x)
x = layers.Dense(32)(x)
after = ops.stack([series[:, CONTEXT + step : CONTEXT + step + MOMENTS] for step in range(AHEAD)], axis=-1)
attend = AdditiveAttention(32, name="attend")
forecast, weights = attend(x[:, -1:], x[:, :MOMENTS], after, return_attention_scores=True)
forecast, weights = forecast[:, 0], weights[:, 0]

trained = keras.Model(series, forecast)
EPOCHS, BATCH = 6, 64
rate = keras.optimizers.schedules.CosineDecay(0.003, EPOCHS * len(past) // BATCH)
trained.compile(keras.optimizers.Adam(rate), "mse")
trained.fit(past, future, BATCH, EPOCHS, verbose=2)

# %% [markdown]
# ## One file

# %%
model = keras.Model(series, {"forecast": forecast, "weights": weights})
bundle = export_model(model, "bundle", sample_inputs=past[:8], overwrite=True, progress=False)
print(bundle.report.summary())
answers = bundle.run(held_out)


def error_of(forecasts):
    """The root of the mean squared error; of forecasts that are all 0 it is 1."""
    return float(np.sqrt(np.mean((forecasts - expected) ** 2)))


steps = np.arange(PAST, PAST + AHEAD)
sources = [steps - period * np.ceil((steps - PAST + 1) / period) for period in periods]  # one or two periods before
repeated = [np.interp(source, np.arange(PAST), x) for source, x in zip(sources, held_out, strict=True)]
error, naive = error_of(answers["forecast"]), error_of(np.array(repeated))
print(f"error {error:.3f}; of repeating the last period, if it were known, {naive:.3f}")

moments = np.arange(CONTEXT - 1, CONTEXT - 1 + MOMENTS)
ago = (PAST - 1 - moments) / periods[:, None]
is_whole = np.abs(ago - np.round(ago)) * periods[:, None] < 2  # within two steps of a whole number of periods
on_whole = float((answers["weights"] * is_whole).sum(axis=1).mean())
print(f"{on_whole:.0%} of the weight is on moments whole periods ago, which {is_whole.mean():.0%} of the moments are")

# %% [markdown]
# ## What it looks at
#
# Three series, and below each the weights of the moments: it found the period.

# %%
figure = Figure(figsize=(8, 5), layout="constrained")
for number, axis in enumerate(figure.subplots(3, sharex=True)):
    axis.plot(held_out[number], color="0.5", linewidth=1, label="measured")
    axis.plot(steps, expected[number], color="black", linestyle="--", label="truth")
    axis.plot(steps, answers["forecast"][number], color="tab:red", label="forecast")
    below = axis.twinx()
    below.bar(moments, answers["weights"][number], width=1, color="tab:blue", label="weights")
    below.set(yticks=[], ylim=(0, 4 * answers["weights"][number].max()))
    axis.set(yticks=[], ylim=(-4, 3))
axis.set_xlabel("steps")
figure.legend(handles=[*axis.lines, below.containers[0]], loc="outside upper center", ncols=4)
figure.savefig("forecast.png", dpi=80)
