"""Every body of every lowering gives what the contract says, for every kind of mask, and reads nothing it must not."""

from dataclasses import replace

import numpy as np
import pytest
from lowered_calls import PLANS, Plan, expected, poisoned, session, taking_part
from tolerances import assert_close, assert_identical

from keras_attn_export._lowerings import additive, bodies, ragged
from keras_attn_export._options import FUSED_OPSET, LOWERINGS

LOWERED = [
    pytest.param(plan, lowering, opset, id=f"{lowering}{opset}-{plan}")
    for lowering, opset in (("ragged", 18), ("ragged", 24), ("fused", FUSED_OPSET))
    for plan in PLANS
    if bodies.lowering_of(plan.call(), lowering) == lowering
]


@pytest.mark.parametrize(("plan", "lowering", "opset"), LOWERED)
def test_numbers(plan, lowering, opset, capfd):
    run = session(plan, lowering, opset).run
    for number, (Tq, Tk) in enumerate([(3, 5), (1, 1), (1, 9), (8, 2), (3, 3)]):
        inputs = plan.inputs(Tq, Tk, seed=number)
        outputs = run(None, inputs)
        for actual, exact in zip(outputs, expected(plan, inputs), strict=True):
            assert_close(actual, exact, "float32")
        for actual, clean in zip(run(None, poisoned(plan, inputs)), outputs, strict=True):
            assert_identical(actual, clean)
        nothing = ~taking_part(plan, inputs).any(-1)
        assert all(np.all(output[nothing] == 0) for output in outputs)
    assert capfd.readouterr() == ("", ""), "onnxruntime has something to say of the graph"


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(additive, "FEATURES", 100)
    monkeypatch.setattr(ragged, "SCORES", 12)


@pytest.mark.parametrize("plan", [plan for plan in PLANS if len(plan.leading) == 1], ids=str)
@pytest.mark.parametrize(("Tq", "Tk"), [(1, 3), (7, 5), (4, 60), (50, 3)])
def test_blocks_of_queries(plan, Tq, Tk, small_blocks):
    inputs = plan.inputs(Tq, Tk)
    for actual, exact in zip(session(plan, "ragged", 18).run(None, inputs), expected(plan, inputs), strict=True):
        assert_close(actual, exact, "float32")


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 6])
def test_units_that_do_not_fill_their_group(size):
    plan = Plan("additive", lengths=True, weights=True, size=size)
    inputs = plan.inputs(4, 5)
    for actual, exact in zip(session(plan, "ragged", 18).run(None, inputs), expected(plan, inputs), strict=True):
        assert_close(actual, exact, "float32")


@pytest.mark.parametrize("largest", [0.1, 3.0, additive.REACH / 2, additive.REACH, additive.FARTHEST, 30.0, 1e4, 1e30])
@pytest.mark.parametrize("sign", [1, -1])
def test_additive_scores_on_both_sides_of_the_guard(largest, sign):
    plan = Plan("additive", leading=(2,), weights=True, size=5)
    inputs = plan.inputs(6, 7)
    for name, factor in (("queries", sign), ("keys", 1)):
        inputs[name] *= np.float32(factor * 0.999 * largest / np.abs(inputs[name]).max())
    for actual, exact in zip(session(plan, "ragged", 18).run(None, inputs), expected(plan, inputs), strict=True):
        assert_close(actual, exact, "float32")


def test_terms_that_underflow():
    plan = Plan("additive", leading=(1,), weights=True, size=3)
    inputs = plan.inputs(2, 3)
    farthest = np.float32(additive.FARTHEST) * np.float32(0.999)
    inputs["queries"][:] = np.array([-60, -farthest - 1, -20], "float32")
    inputs["keys"][:] = np.array([farthest, farthest, farthest - 3], "float32")
    inputs["keys"][0, 1] = [-90, 0, 5]
    for actual, exact in zip(session(plan, "ragged", 18).run(None, inputs), expected(plan, inputs), strict=True):
        assert_close(actual, exact, "float32")


@pytest.mark.parametrize("name", ["queries", "keys"])
@pytest.mark.parametrize("lowest", [-3e38, -np.inf])
def test_a_unit_as_low_as_can_be(name, lowest):
    plan = Plan("additive", leading=(2,), weights=True, size=5)
    inputs = plan.inputs(4, 6)
    inputs[name][0, 1, 2] = lowest
    for actual, exact in zip(session(plan, "ragged", 18).run(None, inputs), expected(plan, inputs), strict=True):
        assert_close(actual, exact, "float32")


@pytest.mark.parametrize("size", [64, 256])
@pytest.mark.parametrize(("weight", "largest"), [(0.3, 0.1), (1.0, 0.01), (10.0, 1e-3), (900.0, 1e-4), (1e30, 1e-32)])
def test_weights_of_one_sign_and_small_projections(size, weight, largest):
    plan = Plan("additive", leading=(2,), weights=True, size=size)
    inputs = plan.inputs(4, 5)
    inputs["w_v"] = np.random.default_rng(1).uniform(0.5 * weight, weight, (size, 1)).astype("float32")
    for name in ("queries", "keys"):
        inputs[name] *= np.float32(largest / np.abs(inputs[name]).max())
    for actual, exact in zip(session(plan, "ragged", 18).run(None, inputs), expected(plan, inputs), strict=True):
        assert_close(actual, exact, "float32")


@pytest.mark.parametrize("total", [0.99, 1.01, 1e38])
@pytest.mark.parametrize("reach", [0.99, 1.01, 1.1])
def test_no_overflow_where_all_is_largest(total, reach):
    plan = Plan("additive", leading=(1,), weights=True, size=3)
    inputs = plan.inputs(2, 3)
    inputs["queries"][:] = inputs["keys"][:] = np.float32(reach * additive.REACH / 2)
    inputs["keys"][0, 1] = 0
    inputs["w_v"] = np.full((3, 1), min(total * additive.HEAVIEST, 1e38) / 3, "float32")
    for actual, exact in zip(session(plan, "ragged", 18).run(None, inputs), expected(plan, inputs), strict=True):
        assert_close(actual, exact, "float32", tolerance=1e-4)  # onnxruntime's tanh itself is 4e-5 off here


def test_sums_beyond_reach():
    """Queries and keys that are near enough, and sums of them of which three units make exp(120)."""
    plan = Plan("additive", leading=(1,), weights=True, size=3)
    inputs = plan.inputs(2, 3)
    inputs["queries"][:] = inputs["keys"][:] = 10.0
    for actual, exact in zip(session(plan, "ragged", 18).run(None, inputs), expected(plan, inputs), strict=True):
        assert_close(actual, exact, "float32", tolerance=1e-4)


@pytest.mark.parametrize("swapped", [False, True])
def test_large_terms_that_cancel(swapped):
    plan = Plan("additive", leading=(1,), weights=True, size=3)
    inputs = plan.inputs(2, 3)
    inputs["queries"][:], inputs["keys"][:] = (70, -65) if swapped else (-65, 70)
    inputs["keys"][0, 1] -= 5
    inputs["keys"][0, 2] -= 7
    for actual, exact in zip(session(plan, "ragged", 18).run(None, inputs), expected(plan, inputs), strict=True):
        assert_close(actual, exact, "float32")


@pytest.mark.parametrize("lowering", ["fused", "ragged"])
def test_lengths_and_a_mask_that_share_no_key(lowering):
    plan = Plan("dot_product", lengths=True, mask="pairs", weights=True)
    inputs = plan.inputs(3, 8)
    inputs["valid_lens"][:] = 3
    inputs["mask"][:] = np.arange(8) >= 5
    inputs["mask"][0, 0, 1] = True
    output, weights = session(plan, lowering, bodies.lowest_opset(lowering)).run(None, inputs)
    for actual, exact in zip((output, weights), expected(plan, inputs), strict=True):
        assert_close(actual, exact, "float32")
    assert not output[1:].any()
    assert not weights[1:].any()


def test_one_example_out_of_range_leaves_the_others_as_they_are():
    plan = Plan("additive", leading=(3,))
    inputs = plan.inputs(3, 4)
    run = session(plan, "ragged", 18).run
    (before,) = run(None, inputs)
    inputs["keys"][1] *= 1e3
    (after,) = run(None, inputs)
    assert_identical(after[[0, 2]], before[[0, 2]])
    assert_close(after, expected(plan, inputs)[0], "float32")


def test_nan_in_one_query_stays_there():
    plan = Plan("additive", leading=(2,), lengths=False)
    inputs = plan.inputs(3, 4)
    run = session(plan, "ragged", 18).run
    (before,) = run(None, inputs)
    inputs["queries"][0, 1] = np.nan
    (after,) = run(None, inputs)
    assert np.isnan(after[0, 1]).all()
    assert_identical(np.delete(after.reshape(6, 6), 1, axis=0), np.delete(before.reshape(6, 6), 1, axis=0))


@pytest.mark.parametrize("scale", [0.0, 1e-50, -1e-50, -1.0, 2.0])
def test_scales_that_an_operator_does_not_take_are_left_to_plain_primitives(scale):
    call = replace(Plan("dot_product").call(), options={"scale": scale})
    assert (bodies.lowering_of(call, "fused") == "fused") == (scale == 2.0)
    assert (bodies.lowering_of(call, "ragged") == "ragged") == (abs(scale) >= 1)


def test_every_lowering_is_offered():
    assert set(bodies.BODIES) | {"portable", "auto"} == set(LOWERINGS)
    assert bodies.candidates(Plan("additive").call()) == ["ragged"]
    assert bodies.candidates(Plan("dot_product").call()) == ["fused", "ragged"]
