"""Error messages for wrong layer calls, with the received and the expected arguments."""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from .._shapes import clip_to_int32


class CallErrorMixin:
    """Mixin that replaces errors of wrong calls; list it before the Keras layer class."""

    CALL_EXAMPLE: str  # example of a call, quoted in error messages

    def __call__(self, *args: Any, **options: Any) -> Any:
        """Call the layer with 64-bit lengths clipped to int32; list its arguments if a call does not fit them."""
        try:
            if any(clip_to_int32(value) is not value for value in (*args, *options.values())):
                bound = inspect.signature(self.call).bind(*args, **options)  # type: ignore[attr-defined]
                for name in bound.arguments.keys() & {"valid_lens", "input_lens"}:
                    bound.arguments[name] = clip_to_int32(bound.arguments[name])
                args, options = bound.args, bound.kwargs
            return super().__call__(*args, **options)  # type: ignore[misc]
        except TypeError:
            if message := self._signature_error(args, options):
                raise TypeError(message) from None
            raise

    def _signature_error(self, args: Sequence[Any], options: Mapping[str, Any]) -> str | None:
        """Return a message if the arguments do not fit the signature of `call`, else None."""
        signature = inspect.signature(self.call)  # type: ignore[attr-defined]
        try:
            signature.bind(*args, **options)
        except TypeError as error:
            received = [*map(_describe_argument, args), *(f"`{name}`" for name in options)]
            names = [f"`{name}`" for name in signature.parameters if not name.startswith("_")]
            return (
                f"`{type(self).__name__}` cannot be called with these arguments: {error}. Received: "
                f"{', '.join(received) or 'nothing'}. Call it as {self.CALL_EXAMPLE}. Its arguments are "
                f"{', '.join(names)}."
            )
        return None


def _describe_argument(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"a {type(value).__name__} of {len(value)}"
    return "a tensor" if hasattr(value, "shape") else type(value).__name__
