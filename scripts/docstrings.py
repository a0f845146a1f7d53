"""For mkdocstrings: sections of our docstrings that it would not take for what they are.

`Call arguments`, as Keras calls them, are a list. `Example` holds Python, as `Examples` does.
"""

import re
from typing import Any

import griffe

CALL_ARGUMENTS = re.compile(r"^Call arguments:\n((?:    .*\n|\n)+)", flags=re.MULTILINE)


class Sections(griffe.Extension):
    """Writes these sections in the words that mkdocstrings knows."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change the docstring of an object, before it is parsed."""
        if obj.docstring is not None:
            obj.docstring.value = with_known_sections(obj.docstring.value)


def with_known_sections(text: str) -> str:
    """Return a docstring with a list of call arguments, and with `Examples` in the place of `Example`."""
    text = CALL_ARGUMENTS.sub(
        lambda section: re.sub(r"^    (\w+): ", r"    - `\1`: ", section[0], flags=re.MULTILINE), text + "\n"
    )
    return re.sub(r"^Example:$", "Examples:", text, flags=re.MULTILINE).rstrip("\n")
