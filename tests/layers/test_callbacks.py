"""Heat maps while a model trains: the weights that are collected, the files that are written, and refused arguments."""

import io
import subprocess
import sys

import keras
import numpy as np
import pytest
from backends import BACKEND, FIT_MODES, only_on
from contract_cases import as_numpy
from keras import layers, ops
from matplotlib import image
from recurrent_cases import arrays, functional, model_inputs

from keras_attn import AdditiveAttention, DotProductAttention, MultiHeadAttention
from keras_attn.callbacks import AttentionLogger
from keras_attn.callbacks._pictures import picture
from keras_attn.callbacks._watched import attention_layers, chosen_layers, collect_weights

FIT_MODE = next(iter(FIT_MODES.values()))
RANDOM = np.random.default_rng(3)
WORDS = RANDOM.integers(1, 9, (8, 6)).astype("int32")
LENGTHS = np.array([2, 6, 3, 4, 5, 6, 2, 3], "int32")
TARGETS = RANDOM.normal(size=(8, 1)).astype("float32")
SEQUENCES = RANDOM.normal(size=(8, 5, 4)).astype("float32")


class Noise(layers.Layer):
    """Draws in inference too, and counts its calls in a variable, and adds a loss."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.seed_generator = keras.random.SeedGenerator(5)
        self.calls = self.add_weight(shape=(), initializer="zeros", trainable=False, name="calls")

    def call(self, tensor):
        self.calls.assign_add(1.0)
        self.add_loss(1e-3 * ops.mean(tensor**2))
        return tensor + keras.random.normal(ops.shape(tensor), stddev=0.1, seed=self.seed_generator)


def functional_model(*parts):
    """Words and lengths, through a layer with heads and one that is called twice."""
    words = keras.Input((6,), dtype="int32", name="words")
    lengths = keras.Input((), dtype="int32", name="lengths")
    x = layers.Embedding(9, 4, name="embedding")(words)
    for part in parts:
        x = part(x)
    x = MultiHeadAttention(DotProductAttention(dropout=0.3, seed=1), 2, name="heads")(x, x, x, lengths)
    again = AdditiveAttention(3, dropout=0.3, seed=2, name="again")
    x = again(again(x, x, x, lengths), x, x)
    x = layers.Dropout(0.2, seed=3)(layers.GlobalAveragePooling1D()(x))
    return keras.Model([words, lengths], layers.Dense(1)(x))


def compiled_model(model):
    model.compile("adam", "mse", metrics=["mae"], jit_compile=FIT_MODE)
    return model


def self_attending(layer):
    """A model of one call of a layer that takes queries, keys and values."""
    sequences = keras.Input((5, 4), name="sequences")
    pooled = layers.GlobalAveragePooling1D()(layer(sequences, sequences, sequences))
    return compiled_model(keras.Model(sequences, layers.Dense(1)(pooled)))


def fitted(model, inputs, *callbacks, epochs=2, **options):
    history = model.fit(
        inputs, TARGETS, batch_size=4, epochs=epochs, shuffle=False, verbose=0, callbacks=[*callbacks], **options
    )
    return history.history


def files_in(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


class Encoder(layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.blocks = [AdditiveAttention(3, name=f"block{number}") for number in range(2)]

    def call(self, tensor):
        for block in self.blocks:
            tensor = block(tensor, tensor, tensor)
        return tensor


class Subclassed(keras.Model):
    def __init__(self):
        super().__init__(name="subclassed")
        self.encoder = Encoder(name="encoder")
        self.unused = DotProductAttention(name="unused")
        self.unused.build(*[(None, 5, 4)] * 3)
        self.asked = DotProductAttention(name="asked")
        self.dense = layers.Dense(1)

    def call(self, tensor):
        encoded = self.encoder(tensor)
        pooled, weights = self.asked(encoded, encoded, tensor, return_attention_scores=True)
        return self.dense(ops.mean(pooled, axis=1) + ops.mean(weights))


def test_collected_weights_equal_those_of_layers_called_by_hand():
    model = functional_model()
    found = collect_weights(model, [WORDS, LENGTHS], attention_layers(model))
    assert list(found) == ["heads", "again", "again/1"]

    x = model.get_layer("embedding")(WORDS)
    pooled, heads = model.get_layer("heads")(x, x, x, LENGTHS, return_attention_scores=True)
    again, first = model.get_layer("again")(pooled, pooled, pooled, LENGTHS, return_attention_scores=True)
    _, second = model.get_layer("again")(again, pooled, pooled, return_attention_scores=True)
    for name, expected in {"heads": heads, "again": first, "again/1": second}.items():
        assert found[name].dtype == "float32"
        np.testing.assert_allclose(found[name], as_numpy(expected), rtol=1e-5, atol=1e-6)
    assert found["heads"].shape == (8, 2, 6, 6)
    assert (found["heads"][0, ..., 2:] == 0).all()


def test_collected_weights_of_a_loop_equal_its_returned_weights():
    model = functional("heads")
    found = collect_weights(model, model_inputs(), attention_layers(model))
    assert list(found) == ["decode"]
    np.testing.assert_allclose(found["decode"], arrays(model(model_inputs()))["weights"], rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_layers_of_nested_models_are_named_by_their_path():
    inner = [keras.Sequential([keras.Input((5, 4)), Encoder(name="coder")], name=f"part{n}") for n in range(2)]
    model = keras.Sequential([keras.Input((5, 4)), *inner, layers.Dense(1)])
    found = collect_weights(model, SEQUENCES, attention_layers(model))
    assert list(found) == [f"part{n}/coder/block{k}" for n in range(2) for k in range(2)]
    assert [*chosen_layers(model, ["block1", "part0/coder/block0"])] == [
        "part0/coder/block1",
        "part1/coder/block1",
        "part0/coder/block0",
    ]
    assert [*chosen_layers(model, [inner[1].get_layer("coder").blocks[0]])] == ["part1/coder/block0"]


@pytest.mark.parametrize("kind", ["MultiHeadAttention", "Attention"])
def test_weights_of_keras_layers_are_collected(kind):
    with_heads = {"MultiHeadAttention": {"num_heads": 2, "key_dim": 3}}
    layer = getattr(layers, kind)(**with_heads.get(kind, {}), name="theirs")
    sequences, given = keras.Input((5, 4)), ops.convert_to_tensor(SEQUENCES)
    symbolic, real = ([each] * 2 if kind in with_heads else [[each] * 2] for each in (sequences, given))
    model = keras.Model(sequences, layer(*symbolic))
    found = collect_weights(model, SEQUENCES, attention_layers(model))["theirs"]
    _, expected = layer(*real, return_attention_scores=True)
    np.testing.assert_allclose(found, as_numpy(expected), rtol=1e-5, atol=1e-6)


class AttendingCell(layers.Layer):
    """Attends at each step to what it has learnt."""

    state_size = output_size = 4

    def __init__(self):
        super().__init__()
        self.attention = DotProductAttention(name="attention")

    def build(self, shape):
        self.memory = self.add_weight(shape=(7, 4), name="memory")
        self.attention.build((None, 1, 4), (None, 7, 4), (None, 7, 4))

    def call(self, inputs, states):
        memory = ops.broadcast_to(self.memory, (ops.shape(inputs)[0], 7, 4))
        return self.attention(inputs[:, None], memory, memory)[:, 0], states


def recurrent_model(unroll):
    sequences = keras.Input((5, 4))
    return keras.Model(sequences, layers.RNN(AttendingCell(), return_sequences=True, unroll=unroll)(sequences))


@pytest.mark.parametrize("unroll", [False, True])
def test_steps_of_a_recurrent_layer_become_rows_of_one_map(unroll):
    if BACKEND == "jax" and not unroll:
        pytest.skip("JAX compiles the loop: see the next test")
    model = recurrent_model(unroll)
    (found,) = collect_weights(model, SEQUENCES, attention_layers(model)).values()
    memory = ops.broadcast_to(model.layers[-1].cell.memory, (8, 7, 4))
    _, expected = DotProductAttention()(SEQUENCES, memory, memory, return_attention_scores=True)
    np.testing.assert_allclose(found, as_numpy(expected), rtol=1e-5, atol=1e-6)


@only_on("jax", reason="the other backends run the loop step by step")
def test_compiled_loop_is_refused():
    model = recurrent_model(unroll=False)
    with pytest.raises(ValueError, match=r"must run eagerly.*`unroll=True`"):
        collect_weights(model, SEQUENCES, attention_layers(model))


@only_on("tensorflow", reason="`tf.function` is TensorFlow's")
def test_compiled_function_is_refused():
    import tensorflow as tf

    model = keras.Sequential([keras.Input((5, 4)), Encoder(name="encoder")])
    encoder = model.get_layer("encoder")
    encoder.call = tf.function(encoder.call)
    with pytest.raises(ValueError, match=r"Layer 'encoder/block0' must run eagerly.*Leave it out with `layers`"):
        collect_weights(model, SEQUENCES, attention_layers(model))


@pytest.mark.slow
def test_layer_names_become_safe_and_unique_paths():
    safe = {"a b": "a_b", "A:b": "A_b", "a_b": "a_b", "x" * 300: "x" * 100}
    if BACKEND != "torch":  # which takes no dot in a name
        safe |= {"..": "_"}
    model = keras.Sequential([keras.Input((5, 4)), *(Encoder(name=name) for name in safe)])
    paths = list(attention_layers(model))
    assert [path.rpartition("/")[0] for path in paths][::2] == list(safe.values())
    assert len({path.casefold() for path in paths}) == 2 * len(safe)


def test_collecting_leaves_layers_unchanged():
    model = functional_model(Noise(name="noise"))
    layer, noise = model.get_layer("heads"), model.get_layer("noise")
    before, drawn = dict(vars(layer)), as_numpy(noise.seed_generator.state)
    collect_weights(model, [WORDS, LENGTHS], attention_layers(model))
    assert vars(layer) == before
    assert float(noise.calls) == 0
    np.testing.assert_array_equal(as_numpy(noise.seed_generator.state), drawn)
    assert noise.losses == []
    with pytest.raises(ValueError, match="`inputs` must be what the model takes"):
        collect_weights(model, [WORDS[:, :0], LENGTHS[:1, None]], attention_layers(model))
    assert vars(layer) == before


def test_layer_that_is_never_called_is_refused():
    model = Subclassed()
    model(SEQUENCES)
    with pytest.raises(ValueError, match=r"must call an attention layer.*called none of 'unused'"):
        collect_weights(model, SEQUENCES, chosen_layers(model, ["unused"]))


@pytest.mark.slow
def test_logger_changes_nothing_in_training(tmp_path):
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
def test_logger_counts_batches_over_epochs_and_steps(tmp_path):
    logger = AttentionLogger(tmp_path, SEQUENCES, every=3, format="png")
    model = self_attending(DotProductAttention(name="attention"))
    model.fit(SEQUENCES, TARGETS, batch_size=2, epochs=2, verbose=0, callbacks=[logger])
    assert files_in(tmp_path) == ["attention/attention/3.png", "attention/attention/6.png"]
    if BACKEND != "torch":  # where Keras runs one batch a step
        model.compile("sgd", "mse", steps_per_execution=2, jit_compile=FIT_MODE)
    model.fit(SEQUENCES, TARGETS, batch_size=2, epochs=1, verbose=0, callbacks=[logger])
    third = 9 if BACKEND == "torch" else 10
    assert files_in(tmp_path) == sorted(f"attention/attention/{number}.png" for number in (3, 6, third, 12))


@pytest.mark.slow
def test_tensorboard_gets_the_images(tmp_path):
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


def test_images_are_whole_after_an_exception(tmp_path):
    class Interrupt(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            if epoch == 1:
                raise KeyboardInterrupt

    model = self_attending(DotProductAttention(name="attention"))
    loggers = [AttentionLogger(tmp_path / "png", SEQUENCES, format="png"), AttentionLogger(tmp_path / "own", SEQUENCES)]
    with pytest.raises(KeyboardInterrupt):
        fitted(model, SEQUENCES, *loggers, Interrupt(), epochs=5)
    assert files_in(tmp_path / "png") == ["attention/attention/0.png", "attention/attention/1.png"]
    if BACKEND == "tensorflow":
        (file,) = (tmp_path / "own" / "attention").iterdir()
        assert file.read_bytes().count(b"\x89PNG") == 2


@pytest.mark.slow
def test_model_of_a_fixed_batch_gets_a_whole_batch(tmp_path):
    sequences = keras.Input(batch_shape=(8, 5, 4))
    states = layers.SimpleRNN(4, return_sequences=True, stateful=True)(sequences)
    pooled = DotProductAttention(name="attention")(states, states, states)
    model = compiled_model(keras.Model(sequences, layers.Dense(1)(layers.Flatten()(pooled))))
    logger = AttentionLogger(tmp_path, SEQUENCES, max_examples=2, format="png")
    model.fit(SEQUENCES, TARGETS, batch_size=8, verbose=0, callbacks=[logger])
    assert files_in(tmp_path) == ["attention/attention/0.png"]


def test_format_and_async_safety_have_defaults(tmp_path):
    logger = AttentionLogger(tmp_path, SEQUENCES)
    assert logger.async_safe
    assert not AttentionLogger(tmp_path, SEQUENCES, every=5).async_safe
    assert logger.format == ("tensorboard" if BACKEND == "tensorflow" else "png")


def test_full_disk_does_not_end_training(tmp_path, monkeypatch):
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


def test_folder_that_cannot_be_made_is_refused_before_training(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        fitted(self_attending(DotProductAttention()), SEQUENCES, AttentionLogger(tmp_path / "file", SEQUENCES))


def test_logger_puts_tokens_on_the_axes(tmp_path, monkeypatch):
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


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"every": 0}, ValueError, r"`every` must be at least 1"),
        ({"max_examples": 1.5}, TypeError, "`max_examples` must be an integer"),
        ({"format": "gif"}, ValueError, r"`format` must be \"tensorboard\", \"png\" or None"),
        ({"labels": {"words": "abc"}}, TypeError, "Received: str for input 'words'"),
        ({"layers": {"heads": ("words", "others")}, "labels": {"words": ["a"]}}, ValueError, "In `labels` there are"),
        ({"inputs": [[1, 2], [3, 4]]}, TypeError, r"`inputs` must be an array.*Received: int"),
        ({"inputs": [WORDS, LENGTHS[:3]]}, ValueError, r"as many in all of them.*\(8, 6\), \(3,\)"),
        ({"inputs": WORDS[:0]}, ValueError, r"one or more examples.*\(0, 6\)"),
    ],
)
def test_bad_arguments_are_refused(tmp_path, options, error, message):
    with pytest.raises(error, match=message):
        AttentionLogger(tmp_path, options.pop("inputs", WORDS), **options)


@pytest.mark.parametrize(
    ("inputs", "options", "message"),
    [
        (SEQUENCES[:, :, :3], {}, r"`inputs` must be what the model takes"),
        (SEQUENCES, {"layers": ["head"]}, r"must name attention layers.*Received: 'head'. There are: 'heads'"),
        (SEQUENCES, {"labels": {"words": ["a"]}}, r"inputs of ids.*'words' of shape \(4, 5, 4\) and dtype float32"),
    ],
)
def test_inputs_that_do_not_fit_the_model_are_refused_before_training(tmp_path, inputs, options, message):
    model = self_attending(MultiHeadAttention(DotProductAttention(), 2, name="heads"))
    before = [as_numpy(value) for value in model.variables]
    with pytest.raises(ValueError, match=message):
        fitted(model, SEQUENCES, AttentionLogger(tmp_path / "logs", inputs, format="png", **options))
    assert not (tmp_path / "logs").exists()
    for value, other in zip(model.variables, before, strict=True):
        np.testing.assert_array_equal(as_numpy(value), other)


def test_subclassed_model_is_checked_once_the_first_batch_has_built_it(tmp_path):
    logger, model = AttentionLogger(tmp_path, SEQUENCES, layers=["head"], format="png"), Subclassed()
    logger.set_model(model)
    logger.on_train_begin()
    logger.on_train_batch_begin(0)
    model(SEQUENCES)
    with pytest.raises(ValueError, match="must name attention layers"):
        logger.on_train_batch_begin(1)


def test_model_without_attention_is_refused(tmp_path):
    model = compiled_model(keras.Sequential([keras.Input((5, 4)), layers.Flatten(), layers.Dense(1)], name="plain"))
    with pytest.raises(ValueError, match=r"must have an attention layer.*model 'plain', which has none"):
        fitted(model, SEQUENCES, AttentionLogger(tmp_path, SEQUENCES))


@only_on("torch", reason="Keras itself imports TensorFlow on JAX")
def test_error_without_tensorflow_names_the_png_format():
    program = (
        "import sys; sys.modules['tensorflow'] = None\n"
        "import numpy; from keras_attn.callbacks import AttentionLogger\n"
        "try: AttentionLogger('logs', numpy.zeros((1, 2)), format='tensorboard')\n"
        "except ImportError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert 'or pass `format="png"`' in done.stdout
