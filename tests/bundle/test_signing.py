"""A signature says whose a bundle is: what another key signed, or was altered since, is refused in a sentence."""

import json
import shutil
from hashlib import sha256

import pytest
from bundles import alter_manifest, assert_one_line, flip_byte, python, reseal
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from steps_bundles import counting_bundle

from keras_attn_export import BundleError, ExportError, load_bundle, sign_bundle, verify_bundle
from keras_attn_export._bundle.replays import replayed
from keras_attn_export._bundle.signing import check_signature
from keras_attn_export._cli.main import main

pytest_plugins = ("bundle_fixtures",)

PEM, PKCS8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
PUBLIC = serialization.PublicFormat.SubjectPublicKeyInfo


def write_keys(folder, name, private, password=None):
    """Write both keys as PEM files, and return their paths."""
    how = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    files = folder / f"{name}.pem", folder / f"{name}.pub"
    files[0].write_bytes(private.private_bytes(PEM, PKCS8, how))
    files[1].write_bytes(private.public_key().public_bytes(PEM, PUBLIC))
    return files


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    """Return a folder of keys: ours and theirs, and others that will not do."""
    folder = tmp_path_factory.mktemp("keys")
    write_keys(folder, "ours", ec.generate_private_key(ec.SECP256R1()))
    write_keys(folder, "theirs", ec.generate_private_key(ec.SECP384R1()))
    write_keys(folder, "locked", ec.generate_private_key(ec.SECP256R1()), b"password")
    write_keys(folder, "odd curve", ec.generate_private_key(ec.SECP256K1()))
    write_keys(folder, "rsa", rsa.generate_private_key(65537, 2048))
    for name in ("text.pem", "text.pub"):
        (folder / name).write_text("no key\n")
    return folder


@pytest.fixture
def signed(bundle, keys):
    """Return a bundle that the test may alter, with a signature of our key beside it."""
    sign_bundle(bundle, key=keys / "ours.pem")
    return bundle


@pytest.mark.parametrize("name", ["ours", "theirs"])
def test_a_bundle_with_a_signature_of_its_owner(bundle, keys, name):
    place = sign_bundle(bundle, key=keys / f"{name}.pem")
    assert place == bundle.with_name("bundle.sig")
    assert verify_bundle(bundle, public_key=keys / f"{name}.pub").passed
    assert load_bundle(bundle)  # beside which the signature lies, not in it


def test_a_decoder_in_steps_is_signed_as_a_whole(tmp_path, keys):
    folder = counting_bundle(tmp_path / "counting")
    sign_bundle(folder, key=keys / "ours.pem")
    assert verify_bundle(folder, public_key=keys / "ours.pub").passed
    alter_manifest(folder / "step", model="another")
    with pytest.raises(BundleError, match="does not show that the owner"):
        verify_bundle(folder, public_key=keys / "ours.pub")
    with pytest.raises(BundleError, match="is not the file that was exported"):
        sign_bundle(folder, key=keys / "ours.pem")


def test_a_bundle_that_is_exchanged_during_the_replay(signed, keys, monkeypatch, capsys):
    def then_exchanged(*arguments):
        found = replayed(*arguments)
        alter_manifest(signed, model="another")
        return found

    monkeypatch.setattr("keras_attn_export._export.verify_bundle.replayed", then_exchanged)
    assert main(["verify", str(signed), "--public-key", str(keys / "ours.pub")]) == 1
    said = capsys.readouterr()
    assert_one_line(said.err)
    assert "does not show that the owner" in said.err
    assert said.out == ""


def test_a_bundle_and_its_signature_may_move(signed, keys, tmp_path, monkeypatch):
    moved, elsewhere = signed.rename(tmp_path / "renamed"), tmp_path / "elsewhere"
    (tmp_path / "bundle.sig").rename(elsewhere)
    check_signature(moved, public_key=keys / "ours.pub", signature=elsewhere)
    monkeypatch.chdir(moved)
    sign_bundle(".", key=keys / "ours.pem")
    check_signature(".", public_key=keys / "ours.pub")
    assert (tmp_path / "renamed.sig").is_file()


def alter_and_seal(bundle):
    flip_byte(bundle / "saved_model" / "saved_model.pb")
    reseal(bundle, "saved_model/saved_model.pb")


ALTERATIONS = {
    "sealed anew": (alter_and_seal, "Hash mismatch for 'manifest.json'"),
    "another manifest": (lambda bundle: alter_manifest(bundle, model="other"), "Hash mismatch for 'manifest.json'"),
    "not sealed": (lambda bundle: flip_byte(bundle / "model.onnx"), r"Hash mismatch for 'model.onnx'\.$"),
    "a file less": (lambda bundle: (bundle / "verify.py").unlink(), r"Missing files in model .*: verify.py\.$"),
    "a file more": (lambda bundle: (bundle / "more").touch(), r"Extra files found in model .*: more\.$"),
}


@pytest.mark.parametrize(("alter", "said"), ALTERATIONS.values(), ids=ALTERATIONS)
def test_an_altered_bundle_is_not_what_was_signed(signed, keys, alter, said):
    alter(signed)
    start = r"bundle\.sig does not show that the owner of .*ours\.pub signed .*bundle as it is: Signature mismatch: "
    with pytest.raises(BundleError, match=rf"{start}{said}") as caught:
        verify_bundle(signed, public_key=keys / "ours.pub")
    assert "Digest(" not in str(caught.value)


def test_what_the_library_leaves_out_the_manifest_tells(signed, keys):
    (signed / ".gitignore").touch()
    with pytest.raises(BundleError, match=r"holds \.gitignore, which its manifest does not list"):
        verify_bundle(signed, public_key=keys / "ours.pub")


def test_without_a_key_a_signature_says_nothing(signed):
    alter_and_seal(signed)
    assert verify_bundle(signed).passed
    with pytest.raises(ExportError, match=r"give `public_key` \(--public-key\) as well"):
        verify_bundle(signed, signature=signed.with_name("bundle.sig"))


def test_a_bundle_without_a_signature(bundle, keys):
    with pytest.raises(BundleError, match=r"bundle is not signed: there is no .*bundle\.sig"):
        verify_bundle(bundle, public_key=keys / "ours.pub")
    shutil.rmtree(bundle)
    with pytest.raises(BundleError, match="No bundle at"):
        verify_bundle(bundle, public_key=keys / "ours.pub")


def test_another_key(signed, keys):
    with pytest.raises(BundleError, match=r"the owner of .*theirs\.pub signed .*Key mismatch"):
        verify_bundle(signed, public_key=keys / "theirs.pub")


def altered_signature(signed, **material):
    """Change the material of the signature that tells whose key it is of."""
    place = signed.with_name("bundle.sig")
    content = json.loads(place.read_text())
    content["verificationMaterial"]["publicKey"] = material
    place.write_text(json.dumps(content))


def test_another_key_that_pretends_to_be_ours(bundle, keys):
    sign_bundle(bundle, key=keys / "theirs.pem")
    altered_signature(bundle, hint=sha256((keys / "ours.pub").read_bytes()).hexdigest())
    with pytest.raises(BundleError, match=r"the owner of .*ours\.pub signed .*: InvalidSignature\."):
        verify_bundle(bundle, public_key=keys / "ours.pub")


@pytest.mark.parametrize("content", [b"", b"text", b"{}", b"[]", b"\xff\xfe", b'{"verificationMaterial": {}}'])
def test_what_is_no_signature(signed, keys, content):
    signed.with_name("bundle.sig").write_bytes(content)
    with pytest.raises(BundleError, match=r"bundle\.sig does not show that the owner of .*ours\.pub signed"):
        verify_bundle(signed, public_key=keys / "ours.pub")


@pytest.mark.parametrize("name", ["locked.pem", "odd curve.pem", "rsa.pem", "text.pem", "ours.pub"])
def test_what_is_no_private_key(bundle, keys, name):
    with pytest.raises(
        ExportError, match=rf"{name} is no private key on the curve P-256, .* without a password(: \w.*)?\.$"
    ):
        sign_bundle(bundle, key=keys / name)
    assert not bundle.with_name("bundle.sig").exists()


@pytest.mark.parametrize("name", ["odd curve.pub", "rsa.pub", "text.pub", "ours.pem"])
def test_what_is_no_public_key(signed, keys, name):
    with pytest.raises(ExportError, match=rf"{name} is no public key on the curve P-256, .* in PEM(: \w.*)?\.$"):
        verify_bundle(signed, public_key=keys / name)


def test_keys_that_are_not_there(signed):
    with pytest.raises(ExportError, match=r"Cannot read the private key none\.pem: No such file"):
        sign_bundle(signed, key="none.pem")
    with pytest.raises(ExportError, match=r"Cannot read the public key none\.pub: No such file"):
        verify_bundle(signed, public_key="none.pub")


def test_a_damaged_bundle_is_not_signed(bundle, keys):
    flip_byte(bundle / "model.onnx")
    with pytest.raises(BundleError, match=r"model\.onnx is not the file that was exported"):
        sign_bundle(bundle, key=keys / "ours.pem")
    assert not bundle.with_name("bundle.sig").exists()


def test_places_where_no_signature_can_be(bundle, keys, tmp_path):
    (tmp_path / "link").symlink_to(bundle)
    for place in (bundle / "own.sig", bundle / "parity" / ".." / "own.sig", tmp_path / "link" / "own.sig", bundle):
        with pytest.raises(ExportError, match=r"is in the bundle, which holds only what its manifest lists"):
            sign_bundle(bundle, key=keys / "ours.pem", signature=place)
    with pytest.raises(ExportError, match=r"Cannot write the signature .*own\.sig: No such file or directory"):
        sign_bundle(bundle, key=keys / "ours.pem", signature=tmp_path / "nowhere" / "own.sig")
    assert load_bundle(bundle)


# ------------------------------------------------------------------ command line


@pytest.fixture
def call(capsys):
    def run(*arguments):
        code = main(list(map(str, arguments)))
        return code, *capsys.readouterr()

    return run


def test_sign_and_verify(bundle, keys, tmp_path, call):
    place = tmp_path / "named.sig"
    assert call("sign", bundle, "--key", keys / "ours.pem", "--signature", place) == (0, f"{place}\n", "")
    code, out, err = call("verify", bundle, "--public-key", keys / "ours.pub", "--signature", place)
    assert (code, err) == (0, "")
    assert out.splitlines()[-1] == f"signed by the owner of {keys / 'ours.pub'}"


def test_json_is_all_that_verify_prints(signed, keys, call):
    altered_signature(signed)  # without the hint which key it is, of which the library prints a warning
    code, out, err = call("verify", signed, "--public-key", keys / "ours.pub", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["passed"]


@pytest.mark.parametrize("key", ["theirs.pub", ""])
def test_verify_says_in_a_line_what_is_wrong(signed, keys, call, key):
    code, out, err = call("verify", signed, "--public-key", keys / key if key else "")
    assert (code, out) == (1, "")
    assert_one_line(err)


@pytest.mark.parametrize("missing", ["model_signing", "OpenSSL"])
def test_without_the_extra(signed, keys, tmp_path, missing):
    for command in (
        ["sign", signed, "--key", keys / "ours.pem"],
        ["verify", signed, "--public-key", keys / "ours.pub"],
    ):
        done = python("-m", "keras_attn_export", *command, cwd=tmp_path, blocked=[missing])
        assert (done.returncode, done.stdout) == (1, "")
        assert_one_line(done.stderr, "error: Signatures need model-signing and pyopenssl")
        assert "pip install 'keras-attn[sign]'" in done.stderr
    assert python("-m", "keras_attn_export", "verify", signed, cwd=tmp_path, blocked=[missing]).returncode == 0
