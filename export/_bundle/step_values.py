"""Where the values of a loop are between its steps, and how a session is run on them there."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Protocol

import numpy as np

from .._standalone import verify

Values = dict[str, Any]  # by name


class Runner(Protocol):
    """Runs one onnxruntime session on values, and gives values."""

    def put(self, array: np.ndarray) -> Any:
        """Return an array as a value."""

    def get(self, value: Any) -> np.ndarray:
        """Return a value as an array."""

    def dtype(self, value: Any) -> np.dtype[Any]:
        """Return the dtype of a value."""

    def run(self, inputs: Values, outputs: Sequence[str], read: Collection[str] = ()) -> Values:
        """Return outputs by name, of which some will be read as arrays."""


class OnCpu:
    """Values are arrays: onnxruntime reads them where they are, and what it gives is not copied either."""

    def __init__(self, session: Any) -> None:
        self._session = session

    def put(self, array: np.ndarray) -> np.ndarray:
        """Return the array."""
        return array

    def get(self, value: np.ndarray) -> np.ndarray:
        """Return the value."""
        return value

    def dtype(self, value: np.ndarray) -> np.dtype[Any]:
        """Return the dtype of a value."""
        return value.dtype

    def run(self, inputs: Values, outputs: Sequence[str], read: Collection[str] = ()) -> Values:
        """Return outputs by name."""
        try:
            found = self._session.run(outputs, inputs)
        except Exception as error:
            shapes = {name: value.shape for name, value in inputs.items()}
            raise verify.cannot_run(shapes, error) from error
        return dict(zip(outputs, found, strict=True))


class OnDevice:
    """Values are in the memory of a device, and stay there but for what is read."""

    def __init__(self, session: Any, ort: Any, device: str) -> None:
        self._session = session
        self._ort = ort
        self._device = device

    def put(self, array: np.ndarray) -> Any:
        """Copy an array to the device."""
        return self._ort.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array), self._device, 0)

    def get(self, value: Any) -> np.ndarray:
        """Copy a value from where it is."""
        array: np.ndarray = value.numpy()
        return array

    def dtype(self, value: Any) -> np.dtype[Any]:
        """Return the dtype of a value."""
        name = value.data_type().removeprefix("tensor(").removesuffix(")")
        dtype: np.dtype[Any] = np.dtype({"float": "float32", "double": "float64"}.get(name, name))
        return dtype

    def run(self, inputs: Values, outputs: Sequence[str], read: Collection[str] = ()) -> Values:
        """Return outputs by name; those to be read are not on the device."""
        binding = self._session.io_binding()  # one that is used again would write over what it gave
        for name, value in inputs.items():
            binding.bind_ortvalue_input(name, value)
        for name in outputs:
            binding.bind_output(name, "cpu" if name in read else self._device)
        try:
            self._session.run_with_iobinding(binding)
        except Exception as error:
            shapes = {name: tuple(value.shape()) for name, value in inputs.items()}
            raise verify.cannot_run(shapes, error) from error
        return dict(zip(outputs, binding.get_outputs(), strict=True))


def runner_of(session: Any, provider: str) -> Runner:
    """Return what runs a session of a provider."""
    return OnCpu(session) if provider == "cpu" else OnDevice(session, verify.check_provider(provider), provider)
