"""Heat maps while a model trains: when and where to, what is refused, and that training does not notice."""

import io
import subprocess
import sys

import keras
import numpy as np
import pytest
from backends import BACKEND, only_on
from contract_cases import as_numpy
from keras import layers
from matplotlib import image
from watched_models import (
    FIT_MODE,
    LENGTHS,
    SEQUENCES,
    TARGETS,
    WORDS,
    Noise,
    Subclassed,
    compiled_model,
    files_in,
    fitted,
    functional_model,
    self_attending,
)

from keras_attn import DotProductAttention, MultiHeadAttention
from keras_attn.callbacks import AttentionLogger
from keras_attn.callbacks._pictures import picture
from keras_attn.callbacks._watched import attention_layers, collect_weights


@pytest.mark.slow
def test_training_does_not_notice(tmp_path):
    def run(*callbacks):
        keras.utils.set_random_seed(7)
        model = compiled_model(functional_model(Noise(), layers.BatchNormalization()))
        history = fitted(model, [WORDS, LENGTHS], *callbacks)
        return history, [as_numpy(value) for value in (*model.variables, *model.optimizer.variables)]

    history, expected = run()
    few = [WORDS[:2], LENGTHS[:2]]
    loggers = [
        AttentionLogger(tmp_path / str(every), few, every=every, layers=["again"], format="png")
        for every in ("epoch", 1)
    ]
    logged, found = run(*loggers)
    assert logged == history
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)
    assert [len(files_in(tmp_path / name)) for name in ("epoch", "1")] == [4, 8]


@pytest.mark.slow
def test_layers_of_subclassed_models_are_named_by_their_path(tmp_path):
    logger = AttentionLogger(tmp_path, SEQUENCES, format="png")
    fitted(compiled_model(Subclassed()), SEQUENCES, logger, epochs=1)
    assert files_in(tmp_path) == [
        "attention/asked/0.png",
        "attention/encoder/block0/0.png",
        "attention/encoder/block1/0.png",
    ]
    model = Subclassed()
    logger.set_model(model)
    logger.on_train_begin()
    model(SEQUENCES)  # in a loop of one's own, which calls no more than it needs
    logger.on_epoch_end(1)
    assert len(files_in(tmp_path)) == 6


@pytest.mark.slow
def test_every_so_many_batches_over_epochs(tmp_path):
    logger = AttentionLogger(tmp_path, SEQUENCES, every=3, format="png")
    model = self_attending(DotProductAttention(name="attention"))
    model.fit(SEQUENCES, TARGETS, batch_size=2, epochs=2, verbose=0, callbacks=[logger])
    assert files_in(tmp_path) == ["attention/attention/3.png", "attention/attention/6.png"]
    model.fit(SEQUENCES, TARGETS, batch_size=2, epochs=1, verbose=0, callbacks=[logger])
    assert files_in(tmp_path)[-1] == "attention/attention/9.png"


@pytest.mark.slow
@only_on("tensorflow", "jax", reason="Keras runs one batch a step on torch")
def test_several_batches_a_step(tmp_path):
    logger = AttentionLogger(tmp_path, SEQUENCES, every=3, format="png")
    model = self_attending(DotProductAttention(name="attention"))
    model.compile("sgd", "mse", steps_per_execution=2, jit_compile=FIT_MODE)
    model.fit(SEQUENCES, TARGETS, batch_size=1, epochs=1, verbose=0, callbacks=[logger])
    assert files_in(tmp_path) == ["attention/attention/4.png", "attention/attention/6.png"]


@pytest.mark.slow
def test_tensorboard_reads_the_images(tmp_path):
    tf = pytest.importorskip("tensorflow", reason="without TensorFlow there are only PNG files")
    logger = AttentionLogger(tmp_path, SEQUENCES, format="tensorboard")
    model = self_attending(MultiHeadAttention(DotProductAttention(), 2, name="heads"))
    with tf.summary.record_if(False):  # as `keras.callbacks.TensorBoard` says of most batches
        fitted(model, SEQUENCES, logger)

    (file,) = (tmp_path / "attention").iterdir()
    events = [tf.compat.v1.Event.FromString(each.numpy()) for each in tf.data.TFRecordDataset(str(file))]
    found = [(event.step, value) for event in events for value in event.summary.value]
    assert [(step, value.tag, value.metadata.plugin_data.plugin_name) for step, value in found] == [
        (0, "heads", "images"),
        (1, "heads", "images"),
    ]
    width, height, png = found[-1][1].tensor.string_val
    pixels = image.imread(io.BytesIO(png))
    assert pixels.shape[:2] == (int(height), int(width))
    weights = collect_weights(model, SEQUENCES[:4], attention_layers(model))["heads"]
    shown = picture(weights, "heads, epoch 1", max_examples=4, max_heads=8, queries=None, keys=None)
    assert png == shown


def test_what_is_there_is_whole_and_nothing_is_lost_after_an_exception(tmp_path):
    class Interrupt(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            if epoch == 1:
                raise KeyboardInterrupt

    model = self_attending(DotProductAttention(name="attention"))
    loggers = [AttentionLogger(tmp_path / "png", SEQUENCES, format="png")]
    if BACKEND == "tensorflow":
        loggers.append(AttentionLogger(tmp_path / "board", SEQUENCES))
    with pytest.raises(KeyboardInterrupt):
        fitted(model, SEQUENCES, *loggers, Interrupt(), epochs=5)
    assert files_in(tmp_path / "png") == ["attention/attention/0.png", "attention/attention/1.png"]
    if BACKEND == "tensorflow":
        (file,) = (tmp_path / "board" / "attention").iterdir()
        assert file.read_bytes().count(b"\x89PNG") == 2


@pytest.mark.slow
def test_a_model_for_a_fixed_number_of_examples_gets_them_all(tmp_path):
    sequences = keras.Input(batch_shape=(8, 5, 4))
    states = layers.SimpleRNN(4, return_sequences=True, stateful=True)(sequences)
    pooled = DotProductAttention(name="attention")(states, states, states)
    model = compiled_model(keras.Model(sequences, layers.Dense(1)(layers.Flatten()(pooled))))
    logger = AttentionLogger(tmp_path, SEQUENCES, max_examples=2, format="png")
    model.fit(SEQUENCES, TARGETS, batch_size=8, verbose=0, callbacks=[logger])
    assert files_in(tmp_path) == ["attention/attention/0.png"]


def test_what_follows_from_the_period_and_from_the_backend(tmp_path):
    logger = AttentionLogger(tmp_path, SEQUENCES)
    assert logger.async_safe
    assert not AttentionLogger(tmp_path, SEQUENCES, every=5).async_safe
    assert logger.format == ("tensorboard" if BACKEND == "tensorflow" else "png")


def test_a_full_disk_does_not_end_training(tmp_path, monkeypatch):
    def full(self, data):
        with self.open("wb") as file:
            file.write(data[:100])
        raise OSError(28, "No space left on device")

    logger = AttentionLogger(tmp_path, SEQUENCES, format="png")
    monkeypatch.setattr("pathlib.Path.write_bytes", full)
    model = self_attending(DotProductAttention(name="attention"))
    with pytest.warns(RuntimeWarning, match=r"layer 'attention' at step 0 .*No space left.*training goes on"):
        history = fitted(model, SEQUENCES, logger, epochs=1)
    assert len(history["loss"]) == 1
    assert files_in(tmp_path) == []


@pytest.mark.parametrize("format", ["png", "tensorboard"] if BACKEND == "tensorflow" else ["png"])
def test_a_folder_that_cannot_be_made_is_said_before_training(tmp_path, format):
    (tmp_path / "file").write_text("")
    logger = AttentionLogger(tmp_path / "file", SEQUENCES, format=format)
    with pytest.raises(OSError, match="file"):
        fitted(self_attending(DotProductAttention()), SEQUENCES, logger)


def test_the_logger_puts_tokens_on_the_axes(tmp_path, monkeypatch):
    seen = {}
    monkeypatch.setattr(
        "keras_attn.callbacks.picture", lambda weights, title, **options: seen.update({title: options}) or b""
    )
    labels = {"words": [f"w{number}" for number in range(9)]}
    model, inputs = functional_model(), {"words": WORDS, "lengths": LENGTHS}
    for epoch, chosen in enumerate([None, {"again": ("words", "words")}]):
        logger = AttentionLogger(tmp_path, inputs, labels=labels, layers=chosen, max_examples=2, format="png")
        training = keras.callbacks.CallbackList([logger], model=model)
        training.on_train_begin()
        training.on_epoch_end(epoch)
        training.on_train_end()
    expected = [[f"w{each}" for each in row] for row in WORDS[:2]]
    assert list(seen) == ["heads, epoch 0", "again, epoch 0", "again/1, epoch 0", "again, epoch 1", "again/1, epoch 1"]
    assert all(options["queries"] == options["keys"] == expected for options in seen.values())
    words, x, one = keras.Input((6,), dtype="int32"), keras.Input((6, 4)), DotProductAttention(name="one")
    pooled = one(x, x, x)
    part = keras.Model(x, one(pooled, x, x), name="part")
    labels = {"asking": ["a"] * 9, "asked": ["b"] * 9}  # of a lone input, whatever it is called
    logger = AttentionLogger(tmp_path, WORDS, labels=labels, layers={"part/one": ("asking", "asked")}, format="png")
    logger.set_model(keras.Model(words, part(layers.Embedding(9, 4)(words))))
    logger.on_train_begin()
    logger.on_epoch_end(2)
    for title in ("part/one, epoch 2", "part/one/1, epoch 2"):
        assert (seen[title]["queries"], seen[title]["keys"]) == ([["a"] * 6] * 4, [["b"] * 6] * 4)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"every": 0}, ValueError, r"`every` must be at least 1"),
        ({"every": "batch"}, ValueError, r'`every` must be "epoch" or a number of batches'),
        ({"max_examples": 1.5}, TypeError, "`max_examples` must be an integer"),
        ({"max_heads": 0}, ValueError, "`max_heads` must be at least 1"),
        ({"format": "gif"}, ValueError, r"`format` must be \"tensorboard\", \"png\" or None"),
        ({"labels": ["a"]}, TypeError, "`labels` must be a dict .* Received: labels of type list"),
        ({"labels": {"words": "abc"}}, TypeError, "Received: str for input 'words'"),
        ({"layers": {"heads": ("words", "others")}, "labels": {"words": ["a"]}}, ValueError, "In `labels` there are"),
        ({"inputs": [[1, 2], [3, 4]]}, TypeError, r"`inputs` must be an array.*Received: int"),
        ({"inputs": [WORDS, LENGTHS[:3]]}, ValueError, r"as many in all of them.*\(8, 6\), \(3,\)"),
        ({"inputs": WORDS[:0]}, ValueError, r"one or more examples.*\(0, 6\)"),
        ({"inputs": []}, ValueError, r"one or more examples.*of no array"),
    ],
)
def test_arguments_that_are_refused(tmp_path, options, error, message):
    with pytest.raises(error, match=message):
        AttentionLogger(tmp_path, options.pop("inputs", WORDS), **options)


@pytest.mark.parametrize(
    ("inputs", "options", "message"),
    [
        (SEQUENCES[:, :, :3], {}, r"`inputs` must be what the model takes"),
        ([SEQUENCES, LENGTHS], {}, r"`inputs` must be what the model takes"),
        (SEQUENCES, {"layers": ["head"]}, r"must name attention layers.*Received: 'head'. There are: 'heads'"),
        (SEQUENCES, {"layers": "dense"}, r"Received: 'dense'. There are: 'heads'"),
        (SEQUENCES, {"labels": {"words": ["a"]}}, r"inputs of ids.*'words' of shape \(4, 5, 4\) and dtype float32"),
    ],
)
def test_what_does_not_fit_the_model_is_said_before_training(tmp_path, inputs, options, message):
    model = self_attending(MultiHeadAttention(DotProductAttention(), 2, name="heads"))
    before = [as_numpy(value) for value in model.variables]
    with pytest.raises(ValueError, match=message):
        fitted(model, SEQUENCES, AttentionLogger(tmp_path / "logs", inputs, format="png", **options))
    assert not (tmp_path / "logs").exists()
    for value, other in zip(model.variables, before, strict=True):
        np.testing.assert_array_equal(as_numpy(value), other)


def test_what_does_not_fit_is_said_as_soon_as_the_first_batch_has_built_the_model(tmp_path):
    logger, model = AttentionLogger(tmp_path, SEQUENCES, layers=["head"], format="png"), Subclassed()
    logger.set_model(model)
    logger.on_train_begin()
    logger.on_train_batch_begin(0)
    model(SEQUENCES)
    with pytest.raises(ValueError, match="must name attention layers"):
        logger.on_train_batch_begin(1)


def test_a_model_without_attention(tmp_path):
    model = compiled_model(keras.Sequential([keras.Input((5, 4)), layers.Flatten(), layers.Dense(1)], name="plain"))
    with pytest.raises(ValueError, match=r"must have an attention layer.*model 'plain', which has none"):
        fitted(model, SEQUENCES, AttentionLogger(tmp_path, SEQUENCES))


@only_on("torch", reason="Keras itself imports TensorFlow on JAX")
def test_without_tensorflow_the_error_says_what_to_do():
    program = (
        "import sys; sys.modules['tensorflow'] = None\n"
        "import numpy; from keras_attn.callbacks import AttentionLogger\n"
        "try: AttentionLogger('logs', numpy.zeros((1, 2)), format='tensorboard')\n"
        "except ImportError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert 'or pass `format="png"`' in done.stdout
