"""For mkdocstrings: what it would not take for what it is.

In docstrings `Call arguments`, as Keras calls them, are a list, `Example` holds Python, as `Examples` does, and a page
of docs/ is a link. In signatures a default that has a name, such as `SOFTMAX`, is shown as what it is, `"softmax"`, and
the parameters that a dataclass has for its private fields are left out.
"""

import re
from typing import Any

import griffe

CALL_ARGUMENTS = re.compile(r"^Call arguments:\n((?:    .*\n|\n)+)", flags=re.MULTILINE)
CALL_ARGUMENT = re.compile(r"^    (\w+(?:, \w+)*): ", flags=re.MULTILINE)
PAGE = re.compile(r"`docs/([\w-]+)\.md`")


class Readable(griffe.Extension):
    """Writes docstrings in the words that mkdocstrings knows, and signatures for who reads them."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change the docstring of an object, before it is parsed."""
        if obj.docstring is not None:
            obj.docstring.value = with_known_sections(obj.docstring.value)

    def on_function(self, *, func: griffe.Function, loader: griffe.GriffeLoader, **_: Any) -> None:
        """Change the parameters of a function; all modules are loaded by now."""
        func.parameters = griffe.Parameters(*(each for each in func.parameters if not each.name.startswith("_")))
        for parameter in func.parameters:
            parameter.default = constant_text(parameter.default, loader) or parameter.default


def constant_text(default: Any, loader: griffe.GriffeLoader) -> str | None:
    """Return the text, in quotes, that a name in capitals stands for; None if it stands for none or is no such name."""
    if not (isinstance(default, griffe.ExprName) and default.name.isupper()):
        return None
    try:
        value = loader.modules_collection[default.canonical_path].value
    except KeyError:
        return None
    return value if isinstance(value, str) and value[:1] in "'\"" else None


def with_known_sections(text: str) -> str:
    """Return a docstring with a list of call arguments, `Examples` in the place of `Example`, and links to pages."""
    text = CALL_ARGUMENTS.sub(lambda section: CALL_ARGUMENT.sub(listed, section[0]), text + "\n")
    text = PAGE.sub(r"[the page on \1](../\1.md)", text)
    return re.sub(r"^Example:$", "Examples:", text, flags=re.MULTILINE).rstrip("\n")


def listed(names: re.Match[str]) -> str:
    """Return the beginning of an item of a list, of one name or several."""
    return "    - " + ", ".join(f"`{name}`" for name in names[1].split(", ")) + ": "
