"""Short error messages of Keras and TensorFlow, and contexts that silence their warnings."""

import contextlib
import logging
import re
import warnings
from collections.abc import Iterator

MAX_MESSAGE_CHARACTERS = 400

# Prefixes of Keras before the message of a layer, and before the message of a failed deserialization.
_MESSAGE_PREFIXES = ("Exception encountered:", "Error encountered:")
# Configurations that Keras appends, which can have thousands of characters.
_CONFIGURATION = re.compile(r"\s*(Full object config:|\bconfig=\{|Received: config=).*", re.DOTALL)
# TensorFlow's autograph puts the stack of the converted code before the message.
_IN_USER_CODE = re.compile(r"in user code:.*^\s+\w+: (\S[^\n]*)", re.DOTALL | re.MULTILINE)
_LOST_CLASS = re.compile(r"Could not locate (class|function) '(\w+)'")
_UNSAFE_OBJECT = re.compile(r"Requested the (?:deserialization|loading) of (.*?)(?:, which .*?|)\. This carries")
_MODULE_OF_CONFIG = re.compile(r"Full object config: \{'module': '([\w.]+)'")


def shorten_message(error: BaseException) -> str:
    """Return the first line of the original message in an exception of Keras or TensorFlow, shortened."""
    message = re.sub("\x1b\\[[0-9;]*m", "", str(error))
    if lost_class := _LOST_CLASS.search(message):
        return _describe_lost_class(lost_class[1], lost_class[2], _MODULE_OF_CONFIG.search(message, lost_class.end()))
    if unsafe := _UNSAFE_OBJECT.search(message):
        return (
            f"it contains {unsafe[1]}, which can run code or read files. If you trust the file, pass "
            "`safe_mode=False` (`--unsafe`)."
        )
    for prefix in _MESSAGE_PREFIXES:
        message = message.rpartition(prefix)[2]
    if user_error := _IN_USER_CODE.match(message.lstrip()):
        message = user_error[1]
    lines = (_CONFIGURATION.sub("", line).strip() for line in message.splitlines())
    first = next((line for line in lines if line and not line.startswith("Exception encountered when calling")), "")
    if len(first) > MAX_MESSAGE_CHARACTERS:
        first = f"{first[:MAX_MESSAGE_CHARACTERS].rpartition(' ')[0]} ..."
    return first or type(error).__name__


@contextlib.contextmanager
def silence_keras() -> Iterator[None]:
    """Ignore warnings, as about a single key, that concern the sizes of drawn inputs and not the user's model."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextlib.contextmanager
def silence_dot_warnings() -> Iterator[None]:
    """Suppress the warning of TensorFlow at each trace about dots in input names, which it replaces."""

    def is_unrelated(record: logging.LogRecord) -> bool:
        return "is not a valid tf.function parameter name" not in record.getMessage()

    logger = logging.getLogger("absl")
    logger.addFilter(is_unrelated)
    try:
        yield
    finally:
        logger.removeFilter(is_unrelated)


def _describe_lost_class(kind: str, name: str, match: re.Match[str] | None) -> str:
    """Return a message about a class or function that Keras cannot find, with the steps to register it."""
    module = match[1] if match and match[1] not in ("builtins", "__main__") else None
    origin, option = (f" of module `{module}`", module) if module else ("", "MODULE")
    return (
        f"it does not know the {kind} `{name}`{origin}. Import its module before the export (`--import {option}`), "
        "and decorate it there with `@keras.saving.register_keras_serializable()`."
    )
