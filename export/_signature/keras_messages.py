"""Shorten error messages of Keras and TensorFlow, and silence their warnings."""

import contextlib
import logging
import re
import warnings
from collections.abc import Iterator

LONGEST = 400  # characters

# What Keras puts before a layer's own message, and before that of what it could not make again.
_FRAMES = ("Exception encountered:", "Error encountered:")
# What it puts behind: configurations, which can have thousands of characters.
_CONFIGURATION = re.compile(r"\s*(Full object config:|\bconfig=\{|Received: config=).*", re.DOTALL)
# Where TensorFlow's autograph has written code anew, it puts the stack before what was raised.
_IN_USER_CODE = re.compile(r"in user code:.*^\s+\w+: (\S[^\n]*)", re.DOTALL | re.MULTILINE)
_LOST_CLASS = re.compile(r"Could not locate (class|function) '(\w+)'")
_UNSAFE = re.compile(r"Requested the (?:deserialization|loading) of (.*?)(?:, which .*?|)\. This carries")
_ITS_MODULE = re.compile(r"Full object config: \{'module': '([\w.]+)'")


def first_line(error: BaseException) -> str:
    """Return what an exception says, without the frame that Keras puts around a layer's own message."""
    said = re.sub("\x1b\\[[0-9;]*m", "", str(error))
    if lost := _LOST_CLASS.search(said):
        return _lost(lost[1], lost[2], _ITS_MODULE.search(said, lost.end()))
    if unsafe := _UNSAFE.search(said):
        return (
            f"it asks for {unsafe[1]}, which can run code or read files. Where you trust the file, pass "
            "`safe_mode=False` (`--unsafe`)."
        )
    for frame in _FRAMES:
        said = said.rpartition(frame)[2]
    if raised := _IN_USER_CODE.match(said.lstrip()):
        said = raised[1]
    lines = (_CONFIGURATION.sub("", line).strip() for line in said.splitlines())
    first = next((line for line in lines if line and not line.startswith("Exception encountered when calling")), "")
    if len(first) > LONGEST:
        first = f"{first[:LONGEST].rpartition(' ')[0]} ..."
    return first or type(error).__name__


@contextlib.contextmanager
def quiet_keras() -> Iterator[None]:
    """Ignore warnings: the sizes are drawn here, and what Keras thinks of a single key is not for the user."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextlib.contextmanager
def silence_on_dots() -> Iterator[None]:
    """Keep TensorFlow from telling, at each trace, that it takes a dot in a name for an underscore."""

    def is_other(record: logging.LogRecord) -> bool:
        return "is not a valid tf.function parameter name" not in record.getMessage()

    logger = logging.getLogger("absl")
    logger.addFilter(is_other)
    try:
        yield
    finally:
        logger.removeFilter(is_other)


def _lost(kind: str, name: str, place: re.Match[str] | None) -> str:
    """Say which class is not known, and how to make it known."""
    module = place[1] if place and place[1] not in ("builtins", "__main__") else None
    of_module, option = (f" of module `{module}`", module) if module else ("", "MODULE")
    return (
        f"it does not know the {kind} `{name}`{of_module}. Import its module before the export (`--import {option}`), "
        "and decorate it there with `@keras.saving.register_keras_serializable()`."
    )
