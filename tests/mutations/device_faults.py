"""Faults in what is written for GPUs, and in what says that one did the work."""

from .fault import fault

DEVICE_FAULTS = (
    fault(
        "one layer of attention may be elsewhere",
        "        if other != wanted:",
        "        if other != wanted and layer.startswith('last'):",
        "test_verify -k attention_on_the_cpu",
    ),
    fault(
        "masks that are made of sizes must be on the device",
        "named and not makes_sizes and _reads_rows(arguments)",
        "named and not makes_sizes",
        "test_verify -k may_be_on_the_cpu",
    ),
    fault(
        "attention in float16 may be anywhere",
        '("float" in kind or kind == "double")',
        'kind == "float"',
        "test_verify -k attention_on_the_cpu",
    ),
    fault(
        "nodes of attention have no names",
        '        node.name = f"{scope}/{node.op_type}_{next(numbers)}"',
        "        pass",
        "test_verify -k found_in_a_profile",
    ),
    fault(
        "no device is a broken file",
        'if provider != "cpu" and _NO_DEVICE.search(str(error)):',
        "if False:",
        "test_verify -k no_device",
    ),
    fault(
        "cuDNN times its algorithms",
        '"cudnn_conv_algo_search": "HEURISTIC"}\n# What',
        '"cudnn_conv_algo_search": "EXHAUSTIVE"}\n# What',
        "test_verify -k falls_back",
        "test_triton_layout",
    ),
    fault(
        "the commands let TensorFlow take all memory",
        '    os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")\n    with',
        "    with",
        "test_main -k leaves_memory",
    ),
    fault(
        "ragged loops on a GPU",
        'meant = ON_CUDA.get(lowering, lowering) if provider == "cuda" else lowering',
        "meant = lowering",
        "test_device_bodies -k which_form",
    ),
    fault(
        "weights are asked of Attention on CUDA",
        'is_absent = lowering == "fused" and provider == "cuda" and call.returns_weights',
        "is_absent = False",
        "test_device_bodies -k which_form",
        "test_device_bodies -k auto",
    ),
    fault(
        "Attention on CUDA asks whether something leaked",
        'elif lowering == "fused" and for_device:',
        "elif False:",
        "test_device_bodies -k waits",
    ),
    fault(
        "positions are made on the CPU",
        'changed.append(helper.make_node("Add", [node.output[0], ZERO], [positions]))',
        'changed.append(helper.make_node("Identity", [node.output[0]], [positions]))',
        "test_device_bodies -k masks_are_made",
    ),
    fault(
        "reductions are of uint8",
        "attribute.i = TensorProto.INT32",
        "pass",
        "test_device_bodies -k masks_are_made",
    ),
    fault(
        "a form for a GPU asks nothing to be on it",
        "for_device = lowering == BATCHED or provider",
        "for_device = provider",
        "test_device_bodies -k from_a_machine",
    ),
    fault(
        "rows behind the last query are of none",
        "every_number = Min (every_row, last_query)",
        "every_number = Identity (every_row)",
        "test_device_bodies -k blocks_of_queries",
    ),
    fault(
        "masks are cut along their heads",
        'axis = 2 if name in ("mask", "bias") else 1',
        "axis = 1",
        "test_device_bodies -k blocks_of_queries",
    ),
    fault(
        "blocks of queries are put together in another order",
        'before = "1, 2" if by_heads else "1"',
        'before = "2, 1" if by_heads else "1"',
        "test_device_bodies -k blocks_of_queries",
    ),
    fault(
        "memory grows with the batch",
        "scores_of_row = Mul (N, scores_of_example)",
        "scores_of_row = Identity (scores_of_example)",
        "test_device_bodies -k as_many_as_memory",
    ),
    fault(
        "masked keys take part",
        "bias_of_keys = Where (seen_column, nothing, masked)",
        "bias_of_keys = Where (seen_column, nothing, nothing)",
        "test_device_bodies -k filled_up",
        "test_device_bodies -k far_below",
    ),
    fault(
        "masked keys are only a little below the others",
        "MASKED = -1e37",
        "MASKED = -1e2",
        "test_device_bodies -k far_below",
    ),
    fault(
        "values behind a mask are read",
        "seen_values = Where (seen_column, values, nothing)",
        "seen_values = Identity (values)",
        "test_device_bodies -k filled_up",
    ),
    fault(
        "a causal query without keys gets what is hidden",
        "LessOrEqual (first_seen, query_numbers)",
        "LessOrEqual (first_seen, first_seen)",
        "test_bodies -k numbers",
    ),
    fault(
        "the operator counts causal keys where there are more of them than queries",
        '{chosen(call, "as_many", wide_keys.body(call), _in_blocks(call), "batched")}',
        "{wide_keys.body(call)}",
        "test_bodies -k numbers",
    ),
    fault(
        "sizes are not filled up",
        "return -(-size // MULTIPLE) * MULTIPLE",
        "return size",
        "test_device_bodies -k filled_up",
    ),
    fault(
        "additive scores of all examples overflow",
        '{guard("hidden_queries" if may_lack_keys(call) else "queries", f"{seen}keys")}',
        "in_range = Equal (zero_scalar, zero_scalar)",
        "test_device_bodies -k guard",
    ),
    fault(
        "what is hidden decides the form of additive scores",
        '"hidden_queries" if may_lack_keys(call) else "queries", f"{seen}keys"',
        '"queries", "keys"',
        "test_bodies -k numbers",
    ),
)
