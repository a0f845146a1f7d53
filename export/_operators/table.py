"""Table of op handlers: TensorFlow operators, their handler, and the reason why tf2onnx's own is not used.

To add an operator, write a function with the operator's name in snake case in a file of this folder, and a row here.
The function gets tf2onnx's graph and the node, and replaces the node with the helpers of `graph_builder.py`. If it
cannot convert the node, it returns the reason, which becomes part of the error that the user sees; else it returns
None. `converted_functions.Converted` in the tests compares the result with TensorFlow.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from . import partly_supported
from .control_flow import if_branches, tensor_array_loops, tensor_arrays
from .graph_builder import Refusal
from .images import convolution_pooling, depth_to_space, hsv, resize_images, scale_and_translate
from .images.transposed_convolutions import conv_backprop_input
from .indexing import data_movement, matrix_diag, scatter_segments, selection
from .numbers import elementwise, integer_division, special_functions, training, wider_dtypes
from .numbers.cumulative_product import cumprod
from .numbers.einsum import einsum
from .signals import fft
from .signals.split_complex import TRANSFORMS
from .text import hash_buckets, ragged_tensors, string_ops, unicode_and_bytes, unicode_normalization, wordpiece
from .text.regex_replace import static_regex_replace

Convert = Callable[[Any, Any], Refusal]


class Handler(NamedTuple):
    """A row of the table, for one operator.

    Attributes:
        name: The operator.
        convert: The function that converts a node, or returns the reason why it cannot.
        why: The reason why tf2onnx's own handler is not used; begins with "no mapping" if there is none.
    """

    name: str
    convert: Convert
    reason: str


@dataclass(eq=False)
class RefusedNodeError(Exception):
    """A node, by its operator and name, that its handler cannot convert, with the reason that the handler returned."""

    op_type: str
    node: str
    reason: str


def _map(names: str, convert: Convert, why: str) -> list[Handler]:
    """Return the rows of several operators, whose names are separated by spaces."""
    return [Handler(name, convert, why) for name in names.split()]


_EXTENSION_OPERATOR = "an operator outside of ONNX"

NUMBERS = [
    *_map("SelectV2", elementwise.select, "`mask * x + (1 - mask) * y` is NaN where the unselected is infinite"),
    *_map("Select", elementwise.select, "as `SelectV2`; `tf.nn.sigmoid_cross_entropy_with_logits`"),
    *_map("Erfc", elementwise.erfc, "no mapping; the exact GELU"),
    *_map("Bitcast", elementwise.bitcast, "no mapping; `keras.ops.argmax` reads a sign bit, to order -0.0 and 0.0"),
    *_map("Log1p", special_functions.log1p, "no mapping"),
    *_map("Expm1", special_functions.expm1, "no mapping"),
    *_map(
        "SparseSoftmaxCrossEntropyWithLogits",
        training.sparse_softmax_cross_entropy_with_logits,
        "NaN where the logit of another class is -inf",
    ),
    *_map("CTCGreedyDecoder", partly_supported.ctc_greedy_decoder, "the blank is always the last class"),
    *_map(
        "FakeQuantWithMinMaxArgs FakeQuantWithMinMaxVars",
        training.fake_quant_with_min_max,
        "8 bits only, rounded to even",
    ),
    *_map("FakeQuantWithMinMaxVarsPerChannel", training.fake_quant_with_min_max, "no mapping"),
    *_map("AddN", elementwise.add_n, "floats only"),
    *_map("Snapshot PreventGradient DeepCopy", elementwise.identity, "no mapping"),
    *_map("PlaceholderWithDefault", elementwise.identity, "only an input of the graph"),
    *_map(
        "BiasAdd", elementwise.bias_add, "with channels first, a bias that is not constant is added to the last axis"
    ),
    *_map("ClipByValue", elementwise.clip_by_value, "only scalar limits"),
    *_map("Softplus", elementwise.softplus, "infinite in float16 from 12 on, and in float64"),
    *_map("Einsum", einsum, "`A` and `a` are one axis; a product of matrices becomes fifteen operators"),
    *_map("Log", elementwise.log, "fails for float16, and float64 becomes float32"),
    *_map("Inv", elementwise.inv, "no mapping"),
    *_map("MulNoNan Xdivy Xlogy", elementwise.mul_no_nan_xdivy_xlogy, "no mapping"),
    *_map("BatchMatMul BatchMatMulV2 BatchMatMulV3", elementwise.batch_mat_mul, "fails for the adjoint of integers"),
    *_map("FloorDiv", integer_division.floor_div, "`Div` rounds integers towards zero"),
    *_map("FloorMod", integer_division.floor_mod, "based on `Div`, which rounds integers towards zero"),
    *_map("TruncateDiv", integer_division.div_and_truncate_div, "floats are not truncated"),
    *_map("Div", integer_division.div_and_truncate_div, "the least integer by -1 ends the process"),
    *_map("TruncateMod", integer_division.truncate_mod, "no mapping"),
    *_map("LeftShift", integer_division.left_shift_and_right_shift, "64-bit integers, and counts beyond the bits"),
    *_map("RightShift", integer_division.left_shift_and_right_shift, "8, 16 and 64 bits shift in zeros, not the sign"),
    *_map("Cumprod", cumprod, "the last axis is refused"),
    *_map("BesselI0", special_functions.bessel_i0, "no mapping; `keras.ops.i0`"),
    *_map("Atan2", special_functions.atan2, "zeros and infinities"),
    *_map("IsFinite", wider_dtypes.is_finite, "two operators, of which one does not take float16"),
    *_map(" ".join(wider_dtypes.WIDENED_OPS), wider_dtypes.convert_widened, "few dtypes, or integers become float32"),
    *_map("Sum Prod Mean", wider_dtypes.sum_prod_mean, "few dtypes; the mean of nothing is 0"),
    *_map("MatrixDeterminant", partly_supported.matrix_determinant, "onnxruntime has no `Det` of float64"),
]
INDEXING = [
    *_map("Bucketize", selection.bucketize, "no mapping; `keras.layers.Discretization`"),
    *_map("LowerBound UpperBound", selection.searchsorted, "no mapping; `keras.ops.searchsorted`"),
    *_map("OneHot", selection.one_hot, "-1 is the last class; few dtypes"),
    *_map("ArgMax ArgMin", selection.arg_max_and_arg_min, "onnxruntime has few dtypes"),
    *_map("TopKV2", selection.top_k, "integers become float32, which does not hold all of them"),
    *_map("InTopKV2", selection.in_top_k, "no mapping; `keras.ops.in_top_k`"),
    *_map("GatherV2", selection.gather, "negative `batch_dims` are not supported; rows of strings"),
    *_map("Cross", selection.cross, "no mapping; `keras.ops.cross`"),
    *_map("BroadcastArgs", selection.broadcast_args, "no mapping; `keras.ops.linspace` between tensors"),
    *_map("SparseToDense", scatter_segments.sparse_to_dense, "indices and sizes of int32"),
    *_map("ScatterNd", scatter_segments.scatter_nd, "of several rows for one index, one is kept instead of the sum"),
    *_map(
        "TensorScatterAdd TensorScatterSub TensorScatterMax TensorScatterMin",
        scatter_segments.tensor_scatter,
        "few dtypes",
    ),
    *_map(
        "SegmentSum SegmentProd SegmentMax SegmentMin SegmentMean UnsortedSegmentSum UnsortedSegmentProd "
        "UnsortedSegmentMax UnsortedSegmentMin SparseSegmentSum SparseSegmentSumWithNumSegments SparseSegmentMean "
        "SparseSegmentMeanWithNumSegments SparseSegmentSqrtN SparseSegmentSqrtNWithNumSegments",
        scatter_segments.segment_reduction,
        "ids of -1 are those of the last segment, and empty segments infinite",
    ),
    *_map("Bincount DenseBincount", scatter_segments.bincount, "no weights"),
    *_map("XlaDynamicUpdateSlice", data_movement.xla_dynamic_update_slice, "no mapping; `keras.ops.slice_update`"),
    *_map("InvertPermutation", data_movement.invert_permutation, "int64 instead of int32"),
    *_map("Reshape", data_movement.reshape, "a size of 0 copies that of the input"),
    *_map("Roll", data_movement.roll, "fails on an axis of 0"),
    *_map("ReverseSequence", data_movement.reverse_sequence, "onnxruntime supports the first two axes only"),
    *_map("StridedSlice", data_movement.strided_slice, "an end of 0 after a negative begin is ignored"),
    *_map("DynamicPartition", data_movement.dynamic_partition, "numbers on one axis only"),
    *_map(
        "DynamicStitch ParallelDynamicStitch",
        data_movement.dynamic_stitch,
        "as many rows as there are indices, whatever they are; one axis only",
    ),
    *_map("SplitV", data_movement.split_v, "a size of -1 is kept if the axis is unknown"),
    *_map("Transpose", data_movement.transpose, "axes counted from the end"),
    *_map("PadV2", data_movement.pad, "fails for float16, booleans and small integers"),
    *_map(
        "MatrixDiag MatrixDiagV2 MatrixDiagV3",
        matrix_diag.matrix_diag,
        "fails on axes of 0, and with operators outside of ONNX",
    ),
    *_map("MatrixDiagPart MatrixDiagPartV2 MatrixDiagPartV3", matrix_diag.matrix_diag_part, "as `MatrixDiag`"),
    *_map("MatrixSetDiag MatrixSetDiagV2 MatrixSetDiagV3", matrix_diag.matrix_set_diag, "as `MatrixDiag`"),
    *_map("MatrixBandPart", matrix_diag.matrix_band_part, "multiplies by a mask, where infinity becomes NaN"),
    *_map("NonMaxSuppressionV5", partly_supported.non_max_suppression, "`soft_nms_sigma` was dropped"),
]
_GAPS = "negative padding at unknown sizes if windows leave gaps; integers as float32"
IMAGES = [
    *_map(
        "ResizeNearestNeighbor ResizeBilinear",
        resize_images.resize,
        "rounds otherwise than TensorFlow at some sizes; needs floats, and rank 4",
    ),
    *_map("ResizeBicubic", resize_images.resize, "TensorFlow's weights are in steps of 1/1024"),
    *_map("ResizeArea", resize_images.resize, "ONNX has no such mode; the nearest was taken"),
    *_map(
        "ScaleAndTranslate",
        scale_and_translate.scale_and_translate,
        "no mapping; resizing with `antialias`, and Lanczos",
    ),
    *_map("CropAndResize", partly_supported.crop_and_resize, "rounds otherwise than TensorFlow"),
    *_map("RGBToHSV", hsv.rgb_to_hsv, "no mapping"),
    *_map("HSVToRGB", hsv.hsv_to_rgb, "no mapping"),
    *_map("AdjustSaturation", hsv.adjust_saturation, "the middle colour of three keeps its distance"),
    *_map("ExtractImagePatches", convolution_pooling.extract_patches, "needs sizes that are known; multiplies by zero"),
    *_map("ExtractVolumePatches", convolution_pooling.extract_patches, "no mapping"),
    *_map("Conv2D", convolution_pooling.conv2d_and_conv3d, "onnxruntime has floats only"),
    *_map("Conv3D", convolution_pooling.conv2d_and_conv3d, "always one group; onnxruntime has floats only"),
    *_map("DepthwiseConv2dNative", convolution_pooling.depthwise_conv2d_native, _GAPS),
    *_map("MaxPool MaxPoolV2 MaxPool3D AvgPool AvgPool3D", convolution_pooling.max_pool_and_avg_pool, _GAPS),
    *_map("MaxPoolWithArgmax", convolution_pooling.max_pool_with_argmax, _GAPS),
    *_map(
        "FusedBatchNorm FusedBatchNormV2 FusedBatchNormV3",
        partly_supported.fused_batch_norm,
        "no moments, which training needs",
    ),
    *_map(
        "Conv2DBackpropInput Conv3DBackpropInputV2",
        conv_backprop_input,
        "negative padding if a kernel is shorter than its stride; refuses some sizes",
    ),
    *_map("DepthToSpace SpaceToDepth", depth_to_space.depth_to_space_and_space_to_depth, "onnxruntime has floats only"),
    *_map("SpaceToBatchND BatchToSpaceND", depth_to_space.space_to_batch_nd_and_batch_to_space_nd, "floats only"),
]
_COMPLEX = "ONNX has no complex tensors; `keras.ops.fft` and others"
SIGNALS = [
    *_map("Complex", fft.complex_, _COMPLEX),
    *_map("Real Imag", fft.real_and_imag, _COMPLEX),
    *_map("ComplexAbs", fft.complex_abs, _COMPLEX),
    *_map(" ".join(sorted(TRANSFORMS)), fft.fft, _COMPLEX),
]
TEXTS = [
    *_map("AsString", partly_supported.as_string, "floats and booleans are written otherwise"),
    *_map("StringLower", string_ops.string_lower, _EXTENSION_OPERATOR),
    *_map("StringUpper", string_ops.string_upper, _EXTENSION_OPERATOR),
    *_map("StringStrip", string_ops.string_strip, "no mapping"),
    *_map("StringJoin", string_ops.string_join, _EXTENSION_OPERATOR),
    *_map("StaticRegexReplace", static_regex_replace, _EXTENSION_OPERATOR),
    *_map("StringSplitV2", string_ops.string_split_v2, _EXTENSION_OPERATOR),
    *_map("UnicodeDecode", unicode_and_bytes.unicode_decode, "no mapping; `tf.strings.unicode_split`"),
    *_map("UnicodeEncode", unicode_and_bytes.unicode_encode, "no mapping; `tf.strings.unicode_split`"),
    *_map("StringSplit", unicode_and_bytes.string_split, _EXTENSION_OPERATOR),
    *_map("DecodeRaw", unicode_and_bytes.decode_raw, "no mapping; `keras_hub.tokenizers.ByteTokenizer`"),
    *_map("StringNGrams", ragged_tensors.string_n_grams, "no mapping"),
    *_map("RaggedTensorToTensor", ragged_tensors.ragged_tensor_to_tensor, _EXTENSION_OPERATOR),
    *_map("RaggedBincount", ragged_tensors.ragged_bincount, "no mapping"),
    *_map(
        "StringToHashBucketFast",
        hash_buckets.string_to_hash_bucket_fast,
        f"{_EXTENSION_OPERATOR}; `keras.layers.Hashing`",
    ),
    *_map("StringToHashBucketStrong", hash_buckets.string_to_hash_bucket_strong, "no mapping; as above with a salt"),
    *_map("SparseCross", hash_buckets.sparse_cross, "no mapping; `keras.layers.HashedCrossing`"),
    *_map("Equal NotEqual", string_ops.equal_and_not_equal, "no strings"),
]
TOKENS = [  # of TensorFlow Text, which need not be installed
    *_map("NormalizeUTF8", unicode_normalization.normalize_utf8, "no mapping; `tensorflow_text.normalize_utf8`"),
    *_map("CaseFoldUTF8", unicode_normalization.case_fold_utf8, "no mapping; `tensorflow_text.case_fold_utf8`"),
    *_map("RegexSplitWithOffsets", wordpiece.regex_split_with_offsets, _EXTENSION_OPERATOR),
    *_map(
        "FastWordpieceTokenizeWithOffsets",
        wordpiece.fast_wordpiece_tokenize_with_offsets,
        "no mapping; `keras_hub.tokenizers.WordPieceTokenizer`",
    ),
]
_ARRAYS = "only for what a loop writes or reads; `keras.ops.scan` continues with a `TensorArray`"
LOOPS = [
    *_map("If StatelessIf", if_branches.if_, "fails if a branch returns a tensor twice"),
    *_map(
        "While StatelessWhile",
        tensor_array_loops.while_,
        "the items of a `TensorArray` are in the order of the iterations, whatever the index",
    ),
    *_map("TensorListFromTensor", tensor_arrays.tensor_list_from_tensor, _ARRAYS),
    *_map("TensorListSetItem", tensor_arrays.tensor_list_set_item, _ARRAYS),
    *_map("TensorListLength", tensor_arrays.tensor_list_length, _ARRAYS),
    *_map("TensorListGather", tensor_arrays.tensor_list_gather, "no mapping"),
    *_map("TensorListConcatV2", tensor_arrays.tensor_list_concat, "no mapping"),
    *_map(
        "TensorListStack", tensor_array_loops.tensor_list_stack, "reads the loop itself, not the items in their order"
    ),
]
HANDLERS = (*NUMBERS, *INDEXING, *IMAGES, *SIGNALS, *TEXTS, *TOKENS, *LOOPS)


def handlers() -> dict[str, tuple[Any, list[Any]]]:
    """Return the table in tf2onnx's form, by the names of the operators."""
    return {row.name: (raising(row.name, row.convert), []) for row in HANDLERS}


def raising(op_type: str, convert: Convert) -> Callable[..., None]:
    """Return a handler of tf2onnx, which raises `RefusedNodeError` if the function returns a reason."""

    def handler(graph: Any, node: Any, name: str, arguments: Any) -> None:
        reason = convert(graph, node)
        if reason is not None:
            raise RefusedNodeError(op_type, name, reason)

    return handler
