"""Properties of every public layer over drawn sizes and masks. Float64, so that rounding hides nothing."""

import numpy as np
from backends import COMPILES_EACH_SIZE, precision_of, x64
from contract_cases import every_case, outputs
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tolerances import assert_close

pytestmark = x64
bounded = settings(
    max_examples=2 if COMPILES_EACH_SIZE else 15,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],  # the cases are small as drawn, and shrinking a failure takes half a minute
    suppress_health_check=[HealthCheck.function_scoped_fixture],  # only the seed is per function
)

SIZES = st.fixed_dictionaries(
    {
        "leading": st.sampled_from([(1,), (2,), (3,), (2, 2)]),
        "Tq": st.integers(1, 4),
        "Tk": st.integers(1, 5),
        "Dv": st.integers(1, 3),
    }
)
ROUNDING = None if precision_of("float64") == "float64" else 1e-5  # in place of the tolerance of float64


@every_case
@bounded
@given(sizes=SIZES, seed=st.integers(0, 2**32 - 1), data=st.data())
def test_masking_a_key_equals_deleting_it_and_order_of_keys_is_irrelevant(case, sizes, seed, data):
    inputs = {name: array.astype("float64") for name, array in case.inputs(seed, **sizes).items()}
    layer, rng = case.layer(inputs, dtype="float64"), np.random.default_rng(seed)
    mask = rng.random((*sizes["leading"], sizes["Tq"], sizes["Tk"])) < rng.random()
    j = data.draw(st.integers(0, sizes["Tk"] - 1), label="key")
    keys_mask = np.broadcast_to(np.arange(sizes["Tk"]) != j, (*sizes["leading"], sizes["Tk"]))
    masked, weights = outputs(layer, inputs, {"attention_mask": mask, "keys_mask": keys_mask})
    less = inputs | {name: np.delete(inputs[name], j, axis=-2) for name in ("keys", "values")}
    deleted, weights_left = outputs(layer, less, {"attention_mask": np.delete(mask, j, axis=-1)})
    assert_close(masked, deleted, tolerance=ROUNDING)
    assert_close(np.delete(weights, j, axis=-1), weights_left, tolerance=ROUNDING)
    assert np.all(weights[..., j] == 0)
    assert np.all(weights[~mask] == 0)
    assert np.all(weights >= 0)
    assert_close(weights.sum(-1), (mask & keys_mask[..., None, :]).any(-1).astype("float64"), tolerance=ROUNDING)
    order = rng.permutation(sizes["Tk"])
    output, weights = outputs(layer, inputs, {"attention_mask": mask})
    shuffled = inputs | {name: inputs[name][..., order, :] for name in ("keys", "values")}
    output_shuffled, weights_shuffled = outputs(layer, shuffled, {"attention_mask": mask[..., order]})
    assert_close(output_shuffled, output, tolerance=ROUNDING)
    assert_close(weights_shuffled, weights[..., order], tolerance=ROUNDING)
