"""Rendering of a report: template, style, scripts and data in one HTML file that loads nothing."""

import base64
import functools
import hashlib
import json
import re
from pathlib import Path
from typing import Any

from .._dependencies import needing
from .._format.names import MODEL
from .encoding import difference_text, gzip_base64
from .page_content import PageContent
from .web_runtime import WebRuntime

ASSETS = Path(__file__).parent / "assets"
GENERATOR = "keras-attn report"
MAX_OPEN_ROWS = 40  # comparisons that are not folded away


def render_page(content: PageContent, web: WebRuntime | None) -> str:
    """Return the page as HTML; with onnxruntime-web it is live."""
    style, script = _asset("style.css"), _script(live=web is not None)
    data = content.data if web is None else content.data | {"live": _live_files(content.folder, web)}
    template = _environment().get_template("page.html")
    page: str = template.render(
        **content.context,
        web_version=None if web is None else web.version,
        policy=_policy(style, script, live=web is not None),
        generator=GENERATOR,
        style=style,
        script=script,
        data=json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c"),
        max_open_rows=MAX_OPEN_ROWS,
    )
    return page


def _policy(style: str, script: str, *, live: bool) -> str:
    """Return the content security policy: scripts and styles of the page by their hashes, and no requests.

    The module of onnxruntime-web is imported from a blob that the page creates, and compiles WebAssembly.
    """
    scripts = f"{_hash(script)} blob: 'wasm-unsafe-eval'" if live else _hash(script)
    return f"default-src 'none'; style-src {_hash(style)}; script-src {scripts}; base-uri 'none'; form-action 'none'"


def _hash(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")
    return f"'sha256-{digest}'"


def _script(*, live: bool) -> str:
    """Return the scripts as one module, without imports and exports."""
    names = ["heatmaps.mjs", "examples.mjs", *(["live_model.mjs"] if live else [])]
    script = re.sub(r"^import .*\n|^export ", "", "\n".join(map(_asset, names)), flags=re.MULTILINE)
    # a comment that opens in a script element would change how a browser finds its end
    assert "<!--" not in script
    assert "</script" not in script.lower()
    return script


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
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {"difference": difference_text, "with_code": _with_code}
    return environment


def _with_code(text: str) -> Any:
    """Return a message as HTML, with names between backticks as code."""
    from markupsafe import Markup, escape

    return Markup(re.sub("`([^`]*)`", r"<code>\1</code>", str(escape(text))))


def _live_files(folder: Path, web: WebRuntime) -> dict[str, str]:
    files = {"module": web.module, "binary": web.binary, "model": (folder / MODEL).read_bytes()}
    return {"version": web.version} | {name: gzip_base64(content) for name, content in files.items()}
