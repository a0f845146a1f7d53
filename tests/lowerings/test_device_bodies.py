"""Function bodies for GPUs, run on the CPU: outputs equal the reference, and no operator waits for the device."""

from functools import partial

import numpy as np
import provider_option
import pytest
from lowered_calls import PLANS, Plan, assert_parity, build_model, open_session
from onnx import TensorProto

from keras_attn_export._lowering_names import ADAPTIVE_GPU
from keras_attn_export._lowerings import attention_function as lowered
from keras_attn_export._lowerings import lowering_choice
from keras_attn_export._lowerings.forms import adaptive_gpu
from keras_attn_export._onnx.traversal import iter_nodes, iter_subgraphs
from keras_attn_export._onnxruntime_releases import FUSED_OPSET
from keras_attn_export._thresholds import UnblockedLimits

OPERATORS = {"Attention", "MultiHeadAttention"}
DEVICE_FORMS = [(ADAPTIVE_GPU, 18), ("portable", 18), ("fused", FUSED_OPSET)]
CASES = [
    pytest.param(plan, form, opset, id=f"{form}-{plan}")
    for number, plan in enumerate(PLANS)
    for offset, (form, opset) in enumerate(DEVICE_FORMS)
    if (number + offset) % 7 == 0 and form in (ADAPTIVE_GPU, lowering_choice.choose_lowering(plan.call(), form, "cuda"))
]


def build_device_function(plan, form=ADAPTIVE_GPU, opset=18):
    return lowering_choice.build_lowered_function(plan.call(), form, opset, "cuda", force_large_form=True)


@pytest.mark.parametrize(("plan", "form", "opset"), CASES)
def test_bodies_have_no_nested_loops_or_data_dependent_branches(plan, form, opset):
    """Loops are blocks of queries; sizes select every branch except that of the guard of additive scores."""
    function = build_device_function(plan, form, opset)
    producers = {name: node for node in iter_nodes(function) for name in node.output}

    def depends_on_sizes_only(name):
        node = producers.get(name)
        return node is not None and (node.op_type == "Shape" or all(map(depends_on_sizes_only, node.input)))

    conditionals = [node for node in iter_nodes(function) if node.op_type == "If"]
    branches = [node for node in conditionals if not depends_on_sizes_only(node.input[0])]
    assert len(branches) == ((plan.name, form) == ("additive", ADAPTIVE_GPU))
    for scan in (node for node in iter_nodes(function) if node.op_type in ("Scan", "Loop")):
        assert scan.op_type == "Scan"
        (body,) = iter_subgraphs(scan)
        assert not {"Scan", "Loop", "If"} & {node.op_type for node in body.node}
        block_numbers, *blocks = scan.input
        assert blocks, "blocks of queries"
        for gather in (producers[producers[block].input[0]] for block in blocks):
            assert (gather.op_type, gather.input[1]) == ("Gather", block_numbers)


CPU_INPUTS = {"Range": (0, 1, 2), "Expand": (1,), "Reshape": (1,), "Slice": (1, 2, 3, 4), "Pad": (1,), "TopK": (1,)}
SIZE_OPERATORS = {"Add", "Concat", "Cast", "Div", "Equal", "Max", "Min", "Mul", "Slice", "Squeeze", "Sub", "Unsqueeze"}
SIZE_OPERATORS |= {"And", "LessOrEqual", "Not", "Or"}


@pytest.mark.parametrize(("plan", "form", "opset"), CASES)
def test_masks_are_computed_on_the_device(plan, form, opset):
    """onnxruntime runs nodes of sizes on the CPU, unless kernels read these inputs there; no mask may be among them."""
    function = build_device_function(plan, form, opset)
    for graph in (function, *(body for node in iter_nodes(function) for body in iter_subgraphs(node))):
        on_cpu = {name for node in graph.node if node.op_type in ("Shape", "Constant") for name in node.output}
        for node in graph.node:
            assert not (node.op_type == "Cast" and node.attribute[0].i == TensorProto.UINT8), "CUDA cannot reduce it"
            skipped = CPU_INPUTS.get(node.op_type, ())
            names = [name for position, name in enumerate(node.input) if position not in skipped]
            if node.op_type not in ("Shape", "Constant", "If") and names and on_cpu.issuperset(names):
                on_cpu.update(node.output)
                assert node.op_type in SIZE_OPERATORS, f"{node.op_type} depends on sizes only"


@pytest.mark.parametrize("masks", [{}, {"lengths": "examples"}, {"causal": True}], ids=str)
@pytest.mark.parametrize(("form", "opset"), DEVICE_FORMS)
@pytest.mark.parametrize(("size", "value_size"), [(64, 64), (128, 64), (32, 96)])
def test_sizes_of_other_cuda_kernels_equal_the_reference(size, value_size, form, opset, masks):
    """From 256 queries on, CUDA chooses a kernel by the size of values, which may be too small for the keys."""
    plan = Plan(leading=(2,), size=size, value_size=value_size, scale=size**-0.5, **masks)
    assert_parity(plan, plan.inputs(260, 260), form, opset)


SIZE_DEPENDENT_CASES = [
    (Plan("additive", weights=True), 18, [set()], {"Scan"}),
    (Plan(normalizer="sigmoid", lengths="examples"), 18, [set()], {"Scan"}),
    (Plan(size=8, value_size=8, heads=(2, 2)), 18, [{"Scan"}], {"MultiHeadAttention"}),
    (Plan(size=8, value_size=8, heads=(2, 2), causal=True), FUSED_OPSET, [{"Attention"}], {"MultiHeadAttention"}),
    (Plan(), FUSED_OPSET, [set()], {"Attention"}),
    (Plan(lengths="examples"), FUSED_OPSET, [set()], {"Attention"}),
]


@pytest.mark.parametrize(("plan", "opset", "few_pair_operators", "many_pair_operators"), SIZE_DEPENDENT_CASES, ids=str)
def test_few_pairs_are_computed_at_once(plan, opset, few_pair_operators, many_pair_operators, monkeypatch):
    """Sizes alone select the branch; outputs on both sides of the limit equal the reference."""
    monkeypatch.setattr(adaptive_gpu, "MIN_KEYS_FOR_FEW_ROWS", 5)
    units = plan.size if plan.name == "additive" else 1
    limits = UnblockedLimits(*[3 * 5 * 5 * units] * len(UnblockedLimits._fields))
    function = lowered.build_call_function(
        plan.call(), partial(adaptive_gpu.build_body, limits=limits), opset, for_device=True
    )
    decision = next(node for node in function.node if node.op_type == "If")
    branches = [{node.op_type for node in iter_nodes(attr.g)} & {"Scan", *OPERATORS} for attr in decision.attribute]
    assert many_pair_operators in branches
    assert any(operators in branches for operators in few_pair_operators)
    run = provider_option.open_on_provider(build_model(plan.call(), function, opset)).run
    for sizes in ((5, 5), (6, 6), (5, 4), (7, 6)):
        assert_parity(plan, plan.inputs(*sizes), run=run)


@pytest.mark.parametrize(
    "plan",
    [Plan(size=7, value_size=8), Plan(size=72, value_size=64), Plan(size=8, value_size=8, lengths="examples")],
    ids=str,
)
def test_sizes_that_cuda_operators_refuse_have_other_forms(plan):
    """`MultiHeadAttention` stores scores of sizes that 8 does not divide, and is wrong for keys larger than values."""
    assert "MultiHeadAttention" not in {node.op_type for node in iter_nodes(build_device_function(plan))}
    assert (lowering_choice.choose_lowering(plan.call(), "fused", "cuda") == "fused") == (plan.size < 64)


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
def test_empty_axes_give_empty_outputs_or_zeros(plan, B, Tq, Tk):
    if plan.band and not Tk * Tq:
        return  # an empty mask of pairs fails in every form
    inputs = {name: array if name == "w_v" else array[:B] for name, array in plan.inputs(Tq, Tk).items()}
    outputs = open_session(plan, ADAPTIVE_GPU).run(None, inputs)
    assert [output.shape for output in outputs] == [(B, Tq, 6 * plan.head_counts[0]), (B, Tq, Tk)][: len(outputs)]
    assert not np.any(outputs[0])


def test_maximum_of_an_empty_tensor_is_never_computed_on_cuda():
    """`ReduceMax` of an empty tensor fails on CUDA, but not on the CPU; `Concat` appends a number."""
    nodes = [*iter_nodes(build_device_function(Plan("additive", lengths="examples")))]
    producers = {name: node for node in nodes for name in node.output}
    reduced = [producers[node.input[0]] for node in nodes if node.op_type == "ReduceMax"]
    assert [node.op_type for node in reduced] == ["Concat", "Concat"]
