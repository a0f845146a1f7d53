# %% [markdown]
"""Forecast a time series by attention to similar moments of the past.

The series are generated: each repeats a random shape with a random period, plus noise. The model reads the last 160
steps, and not the period. The query is the present, the keys are moments of the past, and the value of a moment are the
40 steps after it: the forecast is a weighted mean of observed values.

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
MOMENTS = PAST - AHEAD - CONTEXT + 1  # those with CONTEXT steps before and AHEAD steps after them

# %% [markdown]
# ## The series
#
# A sum of three harmonics, with a period of 20 to 50 steps and a random phase.


# %%
def draw(count, seed):
    """Draw series: the noisy past (count, PAST), the future without noise (count, AHEAD) and the periods (count,)."""
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
# Convolutions compute features of each moment from the last 24 steps. The last moment is the query; the keys are the
# moments with 40 later steps, which are their values.

# %%
series = keras.Input((PAST,), name="past")
x = ops.expand_dims(series, -1)
for filters, size in ((32, 9), (32, 9), (32, 8)):
    x = layers.Conv1D(filters, size, activation="relu")(x)
x = layers.Dense(32)(x)
values = ops.stack([series[:, CONTEXT + step : CONTEXT + step + MOMENTS] for step in range(AHEAD)], axis=-1)
attend = AdditiveAttention(32, name="attend")
forecast, weights = attend(x[:, -1:], x[:, :MOMENTS], values, return_attention_scores=True)
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


def compute_error(forecasts):
    """Return the root of the mean squared error; a forecast of zeros has error 1."""
    return float(np.sqrt(np.mean((forecasts - expected) ** 2)))


steps = np.arange(PAST, PAST + AHEAD)
sources = [steps - period * np.ceil((steps - PAST + 1) / period) for period in periods]  # one or two periods before
repeated = [np.interp(source, np.arange(PAST), x) for source, x in zip(sources, held_out, strict=True)]
error, naive = compute_error(answers["forecast"]), compute_error(np.array(repeated))
print(f"error {error:.3f}; if the last period is repeated with the true length, {naive:.3f}")

moments = np.arange(CONTEXT - 1, CONTEXT - 1 + MOMENTS)
age = (PAST - 1 - moments) / periods[:, None]
is_integer = np.abs(age - np.round(age)) * periods[:, None] < 2  # within two steps of an integer number of periods
share = float((answers["weights"] * is_integer).sum(axis=1).mean())
print(f"{share:.0%} of the weight is on the {is_integer.mean():.0%} of moments an integer number of periods ago")

# %% [markdown]
# ## Attention weights
#
# Three series, with the weights of the moments below: the peaks are whole periods ago.

# %%
figure = Figure(figsize=(8, 5), layout="constrained")
for number, axis in enumerate(figure.subplots(3, sharex=True)):
    axis.plot(held_out[number], color="0.5", linewidth=1, label="measured")
    axis.plot(steps, expected[number], color="black", linestyle="--", label="truth")
    axis.plot(steps, answers["forecast"][number], color="tab:red", label="forecast")
    weights_axis = axis.twinx()
    weights_axis.bar(moments, answers["weights"][number], width=1, color="tab:blue", label="weights")
    weights_axis.set(yticks=[], ylim=(0, 4 * answers["weights"][number].max()))
    axis.set(yticks=[], ylim=(-4, 3))
axis.set_xlabel("steps")
figure.legend(handles=[*axis.lines, weights_axis.containers[0]], loc="outside upper center", ncols=4)
figure.savefig("forecast.png", dpi=80)
