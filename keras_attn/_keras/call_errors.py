"""Replace Keras's TypeError for a wrong layer call by one that names the arguments."""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from .._shapes import within_int32


class CheckedCalls:
    """Goes before a layer of Keras. `CALLED` is an example of a call, for messages."""

    CALLED: str

    def __call__(self, *given: Any, **options: Any) -> Any:
        """Calls the layer.

        Raises:
            TypeError: If an argument is missing or not known; the message names those that there are.
        """
        try:
            if any(within_int32(value) is not value for value in (*given, *options.values())):
                bound = inspect.signature(self.call).bind(*given, **options)  # type: ignore[attr-defined]
                for name in bound.arguments.keys() & {"valid_lens", "input_lens"}:
                    bound.arguments[name] = within_int32(bound.arguments[name])
                given, options = bound.args, bound.kwargs
            return super().__call__(*given, **options)  # type: ignore[misc]
        except TypeError:
            if said := self._unfit(given, options):
                raise TypeError(said) from None
            raise

    def _unfit(self, given: Sequence[Any], options: Mapping[str, Any]) -> str | None:
        """What does not fit the signature of `call`, or None where all does and the error was another."""
        signature = inspect.signature(self.call)  # type: ignore[attr-defined]
        try:
            signature.bind(*given, **options)
        except TypeError as error:
            came = [*map(_kind, given), *(f"`{name}`" for name in options)]
            names = [f"`{name}`" for name in signature.parameters if not name.startswith("_")]
            return (
                f"`{type(self).__name__}` cannot be called like this: {error}. Received: "
                f"{', '.join(came) or 'nothing'}. Call it as {self.CALLED}. Its arguments are {', '.join(names)}."
            )
        return None


def _kind(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"a {type(value).__name__} of {len(value)}"
    return "a tensor" if hasattr(value, "shape") else type(value).__name__
