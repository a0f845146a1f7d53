"""Assembly of `verify.py`, the script in a bundle, from modules of this folder."""

import ast
from pathlib import Path

# In reading order: a module imports only modules before it.
MODULES = ("names", "providers", "files", "cases", "session", "compare", "printing", "replay")
_HEADER = '''"""Check this bundle: replay its golden cases in onnxruntime and compare the outputs with those of Keras.

    python verify.py [--provider cuda]

Needs numpy and onnxruntime. Exit codes: 0: all outputs match; 1: an output differs, or the check failed; 2: wrong
usage. The SHA-256 digests detect damage, not forgery. The steps of the check are in `main`, at the end.
"""

import sys

if sys.version_info < (3, 11):
    sys.exit("error: verify.py needs Python 3.11 or newer, and this is Python %d.%d." % sys.version_info[:2])

'''


def verify_script() -> str:
    """Return the text of `verify.py`: the imports of all modules, then the body of every module under a caption."""
    modules: set[str] = set()
    names: dict[str, set[str]] = {}
    parts = []
    for name in MODULES:
        text = Path(__file__).with_name(f"{name}.py").read_text(encoding="utf-8")
        tree = ast.parse(text)
        imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
        for node in imports:
            if isinstance(node, ast.Import):
                modules.add(ast.unparse(node))
            elif not node.level:
                names.setdefault(str(node.module), set()).update(alias.name for alias in node.names)
        body = "\n".join(text.splitlines()[max(node.end_lineno or 0 for node in imports) :])
        parts.append(f"\n# {ast.get_docstring(tree)}\n\n{body.strip()}\n")
    modules -= {"import sys", numpy := "import numpy as np"}
    froms = [f"from {module} import {', '.join(sorted(names[module]))}" for module in sorted(names)]
    return _HEADER + "\n".join([*sorted(modules), *froms, "", numpy, "", *parts])
