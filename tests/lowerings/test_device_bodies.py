"""Bodies for devices such as GPUs, run on the CPU: their numbers, and that nothing in them waits for the device."""

import numpy as np
import onnx
import providers
import pytest
from lowered_calls import HEADS, MASKS, PLANS, Plan, assert_promises, expected, poisoned, session, taking_part
from onnx import TensorProto
from tolerances import TOLERANCES, assert_close

from keras_attn_export._lowerings import additive_blocks, batched, bodies, query_blocks, wide_keys
from keras_attn_export._options import FUSED_OPSET

ON_DEVICE = [("batched", 18), ("portable", 18), ("fused", FUSED_OPSET)]
EVERY = [
    pytest.param(plan, lowering, opset, id=f"{lowering}-{plan}")
    for number, plan in enumerate(PLANS)
    for turn, (lowering, opset) in enumerate(ON_DEVICE)
    if (number + turn) % 7 == 0 and bodies.lowering_of(plan.call(), lowering, "cuda") == lowering
]
BLOCKS = [
    pytest.param(plan, *sizes, id=f"{plan}-{sizes}", marks=() if (number + turn) % 8 == 0 else pytest.mark.out_of_turn)
    for number, plan in enumerate(plan for plan in PLANS if not wide_keys.fits(plan.call()))
    for turn, sizes in enumerate([(1, 3), (7, 5), (4, 60), (50, 3)])
]


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(additive_blocks, "FEATURES", 200)
    monkeypatch.setattr(batched, "SCORES", 30)
    monkeypatch.setattr(query_blocks, "LEAST_ROWS", 3)


@pytest.mark.product("each plan in blocks of every size; all but an eighth take turns")
@pytest.mark.parametrize(("plan", "Tq", "Tk"), BLOCKS)
def test_blocks_of_queries(plan, Tq, Tk, small_blocks):
    inputs = plan.inputs(Tq, Tk)
    outputs = session(plan, "batched", 18).run(None, poisoned(plan, inputs))
    for actual, exact in zip(outputs, expected(plan, inputs), strict=True):
        assert_close(actual, exact, "float32")


def test_blocks_are_as_many_as_memory_asks_for(monkeypatch):
    """The rows of a block, of 2 examples and 3 heads of 5 keys."""
    plan = Plan(leading=(2,), heads=(3, 1), mask="pairs")
    for largest, rows in [(10**6, 11), (2 * 3 * 5 * 9, 6), (2 * 3 * 5 * 8, 6), (2 * 3 * 5 * 4, 4), (1, 4)]:
        monkeypatch.setattr(batched, "SCORES", largest)
        monkeypatch.setattr(query_blocks, "LEAST_ROWS", 4)
        assert of_scores(plan, 11, 5) == (2, 3, rows, 5)


def of_scores(plan, Tq, Tk):
    """The shape of the scores in a block, which are computed once more as an output."""
    function = bodies.function_of(plan.call(), "batched", 18)
    (scan,) = [node for node in function.node if node.op_type == "Scan"]
    body = scan.attribute[0].g if scan.attribute[0].HasField("g") else scan.attribute[1].g
    softmax = next(node for node in body.node if node.op_type == "Softmax")
    body.node.add(op_type="Shape", input=[softmax.output[0]], output=["shape_of_scores"])
    body.output.append(onnx.helper.make_tensor_value_info("shape_of_scores", TensorProto.INT64, [4]))
    scan.output.append("shapes_of_scores")
    function.output.append("shapes_of_scores")
    call, inputs = plan.call(), plan.inputs(Tq, Tk)
    kinds = {name: onnx.helper.np_dtype_to_tensor_dtype(array.dtype) for name, array in inputs.items()}
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node(call.op, list(call.shapes), ["output", "shapes"], domain="keras_attn")],
        "call",
        [onnx.helper.make_tensor_value_info(name, kinds[name], array.shape) for name, array in inputs.items()],
        [onnx.helper.make_tensor_value_info("shapes", TensorProto.INT64, None)],
    )
    opsets = [onnx.helper.make_opsetid(*each) for each in (("", 18), ("keras_attn", 1), ("com.microsoft", 1))]
    model = onnx.helper.make_model(graph, functions=[function], opset_imports=opsets, ir_version=8)
    (shapes,) = providers.opened(model).run(None, inputs)
    (shape,) = {tuple(each) for each in shapes.tolist()}
    return shape


@pytest.mark.product("each mask has operators of its own, any of which may wait")
@pytest.mark.parametrize(("plan", "lowering", "opset"), EVERY)
def test_nothing_waits_for_the_device(plan, lowering, opset):
    """No loop in a loop, none over examples, and no branch that numbers decide but for the guard of additive scores."""
    function = bodies.function_of(plan.call(), lowering, opset, "cuda")
    branches = [node for node in function.node if node.op_type == "If"]
    made = {name: node for node in function.node for name in node.output}
    for branch in branches:
        condition = made[branch.input[0]]
        by_sizes = made[condition.input[0]].op_type == "Equal"
        assert by_sizes or condition.output[0] == "in_range"
    assert len(branches) <= (lowering == "batched")
    for graph in bodies_within(function):
        for scan in (node for node in graph if node.op_type in ("Scan", "Loop")):
            assert scan.op_type == "Scan"
            inner = [each.op_type for each in next(bodies_within(scan))]
            assert not {"Scan", "Loop", "If"} & {*inner}
            assert {"query_numbers_in_blocks", "queries_in_blocks"} <= {*scan.input}


ON_CPU = {"Range": (0, 1, 2), "Expand": (1,), "Reshape": (1,), "Slice": (1, 2, 3, 4), "Pad": (1,), "TopK": (1,)}
SIZES = {"Add", "Concat", "Cast", "Div", "Equal", "Max", "Min", "Mul", "Slice", "Squeeze", "Sub", "Unsqueeze"}


@pytest.mark.product("each mask has operators of its own, any of which may have no kernel")
@pytest.mark.parametrize(("plan", "lowering", "opset"), EVERY)
def test_masks_are_made_on_the_device(plan, lowering, opset):
    """By the rule of onnxruntime: what follows from sizes alone goes to the CPU, unless a kernel reads sizes there."""
    function = bodies.function_of(plan.call(), lowering, opset, "cuda")
    for nodes in bodies_within(function):
        on_cpu = {name for node in nodes if node.op_type in ("Shape", "Constant") for name in node.output}
        for node in nodes:
            assert not (node.op_type == "Cast" and node.attribute[0].i == TensorProto.UINT8), "has no reduction there"
            reads = [name for place, name in enumerate(node.input) if place not in ON_CPU.get(node.op_type, ())]
            if node.op_type not in ("Shape", "Constant", "If") and reads and on_cpu.issuperset(reads):
                on_cpu.update(node.output)
                assert node.op_type in SIZES, f"{node.op_type} of sizes alone"


@pytest.mark.parametrize("plan", PLANS[::20], ids=str)
def test_a_form_for_a_gpu_is_the_same_from_a_machine_without_one(plan):
    assert bodies.function_of(plan.call(), "batched", 18) == bodies.function_of(plan.call(), "batched", 18, "cuda")


def bodies_within(holder):
    """The nodes of a function, a graph or a node's bodies, and of all in them."""
    if isinstance(holder, onnx.NodeProto):
        for attribute in holder.attribute:
            if attribute.HasField("g"):
                yield from bodies_within(attribute.g)
        return
    yield list(holder.node)
    for node in holder.node:
        yield from bodies_within(node)


@pytest.mark.parametrize(("plan", "lowering", "opset"), [each for each in EVERY if each.values[1] != "batched"][::4])
def test_numbers_of_other_lowerings(plan, lowering, opset):
    run = session(plan, lowering, opset, "cuda").run
    for number, (Tq, Tk) in enumerate([(3, 5), (1, 1), (8, 2), (3, 3)]):
        inputs = plan.inputs(Tq, Tk, seed=number)
        for actual, exact in zip(run(None, inputs), expected(plan, inputs), strict=True):
            assert_close(actual, exact, "float32")
        assert_promises(run, plan, inputs)


@pytest.mark.parametrize(
    "plan",
    [
        Plan(name, leading=(3,), weights=number % 2 == 0, heads=heads, bias="pairs" if number == 1 else None, **masks)
        for number, masks in enumerate(MASKS)
        for name, heads in [(("dot_product", "additive")[number % 2], HEADS[number % 4])]
    ],
    ids=str,
)
def test_attention_in_float16(plan):
    """What float16 cannot hold hides nothing either: the lowest float32, and 1e30 in padding."""
    run = session(plan, "portable", 18, precision="float16").run
    for Tq, Tk in [(3, 5), (8, 2), (3, 3)]:
        inputs = plan.inputs(Tq, Tk)
        for actual, exact in zip(run(None, inputs), expected(plan, inputs), strict=True):
            assert_close(actual, exact, "float32", tolerance=TOLERANCES["float16"][0])
        assert_promises(run, plan, inputs, tolerance=TOLERANCES["float16"][0])


@pytest.mark.parametrize(
    ("plan", "lowering", "meant"),
    [
        (Plan(), "portable", "portable"),
        (Plan(), "fused", "fused"),
        (Plan(lengths="examples"), "fused", "fused"),
        (Plan(weights=True), "fused", "portable"),
        (Plan("additive"), "fused", "portable"),
        (Plan(), "ragged", "batched"),
        (Plan(), "adaptive", "batched"),
        (Plan("additive"), "adaptive", "batched"),
        (Plan(), "batched", "batched"),
    ],
    ids=str,
)
def test_which_form_a_lowering_has_on_cuda(plan, lowering, meant):
    assert bodies.lowering_of(plan.call(), lowering, "cuda") == meant


def test_ragged_stays_ragged_on_the_cpu():
    assert bodies.lowering_of(Plan().call(), "ragged") == "ragged"
    assert bodies.lowering_of(Plan(weights=True).call(), "fused") == "fused"


def test_what_auto_tries():
    assert bodies.candidates(Plan().call(), "cuda") == ["portable", "fused", "batched"]
    assert bodies.candidates(Plan(weights=True).call(), "cuda") == ["portable", "batched"]
    assert "batched" not in bodies.candidates(Plan().call())


@pytest.mark.product("sizes on both sides of each multiple")
@pytest.mark.parametrize("masks", [{}, {"lengths": "examples"}, {"keys_mask": True}, {"causal": True}], ids=str)
@pytest.mark.parametrize("heads", [None, (2, 2), (4, 2)])
@pytest.mark.parametrize(("size", "value_size"), [(8, 8), (7, 8), (8, 3), (16, 9)])
def test_sizes_are_filled_up_for_the_operator(masks, heads, size, value_size):
    plan = Plan(leading=(3,), size=size, value_size=value_size, heads=heads, **masks)
    (function,) = [bodies.function_of(plan.call(), "batched", 18)]
    attention = next(n for nodes in bodies_within(function) for n in nodes if n.op_type == "MultiHeadAttention")
    assert len(attention.input) == 3, "with a mask it would keep all scores"
    together = {
        node.output[0]: node.attribute[0].ints[-1] // ((heads or (1, 1))[name != "queries"])
        for nodes in bodies_within(function)
        for node in nodes
        for name in ("queries", "keys", "values")
        if node.output[0] == f"wide_{name}_together"
    }
    key_size = size + (masks not in ({}, {"causal": True}))
    wanted = {"queries": (size, key_size), "keys": (size, key_size), "values": (value_size, value_size)}
    assert together == {
        f"wide_{name}_together": -(-least // 8) * 8
        for name, (given, least) in wanted.items()
        if given % 8 or least > given
    }
    inputs = plan.inputs(5, 5)
    (actual,) = session(plan, "batched", 18).run(None, poisoned(plan, inputs))
    assert_close(actual, expected(plan, inputs)[0], "float32")


@pytest.mark.parametrize("scale", [1e-38, 1e-4, 0.5, 30.0, 1e4, -0.5, 0.0])
@pytest.mark.parametrize("magnitude", [1.0, 1e3])
def test_masked_keys_are_far_below_all_others(scale, magnitude):
    plan = Plan(lengths="examples", scale=scale)
    inputs = plan.inputs(4, 6)
    inputs["valid_lens"] = np.array([0, 1, 4], "int32")
    inputs["queries"] *= np.float32(magnitude / max(abs(scale), 1e-3))
    run = session(plan, "batched", 18).run
    (whole,) = run(None, inputs)
    assert np.all(whole[0] == 0)
    for example, length in ((1, 1), (2, 4)):
        alone = {name: array[example : example + 1] for name, array in inputs.items()}
        alone |= {name: alone[name][:, :length] for name in ("keys", "values")}
        assert_close(whole[example : example + 1], run(None, alone)[0], "float32")


@pytest.mark.parametrize("heads", [(1, 1), (2, 2), (4, 2), (3, 1)])
@pytest.mark.parametrize("masks", [{}, {"mask": "heads", "lengths": "examples"}, {"causal": True}], ids=str)
def test_heads_on_both_sides_of_the_guard(heads, masks, small_blocks):
    plan = Plan("additive", leading=(2,), weights=True, size=5, heads=heads, **masks)
    for far in (1.0, 1e3):
        inputs = plan.inputs(7, 5, seed=3)
        inputs["keys"][1, 0, 1] = far
        outputs = session(plan, "batched", 18).run(None, poisoned(plan, inputs))
        for actual, exact in zip(outputs, expected(plan, inputs), strict=True):
            assert_close(actual, exact, "float32")


@pytest.mark.parametrize(("B", "Tq", "Tk"), [(0, 5, 7), (2, 0, 7), (2, 5, 0)])
@pytest.mark.parametrize(
    "plan",
    [
        Plan(band=(1, 1)),
        Plan(lengths="examples"),
        Plan(weights=True),
        Plan("additive", size=7, weights=True),
        Plan("additive", size=7, lengths="examples"),
        Plan("additive", size=6, heads=(4, 2)),
    ],
    ids=str,
)
def test_nothing_comes_of_nothing(plan, B, Tq, Tk):
    if plan.band and not Tk * Tq:
        return  # a mask of pairs of none fails in every form
    inputs = {name: array if name == "w_v" else array[:B] for name, array in plan.inputs(Tq, Tk).items()}
    outputs = session(plan, "batched", 18).run(None, inputs)
    assert [output.shape for output in outputs] == [(B, Tq, 6 * plan.head_counts[0]), (B, Tq, Tk)][: len(outputs)]
    assert not np.any(outputs[0])


def test_cuda_is_not_asked_for_the_largest_of_none():
    """It fails there, and not on the CPU."""
    nodes = bodies.function_of(Plan("additive", lengths="examples").call(), "batched", 18).node
    made = {name: node for node in nodes for name in node.output}
    largest = [made[node.input[0]] for node in nodes if node.op_type == "ReduceMax"]
    assert [node.op_type for node in largest] == ["Concat", "Concat"]


@pytest.mark.parametrize("normalizer", ["sparsemax", "sigmoid"])
def test_pairs_that_take_no_part_have_no_weight(normalizer, small_blocks):
    plan = Plan(weights=True, normalizer=normalizer, mask="pairs", heads=(4, 2))
    inputs = plan.inputs(9, 6)
    _, weights = session(plan, "batched", 18).run(None, inputs)
    assert np.all(weights[~taking_part(plan, inputs)] == 0)
