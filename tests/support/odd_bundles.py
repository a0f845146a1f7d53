"""Bundles with odd entries in manifest, report or golden cases, sealed again, as whoever alters one would."""

import copy
import hashlib
import json

import numpy as np
from bundles import read_manifest

from keras_attn_export._standalone import verify

DEEP = [[]]
for _ in range(40):
    DEEP = [DEEP]
TEXTS = ("", "a", "nan", "inf", "0", "..", "bfloat16", "float32", "1.18", "a\nb", "\0", "\u202e", "\ud800", "x" * 5000)
NUMBERS = (0, -1, 1, 7, 2**31, 2**53, 2**63, -(2**70), 10**400, 0.5, 3.0, -0.0, 1e308, 5e-324)
NOT_FINITE = float("nan"), float("inf"), -float("inf")
NESTED = ([], {}, [[]], [None] * 40, ["a", 1], {"a": 1}, {"": ""}, {"\udfff": "a"}, {"a": {"b": []}}, DEEP)
ODD = (None, True, False, *TEXTS, *NUMBERS, *NOT_FINITE, *NESTED)


def places(content):
    """Return (container, key) of every value within a value of JSON."""
    inner = content.items() if isinstance(content, dict) else enumerate(content)
    found = [(content, key) for key, _ in inner]
    for _, value in [*(content.items() if isinstance(content, dict) else enumerate(content))]:
        found += places(value) if isinstance(value, dict | list) else []
    return found


def altered(content, rng):
    """Return JSON with one to three values replaced by odd ones or each other, removed, renamed or added."""
    content = copy.deepcopy(content)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        container, key = rng.choice(places(content))
        odd = copy.deepcopy(rng.choice(ODD))
        change = rng.random()
        if change < 0.6:
            container[key] = odd
        elif change < 0.7:
            other, its = rng.choice(places(content))
            container[key] = copy.deepcopy(other[its])
        elif change < 0.8:
            del container[key]
        elif isinstance(container, list):
            container.insert(rng.randrange(len(container) + 1), rng.choice((odd, copy.deepcopy(container[key]))))
        else:
            name = rng.choice((*(text for text in TEXTS), f"{key}?", str(key).upper()))
            container[name] = rng.choice((odd, container.pop(key) if change < 0.9 else odd))
    return content


def sealed(manifest):
    """Return the bytes of a manifest, with numbers too that are not finite, which Python writes and reads."""
    if not isinstance(manifest, dict):
        return json.dumps(manifest).encode()
    try:
        return verify.manifest_bytes(manifest)
    except ValueError:
        plain = {name: value for name, value in manifest.items() if name != verify.DIGEST}
        digest = hashlib.sha256((json.dumps(plain, indent=2) + "\n").encode()).hexdigest()
        return (json.dumps({**plain, verify.DIGEST: digest}, indent=2) + "\n").encode()


def replaced(folder, name, content):
    """Put other bytes into a file of a bundle, and its hash into the manifest, which is written anew in any case."""
    (folder / name).write_bytes(content)
    manifest = read_manifest(folder)
    manifest["sha256"][name] = hashlib.sha256(content).hexdigest()
    (folder / verify.MANIFEST).write_bytes(verify.manifest_bytes(manifest))


DTYPES = ("float16", "float64", "int8", "int64", "uint8", "bool", "complex64", ">f4", "<U3", "S2", "M8[s]", "V3")
NUMBERS_OF_CASES = (np.nan, np.inf, -np.inf, 1.7e308, -1.7e308, -1, 2**62)


def altered_cases(arrays, rng):
    """Return the arrays of golden cases with one to three of them changed, removed, renamed or added."""
    arrays = dict(arrays)
    for _ in range(rng.choice((1, 1, 2, 3))):
        key = rng.choice(sorted(arrays))
        array, change = arrays.pop(key), rng.randrange(8)
        with np.errstate(all="ignore"):
            if change == 0:
                arrays[key] = np.zeros(array.shape, rng.choice(DTYPES))
            elif change == 1:
                arrays[key] = array[..., np.newaxis] if rng.random() < 0.5 or not array.size else array.ravel()[0]
            elif change == 2:
                arrays[key] = array[:0] if array.ndim else array
            elif change == 3:
                arrays[key] = np.repeat(array, 2, axis=-1) if array.ndim else array
            elif change == 4:
                index, _, rest = key.partition("/")
                arrays[rng.choice((f"9/{rest}", f"0{index}/{rest}", f"{key}/", key.upper(), "", rest, "cases"))] = array
            elif change == 5 and array.dtype.kind in "iuf":
                arrays[key] = np.full_like(array, np.float64(rng.choice(NUMBERS_OF_CASES)).astype(array.dtype))
            elif change == 6:
                arrays["cases"] = np.array(
                    rng.choice((["a"] * 100, [""], ["a", "a"], ["x" * 2000], [1, 2], ["\ud800"]))
                )
    return arrays
