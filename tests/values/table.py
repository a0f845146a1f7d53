"""Operator cases, and the list to which each module of cases adds its own."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial, reduce
from typing import Any

from .grids import FLOATS, make_array

InputMaker = Callable[[str, str], Any]


@dataclass(frozen=True)
class OperatorCase:
    """An operator with arguments that change the computation.

    Attributes:
        operator: Public name, as `keras.ops.clip`.
        function: Function of tensors; returns a tensor, or a list, tuple or dict of tensors.
        make_inputs: Function of a kind of value and a dtype; returns the arrays that `function` is called with.
        dtypes: Dtypes of the inputs.
        variant: Short description of the arguments; empty for the defaults.
        is_static: True if the shapes are static when the function is traced; False where Keras accepts unknown sizes.
        limit: Largest relative difference of floats, in float32.
        refusal: Part of the export's error message, if the export refuses the operator.
        deviations: Kinds of value for which the file differs, for a reason in `deviations.py`.
    """

    operator: str
    function: Callable[..., Any]
    make_inputs: InputMaker = make_array
    dtypes: tuple[str, ...] = FLOATS
    variant: str = ""
    is_static: bool = False
    limit: float = 2e-6
    refusal: str = ""
    deviations: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.operator} ({self.variant})" if self.variant else self.operator


OPERATOR_CASES: list[OperatorCase] = []
FIELDS = {field.name for field in fields(OperatorCase)}


def add_ops(
    module: Any, names: str, make_inputs: InputMaker = make_array, dtypes: tuple[str, ...] = FLOATS, **options: Any
) -> None:
    """Add a case for each function of a module that is named, with spaces between the names.

    Options that are no fields of `OperatorCase` become keyword arguments of the functions.
    """
    arguments = {name: options.pop(name) for name in [*options] if name not in FIELDS}
    for name in names.split():
        function = reduce(getattr, name.split("."), module)
        add(f"{module.__name__}.{name}", partial(function, **arguments), make_inputs, dtypes, **options)


def add(operator: str, function: Callable[..., Any], *values: Any, **options: Any) -> None:
    """Add a case; the arguments after the function are fields of `OperatorCase`, in their order or by name."""
    OPERATOR_CASES.append(OperatorCase(operator, function, *values, **options))
