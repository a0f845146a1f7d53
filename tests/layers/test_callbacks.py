"""`AttentionLogger`: captured weights, unchanged training, images in files and TensorBoard, and invalid arguments."""

import io

import keras
import numpy as np
import pytest
from backends import FIT_MODES, run_only_on
from keras import layers, ops
from layer_contract import to_numpy
from matplotlib import image

from keras_attn import AdditiveAttention, AttentionCell, AttentionRNN, DotProductAttention, MultiHeadAttention
from keras_attn.callbacks import AttentionLogger
from keras_attn.callbacks._weight_capture import capture_weights, choose_layers

RANDOM = np.random.default_rng(3)
WORDS = RANDOM.integers(1, 9, (8, 6)).astype("int32")
LENGTHS = np.array([2, 6, 3, 4, 5, 6, 2, 3], "int32")
TARGETS = RANDOM.normal(size=(8, 1)).astype("float32")
SEQUENCES = RANDOM.normal(size=(8, 5, 4)).astype("float32")


class Noise(layers.Layer):
    """Layer with random noise and a loss; it counts calls in a variable, and traced training calls in an integer."""

    def __init__(self):
        super().__init__(name="noise")
        self.seed_generator = keras.random.SeedGenerator(5)
        self.calls = self.add_weight(shape=(), initializer="zeros", trainable=False, name="calls")
        self.training_calls = 0

    def call(self, tensor, training=False):
        self.training_calls += bool(training)
        self.calls.assign_add(1.0)
        self.add_loss(1e-3 * ops.mean(tensor**2))
        return tensor + keras.random.normal(ops.shape(tensor), stddev=0.1, seed=self.seed_generator)


def build_text_model():
    """Return a model of words and lengths: multi-head attention, and an additive layer that is called twice."""
    words = keras.Input((6,), dtype="int32", name="words")
    lengths = keras.Input((), dtype="int32", name="lengths")
    x = layers.BatchNormalization()(Noise()(layers.Embedding(9, 4, name="embedding")(words)))
    heads = MultiHeadAttention(DotProductAttention(dropout=0.3, seed=1), 2, name="heads")(x, x, x, lengths)
    attend = AdditiveAttention(3, dropout=0.3, seed=2, name="shared")
    x = layers.GlobalAveragePooling1D(name="pooled")(attend(attend(heads, x, x, lengths), x, x))
    return keras.Model([words, lengths], layers.Dense(1)(x))


def build_sequence_model(layer):
    sequences = keras.Input((5, 4), name="sequences")
    output = layer(sequences, sequences, sequences)
    return keras.Model(sequences, layers.Dense(1)(layers.GlobalAveragePooling1D()(output)))


def fit(model, inputs, *callbacks, epochs=2, **options):
    model.compile("adam", "mse", metrics=["mae"], jit_compile=next(iter(FIT_MODES.values())), **options)
    options = {"batch_size": 2, "epochs": epochs, "shuffle": False, "verbose": 0}
    return model.fit(inputs, TARGETS, callbacks=[*callbacks], **options).history


def capture(model, inputs, choices=None):
    return capture_weights(model, inputs, choose_layers(model, choices))


def read_values(variables):
    return [to_numpy(variable).tolist() for variable in variables]


def list_images(folder):
    return sorted(path.relative_to(folder / "attention").as_posix() for path in folder.rglob("*.png"))


class Encoder(layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.blocks = [DotProductAttention(name=f"block{index}") for index in range(2)]

    def call(self, tensor):
        for block in self.blocks:
            tensor = block(tensor, tensor, tensor)
        return tensor


class SubclassedModel(keras.Model):
    def __init__(self):
        super().__init__(name="subclassed")
        self.encoder = Encoder(name="encoder")
        self.attend = DotProductAttention(name="attend")
        self.unused = DotProductAttention(name="unused")
        self.unused.build(*[(None, 5, 4)] * 3)

    def call(self, tensor):
        output, _ = self.attend(self.encoder(tensor), tensor, tensor, return_attention_scores=True)
        return output


HEADS, KERAS_HEADS = MultiHeadAttention(DotProductAttention(), 2), layers.MultiHeadAttention(2, 3)


@pytest.mark.parametrize(
    ("layer", "build_arguments"),
    [(HEADS, lambda x: [x, x, x]), (KERAS_HEADS, lambda x: [x, x]), (layers.Attention(), lambda x: [[x, x]])],
)
def test_captured_weights_equal_returned_weights(layer, build_arguments):
    sequences = keras.Input((5, 4))
    (weights,) = capture(keras.Model(sequences, layer(*build_arguments(sequences))), SEQUENCES).values()
    _, expected = layer(*build_arguments(ops.convert_to_tensor(SEQUENCES)), return_attention_scores=True)
    np.testing.assert_allclose(weights, to_numpy(expected), rtol=1e-5, atol=1e-6)


def test_weights_of_several_steps_are_rows_of_one_array():
    cell = AttentionCell(layers.SimpleRNNCell(4), DotProductAttention(), name="cell")
    sequences = keras.Input((5, 4))
    output, states = None, [ops.zeros_like(sequences[:, 0])]
    for step in range(3):
        output, states = cell(sequences[:, step], states, sequences)
    weights = capture(keras.Model(sequences, output), SEQUENCES)
    _, expected = AttentionRNN(cell)(SEQUENCES[:, :3], SEQUENCES, return_attention_scores=True)
    assert [*weights] == ["cell"]
    np.testing.assert_allclose(weights["cell"], to_numpy(expected), rtol=1e-5, atol=1e-6)


def test_cells_of_keras_rnn_are_captured_only_if_unrolled():
    cell = AttentionCell(layers.SimpleRNNCell(4), DotProductAttention(), name="cell")
    unrolled, loop = layers.Layer(name="unrolled"), layers.Layer(name="loop")
    unrolled.rnn, loop.rnn = layers.RNN(cell, unroll=True, name="rnn"), layers.RNN(cell)
    assert [*choose_layers(unrolled, None)] == ["rnn/cell"]
    with pytest.raises(ValueError, match=r"outside of a `keras.layers.RNN` without `unroll=True`.*'loop' has none"):
        choose_layers(loop, None)


@run_only_on("tensorflow", reason="other backends have no `tf.function`")
def test_compiled_calls_are_rejected():
    import tensorflow as tf

    layer = Encoder(name="encoder")
    model = keras.Sequential([keras.Input((5, 4)), layer])
    layer.call = tf.function(layer.call)
    with pytest.raises(ValueError, match="attention layers must run eagerly"):
        capture(model, SEQUENCES)


def test_layers_are_chosen_by_name_path_or_identity():
    encoders = [Encoder(name=name) for name in ("one", "a b", "a:b")]
    encoders[2].blocks.append(encoders[0].blocks[0])  # a shared layer has the path of its first owner
    model = keras.Sequential([keras.Input((5, 4)), *encoders])
    paths = ["one/block0", "one/block1", "a_b/block0", "a_b/block1", "a_b/block0_1", "a_b/block1_1"]
    assert [*choose_layers(model, None)] == paths
    assert [*choose_layers(model, ["one/block0", "block1"])] == [*paths[:2], *paths[3::2]]
    assert [*choose_layers(model, [encoders[1].blocks[0]])] == ["a_b/block0"]


def test_capture_does_not_change_layers_and_variables():
    model = build_text_model()
    layer = model.get_layer("heads")
    layer.call = layer.call  # an instance attribute, which the capture must restore
    attributes, values = dict(vars(layer)), read_values(model.variables)
    weights = capture(model, [WORDS, LENGTHS])
    assert [*weights] == ["heads", "shared", "shared/1"]
    assert (weights["heads"][0, ..., 2:] == 0).all()
    with pytest.raises(ValueError, match="`inputs` must be what the model takes"):
        capture(model, [WORDS[:, :0], LENGTHS[:1, None]])
    assert vars(layer) == attributes
    assert "call" not in vars(model.get_layer("shared"))
    assert read_values(model.variables) == values


@pytest.mark.slow
def test_logger_does_not_change_training(tmp_path):
    def train(*callbacks):
        keras.utils.set_random_seed(7)
        model = build_text_model()
        history = fit(model, [WORDS, LENGTHS], *callbacks)
        values = read_values([*model.variables, *model.optimizer.variables])
        return history, values, model.get_layer("noise").training_calls

    inputs, options = [WORDS[:2], LENGTHS[:2]], {"layers": "shared", "format": "png"}
    assert train(*(AttentionLogger(tmp_path / str(n), inputs, every=n, **options) for n in ("epoch", 3))) == train()
    assert list_images(tmp_path / "epoch") == ["shared/0.png", "shared/1.png", "shared/1/0.png", "shared/1/1.png"]
    assert list_images(tmp_path / "3") == ["shared/1/3.png", "shared/1/6.png", "shared/3.png", "shared/6.png"]


@pytest.mark.slow
@run_only_on("tensorflow", "jax", reason="on torch, Keras runs one batch per step")
def test_batches_of_one_step_are_counted(tmp_path):
    logger = AttentionLogger(tmp_path, SEQUENCES, every=3, format="png")
    assert not logger.async_safe
    for _ in range(2):
        model = build_sequence_model(DotProductAttention(name="attention"))
        fit(model, SEQUENCES, logger, epochs=1, steps_per_execution=2)
    assert list_images(tmp_path) == [f"attention/{step}.png" for step in (4, 6)]


@pytest.mark.slow
def test_files_and_tensorboard_contain_equal_images_before_training_ends(tmp_path):
    tf = pytest.importorskip("tensorflow", reason="without TensorFlow the logger writes PNG files only")
    loggers = [AttentionLogger(tmp_path / name, SEQUENCES, format=name) for name in ("png", "tensorboard")]
    layer = DotProductAttention(name="attention")
    callbacks = keras.callbacks.CallbackList(loggers, model=build_sequence_model(layer))
    callbacks.on_train_begin()
    with tf.summary.record_if(False):  # `keras.callbacks.TensorBoard` sets this in most batches
        callbacks.on_epoch_end(0)
        callbacks.on_epoch_end(1)
    (file,) = (tmp_path / "tensorboard" / "attention").iterdir()
    events = [tf.compat.v1.Event.FromString(record.numpy()) for record in tf.data.TFRecordDataset(str(file))]
    images = {event.step: value for event in events for value in event.summary.value}
    for step in (0, 1):
        width, height, png = images[step].tensor.string_val
        assert (images[step].tag, images[step].metadata.plugin_data.plugin_name) == ("attention", "images")
        assert png == (tmp_path / "png" / "attention" / "attention" / f"{step}.png").read_bytes()
        assert image.imread(io.BytesIO(png)).shape[:2] == (int(height), int(width))


def test_images_show_the_first_examples_and_heads_with_tokens(tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr("keras_attn.callbacks.draw_heatmaps", lambda *arguments: calls.append(arguments) or b"")
    options = {"labels": {"words": "012345678"}, "max_examples": 3, "max_heads": 1, "format": "png"}
    logger = AttentionLogger(tmp_path, {"words": WORDS, "lengths": LENGTHS}, layers="heads", **options)
    callbacks = keras.callbacks.CallbackList([logger], model=build_text_model())
    callbacks.on_train_begin()
    callbacks.on_epoch_end(4)
    ((maps, title, queries, keys),) = calls
    assert (maps.shape, title) == ((3, 1, 6, 6), "heads, epoch 4")
    assert queries == keys == [[str(word) for word in row] for row in WORDS[:3]]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"every": "batch"}, ValueError, '`every` must be "epoch" or a number'),
        ({"format": "gif"}, ValueError, '`format` must be "tensorboard", "png" or None'),
        ({"layers": {"heads": ("words", "others")}}, TypeError, "`layers` must be names.*`labels` sets tokens"),
        ({"layers": ["head"]}, ValueError, r"Received: layers=\['head'\].*has \['heads'\]"),
        ({"labels": ["a"]}, TypeError, "`labels` must be a dict"),
        ({"labels": {"words": ["a"]}}, ValueError, r"`labels` must name integer inputs.*\(4, 5, 4\)"),
        ({"inputs": [WORDS, LENGTHS[:3]]}, ValueError, r"same number of examples.*\(8, 6\), \(3,\)"),
        ({"inputs": SEQUENCES[:0]}, ValueError, r"at least one.*\(0, 5, 4\)"),
        ({"inputs": SEQUENCES[:, :, :3]}, ValueError, "`inputs` must be what the model takes"),
    ],
)
def test_invalid_arguments_are_rejected_before_training(tmp_path, options, error, message):
    model = build_sequence_model(MultiHeadAttention(DotProductAttention(), 2, name="heads"))
    initial_values = read_values(model.variables)
    with pytest.raises(error, match=message):
        fit(model, SEQUENCES, AttentionLogger(tmp_path / "logs", **({"inputs": SEQUENCES} | options)))
    assert read_values(model.variables) == initial_values
    assert not (tmp_path / "logs").exists()


def test_subclassed_model_is_checked_when_it_is_built(tmp_path):
    model, logger = SubclassedModel(), AttentionLogger(tmp_path, SEQUENCES, layers=["unused"], format="png")
    logger.set_model(model)
    logger.on_train_begin()
    logger.on_train_batch_begin(0)
    model(SEQUENCES)
    with pytest.raises(ValueError, match="Model 'subclassed' must call one of the attention layers unused"):
        logger.on_train_batch_begin(1)
    assert [*capture(model, SEQUENCES)] == ["encoder/block0", "encoder/block1", "attend"]


def test_failed_write_warns(tmp_path):
    def fill_the_disk(*_):
        raise OSError(28, "No space left on device")

    logger = AttentionLogger(tmp_path, SEQUENCES, format="png")
    logger.set_model(build_sequence_model(AdditiveAttention(3, name="attention")))
    logger.on_train_begin()
    logger._write = fill_the_disk
    with pytest.warns(RuntimeWarning, match=r"attention of attention at epoch 0 was not logged: .*No space left"):
        logger.on_epoch_end(0)
