"""Whatever manifest, report and golden cases say, a bundle is refused in a sentence, or works.

A few hundred are drawn here; `scripts/test -m fuzz` draws `--odd N` of each.
"""

import functools
import io
import json
import random
import shutil

import numpy as np
import pytest
from bundles import read_manifest, small_inputs
from odd_bundles import altered, altered_cases, replaced, sealed

from keras_attn_export import ExportError, load_bundle, verify_bundle
from keras_attn_export._bundle.folder import REPORT, is_bundle
from keras_attn_export._cli.describe import describe
from keras_attn_export._standalone import verify
from keras_attn_export._standalone.verify import CASES, MANIFEST

pytest_plugins = ("bundle_fixtures",)

FEW = 80


@pytest.fixture(scope="module")
def small(exported, tmp_path_factory):
    """Return a bundle of two golden cases and no SavedModel, for a test to alter."""
    bundle = shutil.copytree(exported, tmp_path_factory.mktemp("small") / "bundle")
    shutil.rmtree(bundle / "saved_model")
    verify.save_cases(bundle / CASES, verify.load_cases(bundle / CASES)[:2])
    report = json.loads((bundle / REPORT).read_text())
    report |= {part: report[part][:3] for part in ("rows", "saved_model_rows")} | {"refused": {"odd": "why"}}
    report["float32_clone"] = {"policies": ["float16"], "max_abs": 0.5, "max_rel": "inf"}
    top1 = {"context": {"agreement": 0.5, "rows": 3}}
    report["precision"] = {"name": "float16", "size_ratio": 0.5, "time_ratio": 0.7, "top1": top1}
    (bundle / REPORT).write_text(json.dumps(report))
    kept = {name: hash for name, hash in read_manifest(bundle)["sha256"].items() if not name.startswith("saved_model")}
    kept |= {name: verify.sha256(bundle / name) for name in (CASES, REPORT)}
    manifest = read_manifest(bundle) | {"sha256": kept}
    manifest["layers"][0]["milliseconds"] = [{"portable": 0.5, "fused": 1}]
    manifest |= {"multiples": {"batch": 1}, "static": {"features": "why"}}
    (bundle / MANIFEST).write_bytes(verify.manifest_bytes(manifest))
    return bundle


@pytest.fixture
def same_model(small, monkeypatch):
    """Open the model, which no test alters, once."""
    opened = functools.cache(verify.open_session)
    monkeypatch.setattr(verify, "open_session", lambda *_, **__: opened(small / verify.MODEL))
    monkeypatch.setattr("keras_attn_export._bundle.atomic_folder._sync", lambda _: None)


def manifests(small, rng):
    """Write an odd manifest, and return what reads it."""
    (small / MANIFEST).write_bytes(sealed(altered(read_manifest(small), rng)))
    return described, run, verified, shown


def reports(small, rng):
    """Write an odd report, and return what reads it."""
    replaced(small, REPORT, json.dumps(altered(json.loads((small / REPORT).read_text()), rng)).encode())
    return described, shown


def cases(small, rng):
    """Write odd golden cases, and return what reads them."""
    content = io.BytesIO()
    np.savez(content, **altered_cases(verify.read_arrays(small / CASES), rng))
    replaced(small, CASES, content.getvalue())
    return verified, shown


def described(folder):
    return describe(load_bundle(folder))


def run(folder):
    return load_bundle(folder).run(small_inputs())


def verified(folder):
    return verify_bundle(folder)


def shown(folder):
    return load_bundle(folder).write_report(folder.with_name("page.html"), inputs=small_inputs())


def succeeds(use, folder):
    """Tell whether a use of a bundle works; what is said against it must be an error of ours, which can be printed."""
    try:
        use(folder)
    except ExportError as error:
        str(error).encode()
        return False
    return True


@pytest.mark.usefixtures("same_model")
@pytest.mark.parametrize("kind", [manifests, reports, cases])
@pytest.mark.parametrize("draws", [FEW, pytest.param(None, marks=pytest.mark.fuzz)], ids=["few", "all"])
def test_odd_entries(small, kind, draws, random_seed, pytestconfig, tmp_path):
    original = {name: (small / name).read_bytes() for name in (MANIFEST, REPORT, CASES)}
    worked = 0
    draws = draws or pytestconfig.getoption("--odd")
    for number in range(draws):
        rng = random.Random(f"{random_seed} {number}")
        try:
            readers = kind(small, rng)
            is_bundle(small)
            worked += all([succeeds(use, small) for use in readers])
        except Exception as error:
            name = shutil.copytree(small, tmp_path / "odd")
            raise AssertionError(f"draw {number} of seed {random_seed}, kept at {name}: {error!r}") from error
        finally:
            for name, content in original.items():
                (small / name).write_bytes(content)
    assert 0 < worked < draws
