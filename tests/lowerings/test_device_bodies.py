"""Bodies for devices such as GPUs, run on the CPU: their numbers, and that nothing in them waits for the device."""

import numpy as np
import onnx
import providers
import pytest
from lowered_calls import PLANS, Plan, assert_right, model_of, session
from onnx import TensorProto
from tolerances import assert_close

from keras_attn_export._graphs.walk import all_nodes, graphs_in
from keras_attn_export._lowerings import batched, bodies, query_blocks
from keras_attn_export._options import BATCHED, FUSED_OPSET

ON_DEVICE = [(BATCHED, 18), ("portable", 18), ("fused", FUSED_OPSET)]
EVERY = [
    pytest.param(plan, form, opset, id=f"{form}-{plan}")
    for number, plan in enumerate(PLANS)
    for turn, (form, opset) in enumerate(ON_DEVICE)
    if (number + turn) % 7 == 0 and form in (BATCHED, bodies.lowering_of(plan.call(), form, "cuda"))
]


def test_blocks_are_as_many_as_memory_asks_for(monkeypatch):
    """The rows of a block, of 2 examples and 3 heads of 5 keys."""
    plan = Plan(leading=(2,), heads=(3, 1), mask="pairs")
    for largest, rows in [(10**6, 11), (2 * 3 * 5 * 9, 6), (2 * 3 * 5 * 8, 6), (2 * 3 * 5 * 4, 4), (1, 4)]:
        monkeypatch.setattr(batched, "SCORES", largest)
        monkeypatch.setattr(query_blocks, "LEAST_ROWS", 4)
        assert of_scores(plan, 11, 5) == (2, 3, rows, 5)


def for_a_device(plan, form=BATCHED, opset=18):
    return bodies.function_of(plan.call(), form, opset, "cuda", only_large=True)


def of_scores(plan, Tq, Tk):
    """The shape of the scores in a block, which are computed once more as an output."""
    function = for_a_device(plan)
    (scan,) = [node for node in function.node if node.op_type == "Scan"]
    (body,) = graphs_in(scan)
    softmax = next(node for node in body.node if node.op_type == "Softmax")
    body.node.add(op_type="Shape", input=[softmax.output[0]], output=["shape_of_scores"])
    body.output.append(onnx.helper.make_tensor_value_info("shape_of_scores", TensorProto.INT64, [4]))
    for holder in (scan, function):
        holder.output.append("shapes_of_scores")
    _, shapes = providers.opened(model_of(plan.call(), function)).run(None, plan.inputs(Tq, Tk))
    (shape,) = {tuple(each) for each in shapes.tolist()}
    return shape


@pytest.mark.product("each mask has operators of its own, any of which may wait")
@pytest.mark.parametrize(("plan", "form", "opset"), EVERY)
def test_nothing_waits_for_the_device(plan, form, opset):
    """No loop in a loop, none over examples, and no branch that numbers decide but for the guard of additive scores."""
    function = for_a_device(plan, form, opset)
    branches = [node for node in function.node if node.op_type == "If"]
    made = {name: node for node in all_nodes(function) for name in node.output}
    for branch in branches:
        condition = made[branch.input[0]]
        by_sizes = made[condition.input[0]].op_type == "Equal"
        assert by_sizes or (plan.name, condition.op_type) == ("additive", "And")
    assert len(branches) <= (form == BATCHED)
    for scan in (node for node in all_nodes(function) if node.op_type in ("Scan", "Loop")):
        assert scan.op_type == "Scan"
        (body,) = graphs_in(scan)
        assert not {"Scan", "Loop", "If"} & {each.op_type for each in body.node}
        numbers, *parts = scan.input
        assert parts, "blocks of queries"
        for gather in (made[made[part].input[0]] for part in parts):
            assert (gather.op_type, gather.input[1]) == ("Gather", numbers)


ON_CPU = {"Range": (0, 1, 2), "Expand": (1,), "Reshape": (1,), "Slice": (1, 2, 3, 4), "Pad": (1,), "TopK": (1,)}
SIZES = {"Add", "Concat", "Cast", "Div", "Equal", "Max", "Min", "Mul", "Slice", "Squeeze", "Sub", "Unsqueeze"}


@pytest.mark.product("each mask has operators of its own, any of which may have no kernel")
@pytest.mark.parametrize(("plan", "form", "opset"), EVERY)
def test_masks_are_made_on_the_device(plan, form, opset):
    """By the rule of onnxruntime: what follows from sizes alone goes to the CPU, unless a kernel reads sizes there."""
    function = for_a_device(plan, form, opset)
    for graph in (function, *(inner for node in all_nodes(function) for inner in graphs_in(node))):
        on_cpu = {name for node in graph.node if node.op_type in ("Shape", "Constant") for name in node.output}
        for node in graph.node:
            assert not (node.op_type == "Cast" and node.attribute[0].i == TensorProto.UINT8), "has no reduction there"
            reads = [name for place, name in enumerate(node.input) if place not in ON_CPU.get(node.op_type, ())]
            if node.op_type not in ("Shape", "Constant", "If") and reads and on_cpu.issuperset(reads):
                on_cpu.update(node.output)
                assert node.op_type in SIZES, f"{node.op_type} of sizes alone"


@pytest.mark.product("sizes on both sides of each multiple")
@pytest.mark.parametrize("masks", [{}, {"lengths": "examples"}, {"keys_mask": True}, {"causal": True}], ids=str)
@pytest.mark.parametrize("heads", [None, (2, 2), (4, 2)])
@pytest.mark.parametrize(("size", "value_size"), [(8, 8), (7, 8), (8, 3), (16, 9)])
def test_sizes_are_filled_up_for_the_operator(masks, heads, size, value_size):
    plan = Plan(leading=(3,), size=size, value_size=value_size, heads=heads, **masks)
    function = for_a_device(plan)
    attention = next(node for node in all_nodes(function) if node.op_type == "MultiHeadAttention")
    assert len(attention.input) == 3, "with a mask it would keep all scores"
    made = {name: node for node in all_nodes(function) for name in node.output}
    key_size = size + (masks not in ({}, {"causal": True}))
    least_value_size = max(value_size, key_size)  # or another kernel holds no such keys
    for name, given, least in zip(
        attention.input, (size, size, value_size), (key_size, key_size, least_value_size), strict=True
    ):
        is_reshaped = name in made and made[name].op_type == "Reshape"
        joined = made[made[name].input[1]].attribute[0].ints[-1] if is_reshaped else given * plan.head_counts[0]
        assert joined == -(-least // 8) * 8 * plan.head_counts[0]
    asks = [node for node in function.node if node.op_type == "If"]
    assert len(asks) == plan.causal, "whether there are as many keys as queries"
    assert_right(plan, plan.inputs(5, 5), BATCHED)


@pytest.mark.product("each form has kernels of its own")
@pytest.mark.parametrize("masks", [{}, {"lengths": "examples"}, {"causal": True}], ids=str)
@pytest.mark.parametrize(("form", "opset"), ON_DEVICE)
@pytest.mark.parametrize(("size", "value_size"), [(64, 64), (128, 64), (32, 96)])
def test_sizes_at_which_cuda_takes_other_kernels(size, value_size, form, opset, masks):
    """From 256 queries on; which one hangs on the size of values, and keys are larger."""
    plan = Plan(leading=(2,), size=size, value_size=value_size, scale=size**-0.5, **masks)
    assert_right(plan, plan.inputs(260, 260), form, opset)


@pytest.mark.parametrize("plan", [Plan(lengths="examples"), Plan("additive", weights=True), Plan(causal=True)], ids=str)
def test_few_pairs_are_taken_at_once(plan, monkeypatch):
    """As sizes alone decide, on both sides of a limit."""
    units = plan.size if plan.name == "additive" else 1
    monkeypatch.setattr(batched, "AT_ONCE", dict.fromkeys(batched.AT_ONCE, 3 * 4 * 5 * units))
    function = bodies.function_of(plan.call(), BATCHED, 18, "cuda")
    made = {name: node for node in function.node for name in node.output}
    (decision,) = [node for node in function.node if node.op_type == "If"]
    assert made[made[decision.input[0]].input[0]].op_type == "LessOrEqual"
    plainly, large = ({each.name: each.g for each in decision.attribute}[f"{name}_branch"] for name in ("then", "else"))
    assert not {"Scan", "MultiHeadAttention"} & {node.op_type for node in all_nodes(plainly)}
    assert {"Scan", "MultiHeadAttention"} & {node.op_type for node in all_nodes(large)}
    run = providers.opened(model_of(plan.call(), function)).run
    for sizes in ((4, 5), (4, 6), (5, 5)):
        assert_right(plan, plan.inputs(*sizes), run=run)


@pytest.mark.parametrize("scale", [1e-38, 1e-4, 0.5, 30.0, 1e4, -0.5, 0.0])
@pytest.mark.parametrize("magnitude", [1.0, 1e3])
def test_masked_keys_are_far_below_all_others(scale, magnitude):
    plan = Plan(lengths="examples", scale=scale)
    inputs = plan.inputs(4, 6)
    inputs["valid_lens"] = np.array([0, 1, 4], "int32")
    inputs["queries"] *= np.float32(magnitude / max(abs(scale), 1e-3))
    run = session(plan, BATCHED).run
    (whole,) = run(None, inputs)
    assert np.all(whole[0] == 0)
    for example, length in ((1, 1), (2, 4)):
        alone = {name: array[example : example + 1] for name, array in inputs.items()}
        alone |= {name: alone[name][:, :length] for name in ("keys", "values")}
        assert_close(whole[example : example + 1], run(None, alone)[0], "float32")


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
    outputs = session(plan, BATCHED).run(None, inputs)
    assert [output.shape for output in outputs] == [(B, Tq, 6 * plan.head_counts[0]), (B, Tq, Tk)][: len(outputs)]
    assert not np.any(outputs[0])


def test_cuda_is_not_asked_for_the_largest_of_none():
    """It fails there, and not on the CPU."""
    nodes = for_a_device(Plan("additive", lengths="examples")).node
    made = {name: node for node in nodes for name in node.output}
    largest = [made[node.input[0]] for node in nodes if node.op_type == "ReduceMax"]
    assert [node.op_type for node in largest] == ["Concat", "Concat"]
