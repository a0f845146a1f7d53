"""What `write_layout` writes for each server, what it refuses, and that it is all or nothing."""

import json
import os
import shlex
import shutil
import sys
from pathlib import Path

import pytest
from bundles import alter_manifest, flip_byte, names, read_manifest, reseal

from keras_attn_export import BundleError, ExportError, ProviderError, load_bundle
from keras_attn_export._analysis.first_difference import first_difference
from keras_attn_export._serving import copying
from keras_attn_export._serving.layout import TARGETS, write_layout
from keras_attn_export._standalone import verify

pytest_plugins = ("bundle_fixtures",)

RUNTIME = Path(verify.__file__).with_name("bundle_runtime.py")


def files_in(folder):
    return sorted(file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file())


@pytest.fixture
def models(tmp_path):
    return tmp_path / "models"


def refused(said, bundle, place, kind=ExportError, **options):
    with pytest.raises(kind, match=said):
        write_layout(bundle, place, **options)


def test_triton(exported, models):
    layout = write_layout(exported, models, target="triton")
    assert files_in(models) == ["small/1/model.onnx", "small/config.pbtxt"]
    assert (layout.folder, layout.files) == (models / "small", ("1/model.onnx", "config.pbtxt"))
    assert (models / "small/1/model.onnx").read_bytes() == (exported / "model.onnx").read_bytes()
    assert layout.notes == (
        "requests may be merged: up to 64 examples a batch",
        "`valid_lens`: of shape (batch, 1) here, as Triton has none without a second axis",
    )
    program, *options = shlex.split(layout.command)
    assert program == "tritonserver"
    assert {f"--model-repository={models}", "--http-address=127.0.0.1", "--grpc-address=127.0.0.1"} < set(options)


def test_tensorflow_serving(exported, models):
    layout = write_layout(exported, models, target="tfserving")
    version = models / "small" / "1"
    assert "saved_model.pb" in files_in(version)
    assert files_in(version) == files_in(exported / "saved_model")
    for name in files_in(version):
        assert (version / name).read_bytes() == (exported / "saved_model" / name).read_bytes()
    assert "all interfaces" in " ".join(layout.notes)
    assert shlex.split(layout.command)[-2:] == ["--model_name=small", f"--model_base_path={models / 'small'}"]


def test_mlserver(exported, models):
    layout = write_layout(exported, models, target="mlserver")
    bundle = [f"bundle/{name}" for name in files_in(exported)]
    assert files_in(models / "small") == sorted([*bundle, "bundle_runtime.py", "model-settings.json"])
    assert load_bundle(models / "small" / "bundle").manifest == read_manifest(exported)
    assert (models / "small" / RUNTIME.name).read_bytes() == RUNTIME.read_bytes()
    assert json.loads((models / "small" / "model-settings.json").read_text()) == {
        "name": "small",
        "implementation": "bundle_runtime.BundleModel",
        "parameters": {"uri": "./bundle", "extra": {"provider": "CPUExecutionProvider"}},
    }
    assert layout.command.startswith("MLSERVER_HOST=127.0.0.1 ")
    assert shlex.split(layout.command)[-3:] == ["mlserver", "start", str(models)]


def test_cuda_is_named_to_the_servers_that_choose(exported, models):
    write_layout(exported, models, target="mlserver", provider="cuda")
    assert '"CUDAExecutionProvider"' in (models / "small" / "model-settings.json").read_text()
    refused("takes the GPU by itself", exported, models, target="tfserving", name="third", provider="cuda")
    assert names(models) == ["small"]


@pytest.mark.parametrize(("target", "place"), [("triton", "1"), ("mlserver", "bundle")])
def test_external_data_stays_beside_the_model(bundle, models, target, place):
    (bundle / "model.onnx.data").write_bytes(b"weights")  # as models beyond 2 GiB have it
    reseal(bundle, "model.onnx.data")
    write_layout(bundle, models, target=target)
    assert (models / "small" / place / "model.onnx.data").read_bytes() == b"weights"


def test_a_path_is_quoted_and_whole(exported, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for target in TARGETS:
        layout = write_layout(exported, "my models", target=target, name=target)
        assert any(str(tmp_path / "my models") in word for word in shlex.split(layout.command))


def test_models_stand_side_by_side(exported, models):
    models.mkdir()
    (models / "theirs").write_text("kept")
    write_layout(exported, models, target="triton")
    write_layout(exported, models, target="triton", name="second.model-2")
    assert names(models) == ["second.model-2", "small", "theirs"]
    assert 'name: "second.model-2"\n' in (models / "second.model-2" / "config.pbtxt").read_text()
    before = files_in(models)
    refused(r"small already exists; it will not be replaced, .*\(--name\)", exported, models, target="mlserver")
    assert files_in(models) == before


def test_what_is_asked_for_must_be_known_and_a_name_a_folder(exported, models):
    refused(r"`target` must be one of \['triton', 'tfserving', 'mlserver'\]", exported, models, target="torchserve")
    said = r"`provider` must be one of \['cpu', 'cuda'\]"
    refused(said, exported, models, ProviderError, target="triton", provider="tpu")
    for name in ("", ".", "..", ".hidden", "-option", "a/b", "a b", "Modell-ä", "a\n", "x" * 129):
        refused(r"calls a model by letters, digits.*\(--name\)", exported, models, target="triton", name=name)
    assert not models.exists()


def test_the_manifests_own_name_may_be_none(bundle, models):
    alter_manifest(bundle, model="my model")
    refused(r"Received: 'my model'\. Give another name", bundle, models, target="tfserving")
    write_layout(bundle, models, target="tfserving", name="mine")
    assert names(models) == ["mine"]


def test_places_that_will_not_do(exported, bundle, tmp_path):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "small").symlink_to(tmp_path / "nowhere")
    for place, said in (
        (exported, "is a bundle, which holds only what its manifest lists"),
        (exported / "models", "is a bundle, which holds only"),
        (bundle, "is a bundle, which holds only"),  # not the one that is laid out
        (tmp_path / "file", "is a file, so .* cannot be made"),
        (tmp_path / "linked", "small already exists"),
    ):
        refused(said, exported, place, target="triton")
    load_bundle(exported)
    assert names(tmp_path) == ["bundle", "file", "linked"]


def test_readers_of_a_saved_model_name_it_if_the_bundle_has_none(bundle, models):
    shutil.rmtree(bundle / "saved_model")
    hashes = read_manifest(bundle)["sha256"]
    alter_manifest(bundle, sha256={name: hashes[name] for name in hashes if "saved_model" not in name})
    refused("has no saved_model, which TensorFlow Serving reads", bundle, models, BundleError, target="tfserving")
    with pytest.raises(BundleError, match="has no saved_model, whose tensors are compared"):
        first_difference(load_bundle(bundle), {"base"}, {})


@pytest.mark.parametrize("target", TARGETS)
def test_a_damaged_bundle_is_not_served(bundle, models, target, monkeypatch):
    def another(source, copy):
        copy.write_bytes(source.read_bytes())
        flip_byte(copy)

    with monkeypatch.context() as patch:  # a file that is replaced meanwhile
        patch.setattr(copying.shutil, "copyfile", another)
        refused("was replaced since it was checked", bundle, models, BundleError, target=target)
    flip_byte(bundle / "saved_model" / "saved_model.pb")
    refused(r"saved_model\.pb is not the file that was exported", bundle, models, BundleError, target=target)
    assert not models.exists()


def test_a_file_that_is_gone_meanwhile(bundle, models, monkeypatch):
    loaded = load_bundle(bundle)
    (bundle / "saved_model" / "saved_model.pb").unlink()
    monkeypatch.setattr("keras_attn_export._serving.layout.load_bundle", lambda _: loaded)
    refused(r"saved_model\.pb is gone since it was checked", bundle, models, BundleError, target="tfserving")
    assert not models.exists()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("stop", [KeyboardInterrupt(), OSError(28, os.strerror(28)), SystemExit(143)], ids=repr)
def test_stopped_in_the_middle_it_leaves_nothing(exported, models, target, stop, monkeypatch):
    models.mkdir()
    (models / "theirs").write_text("kept")
    real, done = copying.shutil.copyfile, []

    def copy(source, new):
        if done:
            raise stop
        done.append(real(source, new))

    monkeypatch.setattr(copying.shutil, "copyfile", copy)
    if target == "triton":
        monkeypatch.setattr("pathlib.Path.write_text", lambda *_, **__: copy("", ""))
    with pytest.raises(BundleError if isinstance(stop, OSError) else type(stop)):
        write_layout(exported, models, target=target)
    assert done
    assert names(models) == ["theirs"]


def test_the_runtime_needs_no_more_than_it_says():
    text = RUNTIME.read_text()
    imported = {line.split()[1].split(".")[0] for line in text.splitlines() if line.startswith(("import ", "from "))}
    assert imported <= {*sys.stdlib_module_names, "numpy", "onnxruntime", "mlserver"}
