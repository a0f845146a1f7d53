"""Lowered function bodies: outputs equal the reference under every mask and ignore masked values."""

import math
from dataclasses import replace

import numpy as np
import pytest
from lowered_calls import (
    PLANS,
    SCALE,
    Plan,
    assert_contract,
    assert_parity,
    fill_unused_entries,
    find_allowed_pairs,
    move_heads_after_queries,
    open_session,
)
from tolerances import TOLERANCES, assert_close, assert_identical

from keras_attn_export._lowering_names import ADAPTIVE_GPU, PORTABLE_IN_BLOCKS, requested_lowering
from keras_attn_export._lowerings import lowering_choice
from keras_attn_export._lowerings.forms import adaptive, adaptive_gpu, portable_additive, ragged
from keras_attn_export._lowerings.lowered_model import LoweredModel
from keras_attn_export._onnxruntime_releases import FUSED_OPSET, installed_runtime_supports
from keras_attn_export._thresholds import LARGE_THRESHOLDS, SizeThreshold
from keras_attn_export._tracing.trace_attention import AttentionLayerInfo

SLOW = pytest.mark.slow
FORMS = {
    "portable18": ("portable", 18),
    "fused24": ("fused", FUSED_OPSET),
    "adaptive18": ("adaptive", 18),
    "adaptive24": ("adaptive", 24),
    "batched18": ("batched", 18),
    "batched24": ("batched", 24),
    "portable18-cuda": ("portable", 18, "cuda"),
    "fused24-cuda": ("fused", FUSED_OPSET, "cuda"),
    "float16": ("portable", 18, None, "float16"),  # float16 has no number as large as 1e30 or the lowest float32
    "blocks18": (PORTABLE_IN_BLOCKS, 18),
}


def list_lowerings(call, form, _=18, provider=None):
    """Return the choice for a call if the lowering of a form is requested, and the lowering that requests it."""
    lowering = "portable" if form == PORTABLE_IN_BLOCKS else form
    choice = lowering_choice.choose_lowering(call, lowering, *filter(None, [provider]))
    return choice, requested_lowering(choice)


# Each form has a third of the plans, and the next form another third; an eighth of the tests is fast.
REFERENCE_CASES = [
    pytest.param(plan, form, id=f"{name}-{plan}", marks=SLOW if (number + offset) % 24 else ())
    for offset, (name, form) in enumerate(FORMS.items())
    for number, plan in enumerate(PLANS)
    if (number + offset) % 3 == 0 and form[0] in list_lowerings(plan.call(), *form[:3])
]
SIZES = [(1, 3), (7, 5), (4, 60), (50, 3)]
BLOCK_CASES = [
    pytest.param(plan, "large", *sizes, id=f"large-{plan}-{sizes}", marks=SLOW if number % 7 else ())
    for number, plan in enumerate(plan for plan in PLANS if len(plan.leading) == 1)
    for sizes in [SIZES[(number + number // 4) % 4]]  # every second plan returns weights
]
BLOCK_CASES += [
    pytest.param(plan, "batched", *sizes, id=f"batched-{plan}-{sizes}", marks=SLOW if (number + offset) % 8 else ())
    for number, plan in enumerate(plan for plan in PLANS if not adaptive_gpu.fits_multi_head_attention_op(plan.call()))
    for offset, sizes in enumerate(SIZES)
]
BLOCK_CASES += [
    pytest.param(plan, PORTABLE_IN_BLOCKS, *SIZES[number % 4], id=f"blocks-{plan}", marks=SLOW if number % 4 else ())
    for number, plan in enumerate(plan for plan in PLANS if portable_additive.supports(plan.call()))
]
SMALL_BLOCKS = {
    "forms.additive_per_example.MAX_BLOCK_FEATURES": 100,
    "forms.additive_per_example.MIN_BLOCK_QUERIES": 1,
    "forms.dot_product_blocks.MAX_BLOCK_SCORES": 12,
    "forms.dot_product_blocks.MAX_BLOCK_QUERIES": 3,
    "forms.sliding_window.MAX_CHUNK_SCORES": 60,  # a chunk has three blocks of three queries
    "forms.sliding_window.BLOCK_QUERIES": 3,
    "forms.additive_batched.MAX_BLOCK_ELEMENTS_ON_GPU": 50,
    "forms.additive_batched.MAX_BLOCK_ELEMENTS_ON_CPU": 50,
    "forms.adaptive_gpu.MAX_BLOCK_SCORES": 30,
    "batch_blocks.MIN_BLOCK_QUERIES": 3,
}


@pytest.fixture
def small_blocks(monkeypatch):
    """Limits that split small inputs into several blocks."""
    for name, size in SMALL_BLOCKS.items():
        monkeypatch.setattr(f"keras_attn_export._lowerings.{name}", size)


@pytest.fixture
def large_from_6_pairs(monkeypatch):
    """Threshold of the form for large sizes: 6 pairs."""
    threshold = SizeThreshold(0, 6)
    monkeypatch.setattr(adaptive, "_get_large_threshold", lambda _: threshold)
    monkeypatch.setitem(LARGE_THRESHOLDS, "flash", threshold)


@pytest.mark.usefixtures("large_from_6_pairs")
@pytest.mark.parametrize(("plan", "form"), REFERENCE_CASES)
def test_bodies_equal_the_reference_and_ignore_masked_values(plan, form, capfd):
    run, options = open_session(plan, *form).run, {"tolerance": TOLERANCES["float16"][0]} if "float16" in form else {}
    for number, (Tq, Tk) in enumerate([(3, 5), (1, 1), (1, 9), (8, 2), (3, 3), (2, 2)]):
        inputs = plan.inputs(Tq, Tk, seed=number)
        assert_parity(plan, inputs, run=run, **options)
        assert_contract(run, plan, inputs, **options)
    assert capfd.readouterr() == ("", ""), "onnxruntime warns of the graph"


@pytest.mark.parametrize("masks", [{"lengths": "examples"}, {"keys_mask": True}], ids=str)
@pytest.mark.parametrize(
    ("name", "form"),
    [
        pytest.param(name, form, id=f"{name}-{form[0]}{form[1]}")
        for name in ("dot_product", "additive")
        for form in [*[*FORMS.values()][:6], ("large", 18), ("large", 24)]
        if (name, form[0]) != ("additive", "fused")
    ],
)
def test_largest_numbers_in_padding_do_not_change_outputs(name, form, masks):
    """A score of padding may be as large as the fill value that is added to it."""
    plan = Plan(name, heads=(2, 2), size=1, **masks)
    inputs = plan.inputs(3, 5)
    inputs["queries"] = np.sign(inputs["queries"]) / np.float32(SCALE)
    run = open_session(plan, *form).run
    outputs = run(None, inputs)
    for value in (np.finfo("float32").max, np.finfo("float32").min, 1e38):
        # only keys, since values of this size would change outputs
        filled_inputs = inputs | {"keys": fill_unused_entries(plan, inputs, value)["keys"]}
        for actual, expected in zip(run(None, filled_inputs), outputs, strict=True):
            assert_identical(actual, expected)


@pytest.mark.parametrize("form", ["portable", "large", "adaptive", "batched"])
@pytest.mark.parametrize(
    ("heads", "masks"),
    [
        (None, {"band": (1, 1)}),
        ((2, 2), {"band": (1, 1), "lengths": "examples"}),
        ((2, 2), {"band": (2, 2), "keys_mask": True, "causal": True}),
        (None, {"causal": True, "keys_mask": True}),
        ((2, 2), {"causal": True, "normalizer": "sparsemax"}),
        (None, {"lengths": "queries", "weights": True}),
        ((2, 2), {"mask": "pairs"}),
    ],
    ids=str,
)
def test_largest_scores_do_not_change_queries_that_mask_the_key(masks, heads, form):
    """For queries that mask the key, its score is as large as the fill value of the mask."""
    plan = Plan(size=1, scale=1.0, heads=heads, **masks)
    run = open_session(plan, form).run
    inputs = plan.inputs(6, 6)
    inputs["queries"] = np.sign(inputs["queries"])
    outputs, pairs = run(None, inputs), find_allowed_pairs(plan, inputs)
    for key in range(6):
        other_queries = ~pairs[..., key].any(-2)
        largest = np.finfo("float32").max
        if form == "batched" and plan.causal and plan.normalizer == "softmax":
            largest /= 4  # on the CPU the operator adds the lowest float32 to the scores of later keys
        for value in (largest, -largest):
            filled_inputs = inputs | {"keys": inputs["keys"].copy()}
            filled_inputs["keys"][:, key] = value
            for actual, expected in zip(run(None, filled_inputs), outputs, strict=True):
                assert_identical(
                    move_heads_after_queries(plan, actual)[other_queries],
                    move_heads_after_queries(plan, expected)[other_queries],
                )


@pytest.mark.parametrize(("plan", "form", "Tq", "Tk"), BLOCK_CASES)
def test_blocks_of_queries_equal_the_reference(plan, form, Tq, Tk, small_blocks):
    assert_parity(plan, plan.inputs(Tq, Tk), form)


@pytest.mark.parametrize(
    ("plan", "Tq", "Tk"),
    [
        (Plan(band=(5, 7)), 150, 200),
        (Plan(band=(100, 0), lengths="examples", heads=(4, 2)), 130, 130),
        (Plan(band=(0, 3), keys_mask=True, leading=(2, 2)), 400, 65),
        pytest.param(Plan(band=(400, 112), heads=(2, 2)), 2000, 1500, marks=pytest.mark.slow),
        (Plan(causal=True, heads=(4, 2)), 300, 280),
        (Plan(causal=True, keys_mask=True, heads=(4, 2)), 300, 280),
        (Plan(band=(None, 2), keys_mask=True, weights=True), 200, 300),
    ],
    ids=str,
)
def test_windows_and_causal_masks_equal_the_reference_at_large_sizes(plan, Tq, Tk):
    """Inputs have several blocks of queries and several chunks; some examples begin with masked keys."""
    inputs = plan.inputs(Tq, Tk)
    if plan.keys_mask:
        inputs["keys_mask"][..., 1, :150] = False
    assert_parity(plan, inputs)


@pytest.mark.parametrize("largest", [np.finfo("float32").max, -1e38, 1e30])
def test_overflowing_score_in_a_window_changes_no_other_query(largest):
    plan = Plan(band=(1, 1))
    inputs = plan.inputs(9, 9)
    run = open_session(plan, "large").run
    (expected,) = run(None, inputs)
    inputs["keys"][:, 4] = largest * np.float32([1, -1, 1, -1])
    (output,) = run(None, inputs)
    is_outside = np.abs(np.arange(9) - 4) > 1
    assert_identical(output[:, is_outside], expected[:, is_outside])


@pytest.mark.parametrize(
    ("plan", "kind", "threshold", "size_rule", "large_sizes", "small_sizes"),
    [
        # the rule counts 256 keys in a block, and a block of this window has 66
        (Plan(band=(1, 1), size=6), "window", SizeThreshold(0, 75220), "queries * keys < 4,480 or keys < 70",
         [(64, 70), (40, 112)], [(63, 70), (80, 69), (1, 79)]),
        (Plan(size=6), "flash", SizeThreshold(2, 12), "(queries - 2) * keys < 12",
         [(5, 4), (3, 12), (14, 1)], [(4, 5), (2, 60), (1, 60)]),
    ],
    ids=["window", "flash"],
)  # fmt: skip
def test_form_depends_on_the_sizes_at_run_time(plan, kind, threshold, size_rule, large_sizes, small_sizes, monkeypatch):
    monkeypatch.setitem(LARGE_THRESHOLDS, kind, threshold)
    monkeypatch.setattr(ragged, "build_body", lambda body_call: (body_call.queries * 0.0,))
    run = open_session(plan, "adaptive", 18, "cpu").run
    form = lowering_choice.describe_form(plan.call(), "adaptive", 18)
    assert form == f"plain operators while {size_rule}, else ragged"
    for sizes in (*large_sizes, *small_sizes):
        (output,) = run(None, plan.inputs(*sizes))
        assert np.any(output) == (sizes in small_sizes)


def test_window_over_an_empty_batch_is_empty():
    plan = Plan(band=(1, 1))
    inputs = {name: array[:0] for name, array in plan.inputs(5, 7).items()}
    assert open_session(plan, "large").run(None, inputs)[0].shape == (0, 5, 6)


@pytest.mark.parametrize(("pairs", "large"), [(11, True), (12, True), (13, False)])
def test_static_sizes_choose_the_form_at_export(pairs, large, monkeypatch):
    for kind in LARGE_THRESHOLDS:
        monkeypatch.setitem(LARGE_THRESHOLDS, kind, SizeThreshold(0, pairs))
    call = Plan().call()
    sizes = {"queries": 3, "keys": 4, "values": 4}
    call = replace(call, shapes={name: (None, size, call.shapes[name][-1]) for name, size in sizes.items()})
    used = {node.op_type for node in lowering_choice.build_lowered_function(call, "adaptive", FUSED_OPSET).node}
    assert used & {"If", "Attention", "MultiHeadAttention"} == {"MultiHeadAttention" if large else "Attention"}
    needs_fused_opset = not large and installed_runtime_supports(FUSED_OPSET, ["fused"])
    assert lowering_choice.get_preferred_opset(call, "adaptive") == (FUSED_OPSET if needs_fused_opset else 18)
    form = "ragged" if large else "the operator `Attention`"
    assert lowering_choice.describe_form(call, "adaptive", FUSED_OPSET) == f"{form}, since the model fixes the sizes"


@pytest.mark.parametrize("heads", [(1, 1), (2, 2), (4, 2), (3, 1)])
@pytest.mark.parametrize("masks", [{}, {"mask": "heads", "lengths": "examples"}, {"causal": True}], ids=str)
@pytest.mark.parametrize(("form", "size"), [("large", 5), ("large", 6), ("batched", 5)])
def test_heads_on_both_sides_of_the_guard_equal_the_reference(heads, masks, form, size, small_blocks):
    """In the second example one unit of one head exceeds the limit of the guard."""
    plan = Plan("additive", leading=(2,), weights=True, size=size, heads=heads, **masks)
    for distance in (1.0, 1e3):
        inputs = plan.inputs(7, 5, seed=3)
        inputs["keys"][1, 0, 1] = distance
        assert_parity(plan, inputs, form)


@pytest.mark.parametrize("form", ["portable", "large", "batched"])
def test_distances_far_from_the_origin_equal_the_reference(form):
    plan = Plan("distance", leading=(2,), weights=True, size=2)
    inputs = plan.inputs(4, 6)
    for name in ("queries", "keys"):
        inputs[name] += np.float32(1e5)
    assert_parity(plan, inputs, form)


@pytest.mark.parametrize("form", ["portable", "large"])
def test_sparsemax_ignores_many_scores_far_below_the_largest(form):
    """The rounding error of sums over these scores would exceed one score."""
    plan = Plan(leading=(1,), weights=True, normalizer="sparsemax", size=1)
    inputs = plan.inputs(1, 20_000)
    inputs["queries"][:] = 1 / SCALE
    inputs["keys"][:] = -123456789.0
    inputs["keys"][0, 7] = 0.0
    _, weights = open_session(plan, form).run(None, inputs)
    assert weights[0, 0, 7] == 1
    assert weights.sum() == 1


@pytest.mark.parametrize("form", ["portable", "large"])
@pytest.mark.parametrize("magnitude", [1e-3, 30.0, 1e9])
def test_sparsemax_sums_to_one_for_scores_of_any_size(form, magnitude):
    plan = Plan(weights=True, normalizer="sparsemax", mask="pairs")
    inputs = plan.inputs(6, 40)
    inputs["queries"] *= np.float32(magnitude)
    _, weights = open_session(plan, form).run(None, inputs)
    assert_close(weights.sum(-1), find_allowed_pairs(plan, inputs).any(-1)[:, 0].astype("float32"), "float32")
    if magnitude < 1e9:  # else rounding errors exceed differences of scores, and any score may be the largest
        assert_parity(plan, inputs, form, tolerance=2e-5 if magnitude > 1 else None)


@pytest.mark.parametrize("scale", [0.0, 1e-50, -1e-50, -1.0, 2.0])
def test_scales_that_operators_refuse_have_the_portable_form(scale):
    call = replace(Plan("dot_product").call(), options={"scale": scale})
    assert (lowering_choice.choose_lowering(call, "fused") == "fused") == (scale == 2.0)
    assert (lowering_choice.choose_lowering(call, "adaptive") == "adaptive") == (abs(scale) >= 1)


@pytest.mark.parametrize(
    ("plan", "lowering", "provider", "form"),
    [
        (Plan(), "portable", "cuda", "portable"),
        (Plan(), "portable", "cpu", "portable"),
        (Plan("additive"), "portable", "cpu", PORTABLE_IN_BLOCKS),
        (Plan("additive"), "portable", "cuda", "portable"),
        (Plan(), "fused", "cuda", "fused"),
        (Plan(lengths="examples"), "fused", "cuda", "fused"),
        (Plan(weights=True), "fused", "cuda", "portable"),  # the operator returns no weights on CUDA
        (Plan(weights=True), "fused", "cpu", "fused"),
        (Plan("additive"), "fused", "cuda", "portable"),
        (Plan(), "adaptive", "cuda", ADAPTIVE_GPU),
        (Plan("additive"), "adaptive", "cuda", ADAPTIVE_GPU),
        (Plan(), "adaptive", "cpu", "adaptive"),
    ],
    ids=str,
)
def test_form_depends_on_lowering_and_provider(plan, lowering, provider, form):
    assert lowering_choice.choose_lowering(plan.call(), lowering, provider) == form


def test_layer_with_two_lowerings_names_both():
    calls = [Plan(weights=weights).call() for weights in (False, True)]
    lowerings = {call: lowering_choice.choose_lowering(call, "fused", "cuda") for call in calls}
    layer = AttentionLayerInfo(calls[0].layer_id, "attention", "DotProductAttention", "")
    refusals = {calls[1]: "it returns weights"}
    model = LoweredModel(None, lowerings, "cuda", layers=(layer,), unsupported_reasons=refusals)
    (manifest_layer,) = model.make_manifest_entries(24)
    assert manifest_layer["lowering"] == "fused and portable"
    assert manifest_layer["form"] == "the operator `Attention`; plain operators, because it returns weights"


def test_size_of_a_window_decides_its_form(monkeypatch):
    for kind in LARGE_THRESHOLDS:
        monkeypatch.setitem(LARGE_THRESHOLDS, kind, SizeThreshold(0, 2**16))
    monkeypatch.setitem(LARGE_THRESHOLDS, "weights", SizeThreshold(0, 2**18))
    forms = {
        reach: lowering_choice.describe_form(Plan(band=(reach, reach)).call(), "adaptive", 18)
        for reach in (32, 96, 256, 257)
    }
    # A reach of 256 would need 331,776 pairs, more than golden cases have; 257 is too large for blocks
    pairs = {32: 2**14, 96: 2**16, 256: 2**18, 257: 2**16}
    for reach, form in forms.items():
        keys = math.isqrt(pairs[reach])
        limit = {257: f"{pairs[reach]:,}"}.get(reach, f"{64 * keys:,} or keys < {keys:,}")  # of a block of 64 queries
        assert form == f"plain operators while queries * keys < {limit}, else ragged"


def test_number_of_units_decides_the_form_of_additive_scores(monkeypatch):
    monkeypatch.setitem(LARGE_THRESHOLDS, "additive", SizeThreshold(2, 100))
    for size, heads, pairs in [(4, None, 25), (3, None, 34), (4, (2, 1), 13), (200, None, 1)]:
        form = lowering_choice.describe_form(Plan("additive", size=size, heads=heads).call(), "adaptive", 18)
        assert form == f"plain operators while (queries - 2) * keys < {pairs}, else ragged"
