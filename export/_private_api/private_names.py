"""Table of the private names of Keras, TensorFlow, tf2onnx, torch and Python that the project uses.

docs/stability.md shows the table. A release of these libraries may change any of the names without notice.
"""

from typing import NamedTuple

# Three lines per row: library and private names; purpose; failure if a release changes one of the names.
_TABLE = """\
Keras: Functional._functional, ._inputs_struct, ._outputs_struct, ._nodes_by_depth, KerasTensor._keras_history
names, structure and operations of functional models
no export of functional models

Keras: Layer._flatten_layers, ._inbound_nodes, ._trainable_variables, ._non_trainable_variables
sublayers and variables of a layer
layers are missing in the manifest; variables are not restored

Keras: keras.src.backend: get_stateless_scope, in_symbolic_scope, rnn, compute_output_spec, ops
loops of `AttentionRNN`, shapes of functions, interception of operations
no recurrent layers; no error limits

Keras: keras.src.backend.common.masking: get_keras_mask, set_keras_mask
implicit masks
masks get lost, which the tests find

Keras: Layer._remat_mode, ._compiled_call_impl
a shorter call of dense layers on torch
slower layers

Keras: ExportArchive._tf_trackable, keras.src.backend.tensorflow.layer.TFLayer._default_save_signature
a SavedModel that holds each weight once
larger SavedModels, or none

Keras: attention layers: _softmax, _attention_axes, _flash_attention, _sliding_window, _inverse_sqrt_key_dim,
  _inverse_sqrt_head_dim, _return_attention_scores
attention layers of Keras and KerasHub as attention calls
these layers are written in plain operators, or refused

TensorFlow: convert_to_constants: _FunctionConverterDataInEager._eval, _replace_variables_by_constants,
  _CONTROL_FLOW_OPS, convert_variables_to_constants_v2
freezing a function, with large weights left out
no export

TensorFlow: grappler.tf_optimizer, framework.tensor_util, core.protobuf: saved_model_pb2, fingerprint_pb2
optimizing a graph; constant values; reproducible SavedModels
no export, or SavedModels that differ from run to run

TensorFlow: framework.op_callbacks, eager.context.eager_mode
perturbed runs; calls while a graph is traced
no error limits

TensorFlow: ops.control_flow_util, ops.control_flow_v2_func_graphs: CondBranchFuncGraph, WhileBodyFuncGraph
whether a call is traced in a loop or a branch
attention in loops is not lowered

tf2onnx: convert._convert_common, with custom_op_handlers, custom_rewriter and extra_opset
converting a frozen graph
no export

tf2onnx: tf_loader: tf_optimize, fix_freezing_errors_part2
TensorFlow's optimizers, and a workaround for a defect of its freezing
no export

tf2onnx: tf_loader.find_function
the converted body of a loop or branch
no loops with a `TensorArray`, no `If`, no LSTM

tf2onnx: tf_loader.tflist_to_onnx
is replaced: it gives the inputs of a branch wrong shapes
convolutions in branches fail

tf2onnx: handler.tf_op: get_opsets, find_effective_op
calling tf2onnx's own handler of an operator
many common operators fail

tf2onnx: graph.Graph and Node: make_node, make_const, remove_node, get_shape, get_dtype, get_rank, replace_input, ...
nodes that handlers write
no handler works

tf2onnx: controlflow: While.version_7, prefix_graph
loops; domains of nodes in branches
no loops; wrong domains, which the check finds

tf2onnx: tfonnx: rewrite_conv2d_with_pad, rewriter_lstm_tf2
are replaced during a conversion
padding before a convolution, or an LSTM in a loop, fails

tf2onnx: optimizer.optimize_graph, TransposeOptimizer._mul_handler, ._shape_handler, ._g,
  back_to_back_optimizer._func_map, EinsumOptimizer._optimize_einsum, EinsumSubOp._onnx_name
are replaced: wrong shapes in some graphs, many copies of a graph, names from addresses in memory
wrong shapes, which the check finds; slower exports; files that differ from run to run

tf2onnx: utils: make_name, INTERNAL_NAME, and every set in its modules
the same names and order in each run
files that differ from run to run

tf2onnx: the logger tf2onnx and two of its messages
the name of an unsupported operator
errors without operator and layer

torch: torch._C._are_functorch_transforms_active, torch.nn.modules.module
a shorter call of dense layers
slower layers

Python: re._parser
the syntax tree of a regular expression
no export of `regex_replace`
"""


class PrivateName(NamedTuple):
    """A row of the table: private names of a library for one purpose, and the failure if one of them changes."""

    library: str
    names: str
    purpose: str
    failure: str


def _parse_table() -> tuple[PrivateName, ...]:
    rows = []
    for row in _TABLE.split("\n\n"):
        names, purpose, failure = row.strip().replace("\n  ", " ").splitlines()
        library, _, names = names.partition(": ")
        rows.append(PrivateName(library, names, purpose, failure))
    return tuple(rows)


PRIVATE_NAMES = _parse_table()
