"""Rendering of a report: template, style, scripts and data in one self-contained HTML file."""

import base64
import functools
import hashlib
import json
import re
from pathlib import Path
from typing import Any

from .._dependencies import require_extra
from .._format.names import MODEL
from .encoding import encode_gzip_base64, format_difference
from .page_content import PageContent
from .web_runtime import WebRuntime

ASSETS = Path(__file__).parent / "assets"
GENERATOR = "keras-attn report"
MAX_OPEN_ROWS = 40  # a longer table of comparisons is folded


def render_page(content: PageContent, web: WebRuntime | None) -> str:
    """Render the page as HTML; with onnxruntime-web, the page is live."""
    style, script = _read_asset("style.css"), _join_scripts(live=web is not None)
    data = content.data if web is None else content.data | {"live": _encode_live_files(content.folder, web)}
    template = _create_environment().get_template("page.html")
    page: str = template.render(
        **content.context,
        web_version=None if web is None else web.version,
        policy=_build_policy(style, script, live=web is not None),
        generator=GENERATOR,
        style=style,
        script=script,
        data=json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c"),
        max_open_rows=MAX_OPEN_ROWS,
    )
    return page


def _build_policy(style: str, script: str, *, live: bool) -> str:
    """Return the content security policy: scripts and styles of the page by their hashes, and no requests."""
    # onnxruntime-web is imported from a blob that the page creates, and compiles WebAssembly.
    scripts = f"{_digest(script)} blob: 'wasm-unsafe-eval'" if live else _digest(script)
    return f"default-src 'none'; style-src {_digest(style)}; script-src {scripts}; base-uri 'none'; form-action 'none'"


def _digest(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")
    return f"'sha256-{digest}'"


def _join_scripts(*, live: bool) -> str:
    """Join the scripts to one module, without imports and exports."""
    names = ["heatmaps.mjs", "examples.mjs", *(["live_model.mjs"] if live else [])]
    script = re.sub(r"^import .*\n|^export ", "", "\n".join(map(_read_asset, names)), flags=re.MULTILINE)
    # In a script element, an HTML comment or an end tag changes where a browser ends the script.
    assert "<!--" not in script
    assert "</script" not in script.lower()
    return script


@functools.cache
def _read_asset(name: str) -> str:
    return (ASSETS / name).read_text(encoding="utf-8")


def _create_environment() -> Any:
    with require_extra("runtime", "A report"):
        import jinja2
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(ASSETS),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {"difference": format_difference, "with_code": _mark_code}
    return environment


def _mark_code(text: str) -> Any:
    """Convert a message to HTML, with names between backticks as code elements."""
    from markupsafe import Markup, escape

    return Markup(re.sub("`([^`]*)`", r"<code>\1</code>", str(escape(text))))


def _encode_live_files(folder: Path, web: WebRuntime) -> dict[str, str]:
    files = {"module": web.module, "binary": web.binary, "model": (folder / MODEL).read_bytes()}
    return {"version": web.version} | {name: encode_gzip_base64(content) for name, content in files.items()}
