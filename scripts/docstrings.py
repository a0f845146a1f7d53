"""Extension of griffe (mkdocstrings) that adapts docstrings and signatures of this project.

In docstrings, Keras's section `Call arguments` becomes a list, `Example` becomes `Examples`, and names of pages in
docs/ become links. In signatures, a default that is a named constant, such as `SOFTMAX`, is replaced by its value,
`"softmax"`, and parameters of a dataclass for private fields are removed.
"""

import re
from typing import Any

import griffe

CALL_ARGUMENTS = re.compile(r"^Call arguments:\n((?:    .*\n|\n)+)", flags=re.MULTILINE)
CALL_ARGUMENT = re.compile(r"^    (\w+(?:, \w+)*): ", flags=re.MULTILINE)
PAGE = re.compile(r"`docs/([\w-]+)\.md`")


class Readable(griffe.Extension):
    """Extension that rewrites docstrings and signatures before they are parsed."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change the docstring of an object, before it is parsed."""
        if obj.docstring is not None:
            obj.docstring.value = convert_sections(obj.docstring.value)

    def on_function(self, *, func: griffe.Function, loader: griffe.GriffeLoader, **_: Any) -> None:
        """Change the parameters of a function; all modules are loaded by now."""
        func.parameters = griffe.Parameters(*(item for item in func.parameters if not item.name.startswith("_")))
        for parameter in func.parameters:
            parameter.default = resolve_constant(parameter.default, loader) or parameter.default


def resolve_constant(default: Any, loader: griffe.GriffeLoader) -> str | None:
    """Return the quoted text of a constant; None if the default is not the name of a string constant."""
    if not (isinstance(default, griffe.ExprName) and default.name.isupper()):
        return None
    try:
        value = loader.modules_collection[default.canonical_path].value
    except KeyError:
        return None
    return value if isinstance(value, str) and value[:1] in "'\"" else None


def convert_sections(text: str) -> str:
    """Convert call arguments to a list, `Example` to `Examples`, and names of pages to links."""
    text = CALL_ARGUMENTS.sub(lambda section: CALL_ARGUMENT.sub(format_names, section[0]), text + "\n")
    text = PAGE.sub(r"[the page on \1](../\1.md)", text)
    return re.sub(r"^Example:$", "Examples:", text, flags=re.MULTILINE).rstrip("\n")


def format_names(names: re.Match[str]) -> str:
    """Format one or several argument names as the beginning of a list item."""
    return "    - " + ", ".join(f"`{name}`" for name in names[1].split(", ")) + ": "
