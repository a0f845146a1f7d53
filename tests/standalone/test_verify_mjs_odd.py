"""Odd manifests and golden cases are judged by `verify.mjs` as by `verify.py`, in the same words."""

import io
import random

import numpy as np
import pytest
from bundles import read_manifest
from odd_bundles import altered, altered_cases, sealed

from keras_attn_export import BundleError
from keras_attn_export._standalone import verify
from keras_attn_export._standalone.verify import CASES, MANIFEST, Manifest

pytest_plugins = ("bundle_fixtures", "web_fixtures")
pytestmark = pytest.mark.web

DRAWS = 400


def said(judge, folder):
    """Return what is said against a bundle by a function, without the path before it; nothing where it is taken."""
    try:
        judge()
    except BundleError as error:
        return str(error).replace(f"{folder}/", "")
    return None


def with_integers(content):
    """Return JSON with 3 for 3.0: JavaScript does not tell them apart, and Python does."""
    if isinstance(content, dict):
        return {key: with_integers(value) for key, value in content.items()}
    if isinstance(content, list):
        return [with_integers(value) for value in content]
    return int(content) if isinstance(content, float) and content.is_integer() else content


def test_odd_manifests(judge, bundle, random_seed):
    original, refused = read_manifest(bundle), 0
    for number in range(DRAWS):
        manifest = with_integers(altered(original, random.Random(f"{random_seed} {number}")))
        (bundle / MANIFEST).write_bytes(sealed(manifest))
        ours = said(lambda: verify.checked_entries(bundle), bundle)
        answer = judge.ask({"does": "manifest", "text": (bundle / MANIFEST).read_text("ascii")})
        theirs = answer.get("error") if answer.get("kind") == "BundleError" else None
        assert "kind" not in answer or theirs, f"draw {number}: {answer}"
        assert (ours is None) == (theirs is None), f"draw {number}: {ours} and {theirs}"
        if ours and "must" in ours:
            assert ours == theirs, f"draw {number}"
        refused += ours is not None
    assert DRAWS * 0.2 < refused < DRAWS


def test_odd_cases(judge, bundle, random_seed):
    cases = verify.load_cases(bundle / CASES)[:2]
    verify.save_cases(bundle / CASES, cases)
    arrays, manifest, refused = verify.read_arrays(bundle / CASES), read_manifest(bundle), 0
    for number in range(DRAWS):
        content = io.BytesIO()
        np.savez(content, **altered_cases(arrays, random.Random(f"{random_seed} {number}")))
        (bundle / CASES).write_bytes(content.getvalue())
        ours = said(lambda: verify.golden_cases(bundle, Manifest.of(manifest)), bundle)
        answer = judge.ask({"does": "cases", "path": str(bundle / CASES), "manifest": manifest})
        theirs = answer["error"] if isinstance(answer, dict) else None
        assert theirs is None or answer["kind"] == "BundleError", f"draw {number}: {answer}"
        assert (ours is None) == (theirs is None), f"draw {number}: {ours} and {theirs}"
        refused += ours is not None
    assert DRAWS * 0.2 < refused < DRAWS
