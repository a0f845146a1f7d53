"""The page: a template, its style and scripts, and what they show, in one text that loads nothing."""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .._packages import needing
from .._standalone import verify
from .content import Content
from .encoding import number, packed
from .runtime import WebRuntime

ASSETS = Path(__file__).parent / "assets"
GENERATOR = "keras-attn report"
MOST_ROWS = 40  # comparisons that are shown at once


def rendered(content: Content, web: WebRuntime | None = None) -> str:
    """Return the page; with `web`, one that runs the model."""
    style = _asset("style.css")
    script = _script(live=web is not None)
    data = content.data if web is None else content.data | {"live": _live(content.folder, web)}
    environment = _environment()
    return str(
        environment.get_template("page.html").render(
            **content.shown,
            data=data,
            live=web,
            policy=_policy(style, script, live=web is not None),
            generator=GENERATOR,
            style=_markup(style),
            script=_markup(script),
            json=_markup(json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")),
            most=MOST_ROWS,
        )
    )


def _policy(style: str, script: str, *, live: bool) -> str:
    """Return the content security policy: what is in the page may run, by its hash, and nothing is loaded.

    The module of onnxruntime-web is imported from a blob that the page makes, and compiles WebAssembly.
    """
    runs = f"{_hash(script)} blob: 'wasm-unsafe-eval'" if live else _hash(script)
    # the style of an element is set by our script only, which a policy does not count as inline
    return f"default-src 'none'; style-src {_hash(style)}; script-src {runs}; base-uri 'none'; form-action 'none'"


def _hash(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")
    return f"'sha256-{digest}'"


def _script(*, live: bool) -> str:
    """Return the scripts as one module, without their imports of each other."""
    files = ["maps.mjs", "page.mjs", *(["replay.mjs", "live.mjs"] if live else [])]
    script = "\n".join(_bare(_asset(name)) for name in files)
    # a comment that opens in a script element would change how a browser finds its end
    assert "<!--" not in script
    assert "</script" not in script.lower()
    return script


def _bare(text: str) -> str:
    return re.sub(r"^export ", "", re.sub(r"^import .*\n", "", text, flags=re.MULTILINE), flags=re.MULTILINE)


@functools.cache
def _asset(name: str) -> str:
    return (ASSETS / name).read_text(encoding="utf-8")


def _environment() -> Any:
    with needing("runtime", "A report"):
        import jinja2
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(ASSETS),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.ChainableUndefined,
    )
    environment.globals["number"] = number
    return environment


def _markup(text: str) -> Any:
    import markupsafe

    return markupsafe.Markup(text)


def _live(folder: Path, web: WebRuntime) -> Mapping[str, Any]:
    files = {"module": web.module, "binary": web.binary}
    files |= {"model": (folder / verify.MODEL).read_bytes(), "cases": (folder / verify.CASES).read_bytes()}
    taken = {name: packed(raw) for name, raw in files.items()}
    manifest = json.loads((folder / verify.MANIFEST).read_text(encoding="utf-8"))
    return {"version": web.version, "manifest": manifest, **taken}
