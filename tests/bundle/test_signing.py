"""A signature says whose a bundle is: what another key signed, or was altered since, is refused in a sentence."""

import json
from hashlib import sha256

import pytest
from bundles import alter_manifest, assert_one_line, flip_byte, python, reseal

from keras_attn_export import BundleError, ExportError, load_bundle, sign_bundle, verify_bundle
from keras_attn_export._bundle.signing import check_signature
from keras_attn_export._export.verify_bundle import replayed

pytest_plugins = ("bundle_fixtures", "command_fixtures")
pytestmark = pytest.mark.needs("model_signing", "OpenSSL")


def write_keys(folder, name, private, password=None):
    """Write both keys as PEM files."""
    from cryptography.hazmat.primitives import serialization as how

    form, locked = how.Encoding.PEM, how.BestAvailableEncryption(password) if password else how.NoEncryption()
    (folder / f"{name}.pem").write_bytes(private.private_bytes(form, how.PrivateFormat.PKCS8, locked))
    (folder / f"{name}.pub").write_bytes(private.public_key().public_bytes(form, how.PublicFormat.SubjectPublicKeyInfo))


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    """Return a folder of keys: ours and theirs, and others that will not do."""
    from cryptography.hazmat.primitives.asymmetric import ec, rsa

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


def refused(said, folder, key, kind=BundleError, **options):
    with pytest.raises(kind, match=said) as caught:
        verify_bundle(folder, public_key=key, **options)
    return str(caught.value)


def not_signed(said, folder, key, kind=ExportError, **options):
    """Check that a bundle is not signed."""
    with pytest.raises(kind, match=said):
        sign_bundle(folder, key=key, **options)
    assert not folder.with_name(f"{folder.name}.sig").exists()


@pytest.mark.parametrize("name", ["ours", "theirs"])
def test_a_bundle_with_a_signature_of_its_owner(bundle, keys, name):
    place = sign_bundle(bundle, key=keys / f"{name}.pem")
    assert place == bundle.with_name("bundle.sig")
    assert verify_bundle(bundle, public_key=keys / f"{name}.pub").passed
    assert load_bundle(bundle)  # beside which the signature lies, not in it


def test_a_bundle_that_is_exchanged_during_the_replay(signed, keys, monkeypatch, fails):
    def then_exchanged(*arguments):
        found = replayed(*arguments)
        alter_manifest(signed, model="another")
        return found

    monkeypatch.setattr("keras_attn_export._export.verify_bundle.replayed", then_exchanged)
    fails("verify", signed, "--public-key", keys / "ours.pub", said="does not show that the owner")


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
    "not sealed": (lambda bundle: flip_byte(bundle / "model.onnx"), r"Hash mismatch for 'model.onnx'\.$"),
    "a file less": (lambda bundle: (bundle / "verify.py").unlink(), r"Missing files in model .*: verify.py\.$"),
    "a file more": (lambda bundle: (bundle / "more").touch(), r"Extra files found in model .*: more\.$"),
}


@pytest.mark.parametrize(("alter", "said"), ALTERATIONS.values(), ids=ALTERATIONS)
def test_an_altered_bundle_is_not_what_was_signed(signed, keys, alter, said):
    alter(signed)
    start = r"bundle\.sig does not show that the owner of .*ours\.pub signed .*bundle as it is: Signature mismatch: "
    assert "Digest(" not in refused(rf"{start}{said}", signed, keys / "ours.pub")


def test_what_the_library_leaves_out_the_manifest_tells(signed, keys):
    (signed / ".gitignore").touch()
    refused(r"holds \.gitignore, which its manifest does not list", signed, keys / "ours.pub")


def test_without_a_key_a_signature_says_nothing(signed):
    alter_and_seal(signed)
    assert verify_bundle(signed).passed
    said = r"give `public_key` \(--public-key\) as well"
    refused(said, signed, None, ExportError, signature=signed.with_name("bundle.sig"))


def test_a_bundle_without_a_signature(bundle, keys):
    refused(r"bundle is not signed: there is no .*bundle\.sig", bundle, keys / "ours.pub")
    refused("No bundle at", bundle / "nowhere", keys / "ours.pub")


def altered_signature(signed, **material):
    """Change the material of the signature that tells whose key it is of."""
    place = signed.with_name("bundle.sig")
    content = json.loads(place.read_text())
    content["verificationMaterial"]["publicKey"] = material
    place.write_text(json.dumps(content))


def test_another_key(bundle, keys):
    sign_bundle(bundle, key=keys / "theirs.pem")
    refused(r"the owner of .*ours\.pub signed .*Key mismatch", bundle, keys / "ours.pub")
    altered_signature(bundle, hint=sha256((keys / "ours.pub").read_bytes()).hexdigest())  # it pretends to be ours
    refused(r"the owner of .*ours\.pub signed .*: InvalidSignature\.", bundle, keys / "ours.pub")


@pytest.mark.parametrize("content", [b"", b"text", b"{}", b"[]", b"\xff\xfe", b'{"verificationMaterial": {}}'])
def test_what_is_no_signature(signed, keys, content):
    signed.with_name("bundle.sig").write_bytes(content)
    refused(r"bundle\.sig does not show that the owner of .*ours\.pub signed", signed, keys / "ours.pub")


@pytest.mark.parametrize("name", ["locked.pem", "odd curve.pem", "rsa.pem", "text.pem", "ours.pub", "none"])
def test_what_is_no_private_key(bundle, keys, name):
    said = rf"{name} is no private key on the curve P-256, .* without a password(: \w.*)?\.$"
    not_signed("Cannot read the private key .*none: No such file" if name == "none" else said, bundle, keys / name)


@pytest.mark.parametrize("name", ["odd curve.pub", "rsa.pub", "text.pub", "ours.pem", "none"])
def test_what_is_no_public_key(signed, keys, name):
    said = rf"{name} is no public key on the curve P-256, .* in PEM(: \w.*)?\.$"
    said = "Cannot read the public key .*none: No such file" if name == "none" else said
    refused(said, signed, keys / name, ExportError)


def test_a_damaged_bundle_is_not_signed(bundle, keys):
    flip_byte(bundle / "model.onnx")
    not_signed(r"model\.onnx is not the file that was exported", bundle, keys / "ours.pem", BundleError)


def test_places_where_no_signature_can_be(bundle, keys, tmp_path):
    (tmp_path / "link").symlink_to(bundle)
    for place in (bundle / "own.sig", bundle / "parity" / ".." / "own.sig", tmp_path / "link" / "own.sig"):
        not_signed("is in the bundle, which holds only what its manifest", bundle, keys / "ours.pem", signature=place)
    said = r"There is no folder .*nowhere to write own\.sig to"
    not_signed(said, bundle, keys / "ours.pem", signature=tmp_path / "nowhere" / "own.sig")
    assert load_bundle(bundle)


# ------------------------------------------------------------------ command line


def test_sign_and_verify(bundle, keys, tmp_path, succeeds, fails):
    place = tmp_path / "named.sig"
    assert succeeds("sign", bundle, "--key", keys / "ours.pem", "--signature", place) == f"{place}\n"
    out = succeeds("verify", bundle, "--public-key", keys / "ours.pub", "--signature", place)
    assert out.splitlines()[-1] == f"signed by the owner of {keys / 'ours.pub'}"
    for key in keys / "theirs.pub", "":
        fails("verify", bundle, "--public-key", key, "--signature", place, said="")


def test_json_is_all_that_verify_prints(signed, keys, succeeds):
    altered_signature(signed)  # without the hint which key it is, of which the library prints a warning
    assert json.loads(succeeds("verify", signed, "--public-key", keys / "ours.pub", "--json"))["passed"]


@pytest.mark.parametrize("missing", ["model_signing", "OpenSSL"])
def test_without_the_extra(signed, keys, tmp_path, missing):
    code = f"""
from keras_attn_export._cli.main import main
bundle = {str(signed)!r}
for command in (
    ["sign", bundle, "--key", {str(keys / "ours.pem")!r}],
    ["verify", bundle, "--public-key", {str(keys / "ours.pub")!r}],
):
    assert main(command) == 1
assert main(["verify", bundle]) == 0
"""
    done = python("-c", code, cwd=tmp_path, blocked=[missing])
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines(keepends=True)
    assert len(lines) == 2
    for line in lines:
        assert_one_line(line, "error: Signing needs more packages (")
        assert 'pip install "keras-attn[sign]"' in line
