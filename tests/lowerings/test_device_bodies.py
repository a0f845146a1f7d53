"""Bodies for devices such as GPUs, run on the CPU: their numbers, and that nothing in them waits for the device."""

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
ON_DEVICE = [(ADAPTIVE_GPU, 18), ("portable", 18), ("fused", FUSED_OPSET)]
EVERY = [
    pytest.param(plan, form, opset, id=f"{form}-{plan}")
    for number, plan in enumerate(PLANS)
    for turn, (form, opset) in enumerate(ON_DEVICE)
    if (number + turn) % 7 == 0 and form in (ADAPTIVE_GPU, lowering_choice.choose_lowering(plan.call(), form, "cuda"))
]


def for_a_device(plan, form=ADAPTIVE_GPU, opset=18):
    return lowering_choice.build_lowered_function(plan.call(), form, opset, "cuda", force_large_form=True)


@pytest.mark.parametrize(("plan", "form", "opset"), EVERY)
def test_bodies_have_no_nested_loops_or_data_dependent_branches(plan, form, opset):
    """No loop in a loop, none over examples, and no branch that numbers decide but for the guard of additive scores."""
    function = for_a_device(plan, form, opset)
    producers = {name: node for node in iter_nodes(function) for name in node.output}

    def is_of_sizes(name):
        node = producers.get(name)
        return node is not None and (node.op_type == "Shape" or all(map(is_of_sizes, node.input)))

    branches = [node for node in iter_nodes(function) if node.op_type == "If" and not is_of_sizes(node.input[0])]
    assert len(branches) == ((plan.name, form) == ("additive", ADAPTIVE_GPU))
    for scan in (node for node in iter_nodes(function) if node.op_type in ("Scan", "Loop")):
        assert scan.op_type == "Scan"
        (body,) = iter_subgraphs(scan)
        assert not {"Scan", "Loop", "If"} & {node.op_type for node in body.node}
        numbers, *parts = scan.input
        assert parts, "blocks of queries"
        for gather in (producers[producers[part].input[0]] for part in parts):
            assert (gather.op_type, gather.input[1]) == ("Gather", numbers)


ON_CPU = {"Range": (0, 1, 2), "Expand": (1,), "Reshape": (1,), "Slice": (1, 2, 3, 4), "Pad": (1,), "TopK": (1,)}
SIZES = {"Add", "Concat", "Cast", "Div", "Equal", "Max", "Min", "Mul", "Slice", "Squeeze", "Sub", "Unsqueeze"}
SIZES |= {"And", "LessOrEqual", "Not", "Or"}


@pytest.mark.parametrize(("plan", "form", "opset"), EVERY)
def test_masks_are_made_on_the_device(plan, form, opset):
    """By the rule of onnxruntime: what follows from sizes alone goes to the CPU, unless a kernel reads sizes there."""
    function = for_a_device(plan, form, opset)
    for graph in (function, *(inner for node in iter_nodes(function) for inner in iter_subgraphs(node))):
        on_cpu = {name for node in graph.node if node.op_type in ("Shape", "Constant") for name in node.output}
        for node in graph.node:
            assert not (node.op_type == "Cast" and node.attribute[0].i == TensorProto.UINT8), "has no reduction there"
            reads = [name for position, name in enumerate(node.input) if position not in ON_CPU.get(node.op_type, ())]
            if node.op_type not in ("Shape", "Constant", "If") and reads and on_cpu.issuperset(reads):
                on_cpu.update(node.output)
                assert node.op_type in SIZES, f"{node.op_type} of sizes alone"


@pytest.mark.parametrize("masks", [{}, {"lengths": "examples"}, {"causal": True}], ids=str)
@pytest.mark.parametrize(("form", "opset"), ON_DEVICE)
@pytest.mark.parametrize(("size", "value_size"), [(64, 64), (128, 64), (32, 96)])
def test_sizes_of_other_cuda_kernels_equal_the_reference(size, value_size, form, opset, masks):
    """From 256 queries on; which one hangs on the size of values, and keys are larger."""
    plan = Plan(leading=(2,), size=size, value_size=value_size, scale=size**-0.5, **masks)
    assert_parity(plan, plan.inputs(260, 260), form, opset)


SIZES_DECIDE = [
    (Plan("additive", weights=True), 18, [set()], {"Scan"}),
    (Plan(normalizer="sigmoid", lengths="examples"), 18, [set()], {"Scan"}),
    (Plan(size=8, value_size=8, heads=(2, 2)), 18, [{"Scan"}], {"MultiHeadAttention"}),
    (Plan(size=8, value_size=8, heads=(2, 2), causal=True), FUSED_OPSET, [{"Attention"}], {"MultiHeadAttention"}),
    # few queries of many keys
    (Plan(), FUSED_OPSET, [set()], {"Attention"}),
    (Plan(lengths="examples"), FUSED_OPSET, [set()], {"Attention"}),
]


@pytest.mark.parametrize(("plan", "opset", "few", "many"), SIZES_DECIDE, ids=str)
def test_few_pairs_are_computed_at_once(plan, opset, few, many, monkeypatch):
    """As sizes alone decide, on both sides of a limit."""
    monkeypatch.setattr(adaptive_gpu, "MIN_KEYS_FOR_FEW_ROWS", 5)
    units = plan.size if plan.name == "additive" else 1
    limits = UnblockedLimits(*[3 * 5 * 5 * units] * len(UnblockedLimits._fields))
    function = lowered.build_call_function(
        plan.call(), partial(adaptive_gpu.body, limits=limits), opset, for_device=True
    )
    decision = next(node for node in function.node if node.op_type == "If")
    kinds = [{node.op_type for node in iter_nodes(attr.g)} & {"Scan", *OPERATORS} for attr in decision.attribute]
    assert many in kinds
    assert any(kind in kinds for kind in few)
    run = provider_option.open_on_provider(build_model(plan.call(), function, opset)).run
    for sizes in ((5, 5), (6, 6), (5, 4), (7, 6)):
        assert_parity(plan, plan.inputs(*sizes), run=run)


@pytest.mark.parametrize(
    "plan",
    [Plan(size=7, value_size=8), Plan(size=72, value_size=64), Plan(size=8, value_size=8, lengths="examples")],
    ids=str,
)
def test_sizes_that_cuda_operators_refuse_have_other_forms(plan):
    """One keeps all scores of sizes that are no multiple of 8; of keys larger than values both make other products."""
    assert "MultiHeadAttention" not in {node.op_type for node in iter_nodes(for_a_device(plan))}
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
def test_empty_batches_queries_or_keys_give_empty_outputs_or_zeros(plan, B, Tq, Tk):
    if plan.band and not Tk * Tq:
        return  # a mask of pairs of none fails in every form
    inputs = {name: array if name == "w_v" else array[:B] for name, array in plan.inputs(Tq, Tk).items()}
    outputs = open_session(plan, ADAPTIVE_GPU).run(None, inputs)
    assert [output.shape for output in outputs] == [(B, Tq, 6 * plan.head_counts[0]), (B, Tq, Tk)][: len(outputs)]
    assert not np.any(outputs[0])


def test_largest_of_no_numbers_is_never_reduced_on_cuda():
    """It fails there, and not on the CPU."""
    nodes = [*iter_nodes(for_a_device(Plan("additive", lengths="examples")))]
    producers = {name: node for node in nodes for name in node.output}
    largest = [producers[node.input[0]] for node in nodes if node.op_type == "ReduceMax"]
    assert [node.op_type for node in largest] == ["Concat", "Concat"]
