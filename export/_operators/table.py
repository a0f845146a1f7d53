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
    why: str


@dataclass(eq=False)
class RefusedNodeError(Exception):
    """A node, by its operator and name, that its handler cannot convert, with the reason that the handler returned."""

    op_type: str
    node: str
    reason: str


def _rows(names: str, convert: Convert, why: str) -> list[Handler]:
    """Return the rows of several operators, whose names are separated by spaces."""
    return [Handler(name, convert, why) for name in names.split()]


_OPERATOR = "an operator outside of ONNX"

NUMBERS = [
    *_rows("SelectV2", elementwise.select, "`mask * x + (1 - mask) * y` is NaN where the unselected is infinite"),
    *_rows("Select", elementwise.select, "as `SelectV2`; `tf.nn.sigmoid_cross_entropy_with_logits`"),
    *_rows("Erfc", elementwise.erfc, "no mapping; the exact GELU"),
    *_rows("Bitcast", elementwise.bitcast, "no mapping; `keras.ops.argmax` reads a sign bit, to order -0.0 and 0.0"),
    *_rows("Log1p", special_functions.log1p, "no mapping"),
    *_rows("Expm1", special_functions.expm1, "no mapping"),
    *_rows(
        "SparseSoftmaxCrossEntropyWithLogits",
        training.sparse_softmax_cross_entropy_with_logits,
        "NaN where the logit of another class is -inf",
    ),
    *_rows("CTCGreedyDecoder", partly_supported.ctc_greedy_decoder, "the blank is always the last class"),
    *_rows(
        "FakeQuantWithMinMaxArgs FakeQuantWithMinMaxVars",
        training.fake_quant_with_min_max,
        "8 bits only, rounded to even",
    ),
    *_rows("FakeQuantWithMinMaxVarsPerChannel", training.fake_quant_with_min_max, "no mapping"),
    *_rows("AddN", elementwise.add_n, "floats only"),
    *_rows("Snapshot PreventGradient DeepCopy", elementwise.identity, "no mapping"),
    *_rows("PlaceholderWithDefault", elementwise.identity, "only an input of the graph"),
    *_rows(
        "BiasAdd", elementwise.bias_add, "with channels first, a bias that is not constant is added to the last axis"
    ),
    *_rows("ClipByValue", elementwise.clip_by_value, "only scalar limits"),
    *_rows("Softplus", elementwise.softplus, "infinite in float16 from 12 on, and in float64"),
    *_rows("Einsum", einsum, "`A` and `a` are one axis; a product of matrices becomes fifteen operators"),
    *_rows("Log", elementwise.log, "fails for float16, and float64 becomes float32"),
    *_rows("Inv", elementwise.inv, "no mapping"),
    *_rows("MulNoNan Xdivy Xlogy", elementwise.mul_no_nan_xdivy_xlogy, "no mapping"),
    *_rows("BatchMatMul BatchMatMulV2 BatchMatMulV3", elementwise.batch_mat_mul, "fails for the adjoint of integers"),
    *_rows("FloorDiv", integer_division.floor_div, "`Div` rounds integers towards zero"),
    *_rows("FloorMod", integer_division.floor_mod, "based on `Div`, which rounds integers towards zero"),
    *_rows("TruncateDiv", integer_division.div_and_truncate_div, "floats are not truncated"),
    *_rows("Div", integer_division.div_and_truncate_div, "the least integer by -1 ends the process"),
    *_rows("TruncateMod", integer_division.truncate_mod, "no mapping"),
    *_rows("LeftShift", integer_division.left_shift_and_right_shift, "64-bit integers, and counts beyond the bits"),
    *_rows("RightShift", integer_division.left_shift_and_right_shift, "8, 16 and 64 bits shift in zeros, not the sign"),
    *_rows("Cumprod", cumprod, "the last axis is refused"),
    *_rows("BesselI0", special_functions.bessel_i0, "no mapping; `keras.ops.i0`"),
    *_rows("Atan2", special_functions.atan2, "zeros and infinities"),
    *_rows("IsFinite", wider_dtypes.is_finite, "two operators, of which one does not take float16"),
    *_rows(" ".join(wider_dtypes.FEW_DTYPES), wider_dtypes.few_dtypes, "few dtypes, or integers become float32"),
    *_rows("Sum Prod Mean", wider_dtypes.sum_prod_mean, "few dtypes; the mean of nothing is 0"),
    *_rows("MatrixDeterminant", partly_supported.matrix_determinant, "onnxruntime has no `Det` of float64"),
]
INDEXING = [
    *_rows("Bucketize", selection.bucketize, "no mapping; `keras.layers.Discretization`"),
    *_rows("LowerBound UpperBound", selection.searchsorted, "no mapping; `keras.ops.searchsorted`"),
    *_rows("OneHot", selection.one_hot, "-1 is the last class; few dtypes"),
    *_rows("ArgMax ArgMin", selection.arg_max_and_arg_min, "onnxruntime has few dtypes"),
    *_rows("TopKV2", selection.top_k, "integers become float32, which does not hold all of them"),
    *_rows("InTopKV2", selection.in_top_k, "no mapping; `keras.ops.in_top_k`"),
    *_rows("GatherV2", selection.gather, "negative `batch_dims` are not supported; rows of strings"),
    *_rows("Cross", selection.cross, "no mapping; `keras.ops.cross`"),
    *_rows("BroadcastArgs", selection.broadcast_args, "no mapping; `keras.ops.linspace` between tensors"),
    *_rows("SparseToDense", scatter_segments.sparse_to_dense, "indices and sizes of int32"),
    *_rows("ScatterNd", scatter_segments.scatter_nd, "of several rows for one index, one is kept instead of the sum"),
    *_rows(
        "TensorScatterAdd TensorScatterSub TensorScatterMax TensorScatterMin",
        scatter_segments.tensor_scatter,
        "few dtypes",
    ),
    *_rows(
        "SegmentSum SegmentProd SegmentMax SegmentMin SegmentMean UnsortedSegmentSum UnsortedSegmentProd "
        "UnsortedSegmentMax UnsortedSegmentMin SparseSegmentSum SparseSegmentSumWithNumSegments SparseSegmentMean "
        "SparseSegmentMeanWithNumSegments SparseSegmentSqrtN SparseSegmentSqrtNWithNumSegments",
        scatter_segments.segment_reduction,
        "ids of -1 are those of the last segment, and empty segments infinite",
    ),
    *_rows("Bincount DenseBincount", scatter_segments.bincount, "no weights"),
    *_rows("XlaDynamicUpdateSlice", data_movement.xla_dynamic_update_slice, "no mapping; `keras.ops.slice_update`"),
    *_rows("InvertPermutation", data_movement.invert_permutation, "int64 instead of int32"),
    *_rows("Reshape", data_movement.reshape, "a size of 0 copies that of the input"),
    *_rows("Roll", data_movement.roll, "fails on an axis of 0"),
    *_rows("ReverseSequence", data_movement.reverse_sequence, "onnxruntime supports the first two axes only"),
    *_rows("StridedSlice", data_movement.strided_slice, "an end of 0 after a negative begin is ignored"),
    *_rows("DynamicPartition", data_movement.dynamic_partition, "numbers on one axis only"),
    *_rows(
        "DynamicStitch ParallelDynamicStitch",
        data_movement.dynamic_stitch,
        "as many rows as there are indices, whatever they are; one axis only",
    ),
    *_rows("SplitV", data_movement.split_v, "a size of -1 is kept if the axis is unknown"),
    *_rows("Transpose", data_movement.transpose, "axes counted from the end"),
    *_rows("PadV2", data_movement.pad, "fails for float16, booleans and small integers"),
    *_rows(
        "MatrixDiag MatrixDiagV2 MatrixDiagV3",
        matrix_diag.matrix_diag,
        "fails on axes of 0, and with operators outside of ONNX",
    ),
    *_rows("MatrixDiagPart MatrixDiagPartV2 MatrixDiagPartV3", matrix_diag.matrix_diag_part, "as `MatrixDiag`"),
    *_rows("MatrixSetDiag MatrixSetDiagV2 MatrixSetDiagV3", matrix_diag.matrix_set_diag, "as `MatrixDiag`"),
    *_rows("MatrixBandPart", matrix_diag.matrix_band_part, "multiplies by a mask, where infinity becomes NaN"),
    *_rows("NonMaxSuppressionV5", partly_supported.non_max_suppression, "`soft_nms_sigma` was dropped"),
]
_GAPS = "negative padding at unknown sizes if windows leave gaps; integers as float32"
IMAGES = [
    *_rows(
        "ResizeNearestNeighbor ResizeBilinear",
        resize_images.resize,
        "rounds otherwise than TensorFlow at some sizes; needs floats, and rank 4",
    ),
    *_rows("ResizeBicubic", resize_images.resize, "TensorFlow's weights are in steps of 1/1024"),
    *_rows("ResizeArea", resize_images.resize, "ONNX has no such mode; the nearest was taken"),
    *_rows(
        "ScaleAndTranslate",
        scale_and_translate.scale_and_translate,
        "no mapping; resizing with `antialias`, and Lanczos",
    ),
    *_rows("CropAndResize", partly_supported.crop_and_resize, "rounds otherwise than TensorFlow"),
    *_rows("RGBToHSV", hsv.rgb_to_hsv, "no mapping"),
    *_rows("HSVToRGB", hsv.hsv_to_rgb, "no mapping"),
    *_rows("AdjustSaturation", hsv.adjust_saturation, "the middle colour of three keeps its distance"),
    *_rows(
        "ExtractImagePatches", convolution_pooling.extract_patches, "needs sizes that are known; multiplies by zero"
    ),
    *_rows("ExtractVolumePatches", convolution_pooling.extract_patches, "no mapping"),
    *_rows("Conv2D", convolution_pooling.conv2d_and_conv3d, "onnxruntime has floats only"),
    *_rows("Conv3D", convolution_pooling.conv2d_and_conv3d, "always one group; onnxruntime has floats only"),
    *_rows("DepthwiseConv2dNative", convolution_pooling.depthwise_conv2d_native, _GAPS),
    *_rows("MaxPool MaxPoolV2 MaxPool3D AvgPool AvgPool3D", convolution_pooling.max_pool_and_avg_pool, _GAPS),
    *_rows("MaxPoolWithArgmax", convolution_pooling.max_pool_with_argmax, _GAPS),
    *_rows(
        "FusedBatchNorm FusedBatchNormV2 FusedBatchNormV3",
        partly_supported.fused_batch_norm,
        "no moments, which training needs",
    ),
    *_rows(
        "Conv2DBackpropInput Conv3DBackpropInputV2",
        conv_backprop_input,
        "negative padding if a kernel is shorter than its stride; refuses some sizes",
    ),
    *_rows(
        "DepthToSpace SpaceToDepth", depth_to_space.depth_to_space_and_space_to_depth, "onnxruntime has floats only"
    ),
    *_rows("SpaceToBatchND BatchToSpaceND", depth_to_space.space_to_batch_nd_and_batch_to_space_nd, "floats only"),
]
_COMPLEX = "ONNX has no complex tensors; `keras.ops.fft` and others"
SIGNALS = [
    *_rows("Complex", fft.complex_, _COMPLEX),
    *_rows("Real Imag", fft.real_and_imag, _COMPLEX),
    *_rows("ComplexAbs", fft.complex_abs, _COMPLEX),
    *_rows(" ".join(sorted(TRANSFORMS)), fft.fft, _COMPLEX),
]
TEXTS = [
    *_rows("AsString", partly_supported.as_string, "floats and booleans are written otherwise"),
    *_rows("StringLower", string_ops.string_lower, _OPERATOR),
    *_rows("StringUpper", string_ops.string_upper, _OPERATOR),
    *_rows("StringStrip", string_ops.string_strip, "no mapping"),
    *_rows("StringJoin", string_ops.string_join, _OPERATOR),
    *_rows("StaticRegexReplace", static_regex_replace, _OPERATOR),
    *_rows("StringSplitV2", string_ops.string_split_v2, _OPERATOR),
    *_rows("UnicodeDecode", unicode_and_bytes.unicode_decode, "no mapping; `tf.strings.unicode_split`"),
    *_rows("UnicodeEncode", unicode_and_bytes.unicode_encode, "no mapping; `tf.strings.unicode_split`"),
    *_rows("StringSplit", unicode_and_bytes.string_split, _OPERATOR),
    *_rows("DecodeRaw", unicode_and_bytes.decode_raw, "no mapping; `keras_hub.tokenizers.ByteTokenizer`"),
    *_rows("StringNGrams", ragged_tensors.string_n_grams, "no mapping"),
    *_rows("RaggedTensorToTensor", ragged_tensors.ragged_tensor_to_tensor, _OPERATOR),
    *_rows("RaggedBincount", ragged_tensors.ragged_bincount, "no mapping"),
    *_rows("StringToHashBucketFast", hash_buckets.string_to_hash_bucket_fast, f"{_OPERATOR}; `keras.layers.Hashing`"),
    *_rows("StringToHashBucketStrong", hash_buckets.string_to_hash_bucket_strong, "no mapping; as above with a salt"),
    *_rows("SparseCross", hash_buckets.sparse_cross, "no mapping; `keras.layers.HashedCrossing`"),
    *_rows("Equal NotEqual", string_ops.equal_and_not_equal, "no strings"),
]
TOKENS = [  # of TensorFlow Text, which need not be installed
    *_rows("NormalizeUTF8", unicode_normalization.normalize_utf8, "no mapping; `tensorflow_text.normalize_utf8`"),
    *_rows("CaseFoldUTF8", unicode_normalization.case_fold_utf8, "no mapping; `tensorflow_text.case_fold_utf8`"),
    *_rows("RegexSplitWithOffsets", wordpiece.regex_split_with_offsets, _OPERATOR),
    *_rows(
        "FastWordpieceTokenizeWithOffsets",
        wordpiece.fast_wordpiece_tokenize_with_offsets,
        "no mapping; `keras_hub.tokenizers.WordPieceTokenizer`",
    ),
]
_ARRAYS = "only for what a loop writes or reads; `keras.ops.scan` continues with a `TensorArray`"
LOOPS = [
    *_rows("If StatelessIf", if_branches.if_, "fails if a branch returns a tensor twice"),
    *_rows(
        "While StatelessWhile",
        tensor_array_loops.while_,
        "the items of a `TensorArray` are in the order of the iterations, whatever the index",
    ),
    *_rows("TensorListFromTensor", tensor_arrays.tensor_list_from_tensor, _ARRAYS),
    *_rows("TensorListSetItem", tensor_arrays.tensor_list_set_item, _ARRAYS),
    *_rows("TensorListLength", tensor_arrays.tensor_list_length, _ARRAYS),
    *_rows("TensorListGather", tensor_arrays.tensor_list_gather, "no mapping"),
    *_rows("TensorListConcatV2", tensor_arrays.tensor_list_concat, "no mapping"),
    *_rows(
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
