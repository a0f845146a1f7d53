"""What a model takes for the outputs of a layer whose calls give more or fewer of them."""

from typing import Any

from ._private_keras import calls_of


class VariedOutputs:
    """Goes before a layer of Keras, which counts the outputs of its first call: a later one may give weights too."""

    @property
    def output(self) -> Any:
        """The outputs of the call with the most of them."""
        return max((call.output_tensors for call in calls_of(self)), key=len, default=None)
