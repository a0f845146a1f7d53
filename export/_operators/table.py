"""Table of op handlers: TensorFlow operators, their handlers, and the reasons why tf2onnx's own are not used.

To add an operator, write a function with the operator's name in snake case in this folder, and add a row. The function
gets tf2onnx's graph and the node, and replaces the node with the helpers of `graph_builder.py`. If the node is
unsupported, the function returns the reason for the error message, else None. `ConvertedFunction` of the tests compares
the result with TensorFlow.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from . import partly_supported
from .control_flow import if_branches, tensor_array_loops, tensor_arrays
from .graph_builder import RejectionReason
from .images import convolution_pooling, depth_to_space, hsv, resize_images, scale_and_translate
from .images.transposed_convolutions import conv_backprop_input
from .indexing import data_movement, matrix_diag, scatter_segments, selection
from .numbers import elementwise, integer_division, special_functions, wider_dtypes
from .numbers.cumulative_product import cumprod
from .numbers.einsum import einsum
from .numbers.training import fake_quant_with_min_max, sparse_softmax_cross_entropy_with_logits
from .signals import fft
from .signals.split_complex import TRANSFORMS
from .text import hash_buckets, ragged_tensors, string_ops, unicode_and_bytes, unicode_normalization, wordpiece
from .text.regex_replace import static_regex_replace

Convert = Callable[[Any, Any], RejectionReason]


class Handler(NamedTuple):
    """The handler of one TensorFlow operator.

    Attributes:
        name: The operator.
        convert: The function that converts a node, or returns the reason why the node is unsupported.
        reason: The fault of tf2onnx's own handler, or "no mapping"; a user of the operator may follow.
    """

    name: str
    convert: Convert
    reason: str


@dataclass(eq=False)
class RejectedNodeError(Exception):
    """A node, by its operator and name, that its handler does not support, with the reason."""

    op_type: str
    node: str
    reason: str


def _expand_rows(*rows: tuple[str, Convert, str]) -> list[Handler]:
    """Return a handler for each operator of each row; a row names its operators in one string, separated by spaces."""
    return [Handler(name, convert, reason) for names, convert, reason in rows for name in names.split()]


_EXTENSIONS = "needs onnxruntime-extensions"

NUMBERS = _expand_rows(
    ("SelectV2", elementwise.select, "`mask * x + (1 - mask) * y` is NaN if the unselected element is infinite"),
    ("Select", elementwise.select, "as `SelectV2`; `tf.nn.sigmoid_cross_entropy_with_logits`"),
    ("Erfc", elementwise.erfc, "no mapping; the exact GELU"),
    ("Bitcast", elementwise.bitcast, "no mapping; `keras.ops.argmax` reads sign bits to order -0.0 and 0.0"),
    ("Log1p", special_functions.log1p, "no mapping"),
    ("Expm1", special_functions.expm1, "no mapping"),
    ("SparseSoftmaxCrossEntropyWithLogits", sparse_softmax_cross_entropy_with_logits, "NaN if a logit is -inf"),
    ("CTCGreedyDecoder", partly_supported.ctc_greedy_decoder, "the blank is always the last class"),
    ("FakeQuantWithMinMaxArgs FakeQuantWithMinMaxVars", fake_quant_with_min_max, "8 bits only; ties to even"),
    ("FakeQuantWithMinMaxVarsPerChannel", fake_quant_with_min_max, "no mapping"),
    ("AddN", elementwise.add_n, "floats only"),
    ("Snapshot PreventGradient DeepCopy", elementwise.identity, "no mapping"),
    ("PlaceholderWithDefault", elementwise.identity, "only as a graph input"),
    ("BiasAdd", elementwise.bias_add, "adds a computed bias to the last axis even with channels first"),
    ("ClipByValue", elementwise.clip_by_value, "scalar limits only"),
    ("Softplus", elementwise.softplus, "infinite in float16 for x >= 12, and in float64"),
    ("Einsum", einsum, "`A` and `a` are one axis; a matrix product becomes fifteen operators"),
    ("Log", elementwise.log, "fails for float16; float64 becomes float32"),
    ("Inv", elementwise.inv, "no mapping"),
    ("MulNoNan Xdivy Xlogy", elementwise.mul_no_nan_xdivy_xlogy, "no mapping"),
    ("BatchMatMul BatchMatMulV2 BatchMatMulV3", elementwise.batch_mat_mul, "fails for the adjoint of integers"),
    ("FloorDiv", integer_division.floor_div, "`Div` rounds integers towards zero"),
    ("FloorMod", integer_division.floor_mod, "uses `Div`, which rounds integers towards zero"),
    ("TruncateDiv", integer_division.div_and_truncate_div, "does not truncate floats"),
    ("Div", integer_division.div_and_truncate_div, "minimal integer / -1 ends the process"),
    ("TruncateMod", integer_division.truncate_mod, "no mapping"),
    ("LeftShift", integer_division.left_shift_and_right_shift, "64-bit integers; counts beyond the number of bits"),
    ("RightShift", integer_division.left_shift_and_right_shift, "8, 16 and 64 bits: shifts in zeros, not the sign"),
    ("Cumprod", cumprod, "not along the last axis"),
    ("BesselI0", special_functions.bessel_i0, "no mapping; `keras.ops.i0`"),
    ("Atan2", special_functions.atan2, "wrong for zeros and infinities"),
    ("IsFinite", wider_dtypes.is_finite, "two operators, one of which has no float16 kernel"),
    (" ".join(wider_dtypes.WIDENED_OPS), wider_dtypes.convert_widened, "few dtypes, or integers become float32"),
    ("Sum Prod Mean", wider_dtypes.sum_prod_mean, "few dtypes; 0 instead of NaN for the mean of an empty tensor"),
    ("MatrixDeterminant", partly_supported.matrix_determinant, "onnxruntime has no `Det` of float64"),
)
INDEXING = _expand_rows(
    ("Bucketize", selection.bucketize, "no mapping; `keras.layers.Discretization`"),
    ("LowerBound UpperBound", selection.searchsorted, "no mapping; `keras.ops.searchsorted`"),
    ("OneHot", selection.one_hot, "-1 selects the last class; few dtypes"),
    ("ArgMax ArgMin", selection.arg_max_and_arg_min, "few dtypes in onnxruntime"),
    ("TopKV2", selection.top_k, "integers become float32, which is not exact"),
    ("InTopKV2", selection.in_top_k, "no mapping; `keras.ops.in_top_k`"),
    ("GatherV2", selection.gather, "no negative `batch_dims`; no rows of strings"),
    ("Cross", selection.cross, "no mapping; `keras.ops.cross`"),
    ("BroadcastArgs", selection.broadcast_args, "no mapping; `keras.ops.linspace` between tensors"),
    ("SparseToDense", scatter_segments.sparse_to_dense, "no int32 indices and sizes"),
    ("ScatterNd", scatter_segments.scatter_nd, "keeps one row of an index instead of the sum of all"),
    (
        "TensorScatterAdd TensorScatterSub TensorScatterMax TensorScatterMin",
        scatter_segments.tensor_scatter,
        "few dtypes",
    ),
    (
        "SegmentSum SegmentProd SegmentMax SegmentMin SegmentMean UnsortedSegmentSum UnsortedSegmentProd "
        "UnsortedSegmentMax UnsortedSegmentMin SparseSegmentSum SparseSegmentSumWithNumSegments SparseSegmentMean "
        "SparseSegmentMeanWithNumSegments SparseSegmentSqrtN SparseSegmentSqrtNWithNumSegments",
        scatter_segments.segment_reduction,
        "id -1 is the last segment; empty segments are infinite",
    ),
    ("Bincount DenseBincount", scatter_segments.bincount, "no weights"),
    ("XlaDynamicUpdateSlice", data_movement.xla_dynamic_update_slice, "no mapping; `keras.ops.slice_update`"),
    ("InvertPermutation", data_movement.invert_permutation, "int64 instead of int32"),
    ("Reshape", data_movement.reshape, "a size of 0 copies that of the input"),
    ("Roll", data_movement.roll, "fails for empty axes"),
    ("ReverseSequence", data_movement.reverse_sequence, "onnxruntime supports the first two axes only"),
    ("StridedSlice", data_movement.strided_slice, "ignores an end of 0 after a negative begin"),
    ("DynamicPartition", data_movement.dynamic_partition, "partitions of rank 1 only"),
    ("DynamicStitch ParallelDynamicStitch", data_movement.dynamic_stitch, "indices of rank 1, each one once, only"),
    ("SplitV", data_movement.split_v, "keeps a size of -1 if the axis is unknown"),
    ("Transpose", data_movement.transpose, "no negative axes"),
    ("PadV2", data_movement.pad, "fails for float16, booleans and small integers"),
    (
        "MatrixDiag MatrixDiagV2 MatrixDiagV3",
        matrix_diag.matrix_diag,
        "fails for empty axes; operators outside of ONNX",
    ),
    ("MatrixDiagPart MatrixDiagPartV2 MatrixDiagPartV3", matrix_diag.matrix_diag_part, "as `MatrixDiag`"),
    ("MatrixSetDiag MatrixSetDiagV2 MatrixSetDiagV3", matrix_diag.matrix_set_diag, "as `MatrixDiag`"),
    ("MatrixBandPart", matrix_diag.matrix_band_part, "multiplies by a mask: infinity becomes NaN"),
    ("NonMaxSuppressionV5", partly_supported.non_max_suppression, "drops `soft_nms_sigma`"),
)
_PADDING = "negative padding if sizes are unknown and windows leave gaps; integers as float32"
IMAGES = _expand_rows(
    (
        "ResizeNearestNeighbor ResizeBilinear",
        resize_images.resize,
        "other rounding at some sizes; floats of rank 4 only",
    ),
    ("ResizeBicubic", resize_images.resize, "TensorFlow's weights are in steps of 1/1024"),
    ("ResizeArea", resize_images.resize, "nearest neighbour instead: ONNX has no such mode"),
    ("ScaleAndTranslate", scale_and_translate.scale_and_translate, "no mapping; resizing with `antialias`; Lanczos"),
    ("CropAndResize", partly_supported.crop_and_resize, "rounds to another nearest neighbour"),
    ("RGBToHSV", hsv.rgb_to_hsv, "no mapping"),
    ("HSVToRGB", hsv.hsv_to_rgb, "no mapping"),
    (
        "AdjustSaturation",
        hsv.adjust_saturation,
        "restores the order of colours by the sorting permutation, not its inverse",
    ),
    ("ExtractImagePatches", convolution_pooling.extract_patches, "known sizes only; multiplies by zero"),
    ("ExtractVolumePatches", convolution_pooling.extract_patches, "no mapping"),
    ("Conv2D", convolution_pooling.conv2d_and_conv3d, "floats only in onnxruntime"),
    ("Conv3D", convolution_pooling.conv2d_and_conv3d, "one group only; floats only in onnxruntime"),
    ("DepthwiseConv2dNative", convolution_pooling.depthwise_conv2d_native, _PADDING),
    ("MaxPool MaxPoolV2 MaxPool3D AvgPool AvgPool3D", convolution_pooling.max_pool_and_avg_pool, _PADDING),
    ("MaxPoolWithArgmax", convolution_pooling.max_pool_with_argmax, _PADDING),
    ("FusedBatchNorm FusedBatchNormV2 FusedBatchNormV3", partly_supported.fused_batch_norm, "no batch moments"),
    ("Conv2DBackpropInput Conv3DBackpropInputV2", conv_backprop_input, "negative padding if kernel < stride"),
    ("DepthToSpace SpaceToDepth", depth_to_space.depth_to_space_and_space_to_depth, "floats only in onnxruntime"),
    ("SpaceToBatchND BatchToSpaceND", depth_to_space.space_to_batch_nd_and_batch_to_space_nd, "floats only"),
)
_COMPLEX = "ONNX has no complex tensors; `keras.ops.fft` and others"
SIGNALS = _expand_rows(
    ("Complex", fft.complex_, _COMPLEX),
    ("Real Imag", fft.real_and_imag, _COMPLEX),
    ("ComplexAbs", fft.complex_abs, _COMPLEX),
    (" ".join(sorted(TRANSFORMS)), fft.fft, _COMPLEX),
)
TEXTS = _expand_rows(
    ("AsString", partly_supported.as_string, "formats floats and booleans differently"),
    ("StringLower", string_ops.string_lower, _EXTENSIONS),
    ("StringUpper", string_ops.string_upper, _EXTENSIONS),
    ("StringStrip", string_ops.string_strip, "no mapping"),
    ("StringJoin", string_ops.string_join, _EXTENSIONS),
    ("StaticRegexReplace", static_regex_replace, _EXTENSIONS),
    ("StringSplitV2", string_ops.string_split_v2, _EXTENSIONS),
    ("UnicodeDecode", unicode_and_bytes.unicode_decode, "no mapping; `tf.strings.unicode_split`"),
    ("UnicodeEncode", unicode_and_bytes.unicode_encode, "no mapping; `tf.strings.unicode_split`"),
    ("StringSplit", unicode_and_bytes.string_split, _EXTENSIONS),
    ("DecodeRaw", unicode_and_bytes.decode_raw, "no mapping; `keras_hub.tokenizers.ByteTokenizer`"),
    ("StringNGrams", ragged_tensors.string_n_grams, "no mapping"),
    ("RaggedTensorToTensor", ragged_tensors.ragged_tensor_to_tensor, "one type of row partition for all axes only"),
    ("RaggedBincount", ragged_tensors.ragged_bincount, "no mapping"),
    ("StringToHashBucketFast", hash_buckets.string_to_hash_bucket_fast, f"{_EXTENSIONS}; `keras.layers.Hashing`"),
    ("StringToHashBucketStrong", hash_buckets.string_to_hash_bucket_strong, "no mapping; `Hashing` with a salt"),
    ("SparseCross", hash_buckets.sparse_cross, "no mapping; `keras.layers.HashedCrossing`"),
    ("Equal NotEqual", string_ops.equal_and_not_equal, "no strings"),
)
# Operators of TensorFlow Text, which need not be installed
TOKENS = _expand_rows(
    ("NormalizeUTF8", unicode_normalization.normalize_utf8, "no mapping; `tensorflow_text.normalize_utf8`"),
    ("CaseFoldUTF8", unicode_normalization.case_fold_utf8, "no mapping; `tensorflow_text.case_fold_utf8`"),
    ("RegexSplitWithOffsets", wordpiece.regex_split_with_offsets, _EXTENSIONS),
    ("FastWordpieceTokenizeWithOffsets", wordpiece.fast_wordpiece_tokenize_with_offsets, "no mapping"),
)
_ARRAYS = "only arrays that a loop writes or reads; `keras.ops.scan` continues with its `TensorArray`"
LOOPS = _expand_rows(
    ("If StatelessIf", if_branches.if_, "fails if a branch returns a tensor twice"),
    (
        "While StatelessWhile",
        tensor_array_loops.while_,
        "orders the items of a `TensorArray` by iteration, not by index",
    ),
    ("TensorListFromTensor", tensor_arrays.tensor_list_from_tensor, _ARRAYS),
    ("TensorListSetItem", tensor_arrays.tensor_list_set_item, _ARRAYS),
    ("TensorListLength", tensor_arrays.tensor_list_length, _ARRAYS),
    ("TensorListGather", tensor_arrays.tensor_list_gather, "no mapping"),
    ("TensorListConcatV2", tensor_arrays.tensor_list_concat, "no mapping"),
    ("TensorListStack", tensor_array_loops.tensor_list_stack, "reads the outputs of the loop, not the ordered items"),
)
HANDLERS = (*NUMBERS, *INDEXING, *IMAGES, *SIGNALS, *TEXTS, *TOKENS, *LOOPS)


def build_handlers() -> dict[str, tuple[Any, list[Any]]]:
    """Return all handlers by operator, in the form of tf2onnx's `custom_op_handlers`."""
    return {row.name: (adapt_handler(row.name, row.convert), []) for row in HANDLERS}


def adapt_handler(op_type: str, convert: Convert) -> Callable[..., None]:
    """Return a handler with tf2onnx's signature, which raises `RejectedNodeError` if a node is unsupported."""

    def handler(graph: Any, node: Any, name: str, arguments: Any) -> None:
        reason = convert(graph, node)
        if reason is not None:
            raise RejectedNodeError(op_type, name, reason)

    return handler
