"""Every fault that may be put into a file of our own, the file with one of them, and a sample drawn with a seed."""

import ast
import random
from collections import defaultdict, namedtuple
from collections.abc import Iterator, Sequence
from itertools import count, pairwise
from pathlib import Path

EXCHANGED = {ast.Lt: ast.LtE, ast.Gt: ast.GtE, ast.Eq: ast.NotEq, ast.Is: ast.IsNot, ast.In: ast.NotIn}
EXCHANGED |= {ast.And: ast.Or, ast.Add: ast.Sub, ast.Mult: ast.Div, ast.BitAnd: ast.BitOr}
EXCHANGED |= {new: old for old, new in EXCHANGED.items()}
EXCHANGED |= {ast.FloorDiv: ast.Div, ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult, ast.MatMult: ast.Mult}
# Calls and keywords that compute nothing, hold prose, or change nothing on Linux as long as all goes well.
SILENT = {"dataclass", "warn", "NewType", "TypeVar", "strict", "encoding", "help", "metavar"}
SAME_OR_REFUSED = {"isinstance", "issubclass", "getattr", "hasattr", "max", "min"}  # with their arguments exchanged

Fault = namedtuple("Fault", "file kind old new")  # a node of a file, and what comes in its place


def faults(file: Path, text: str) -> list[Fault]:
    """Every fault of a file; what is the same as before is none."""
    found = [Fault(file, *change) for change in _changes(ast.parse(text))]
    return [fault for fault in found if ast.dump(fault.old) != ast.dump(fault.new)]


def mutated(text: str, fault: Fault) -> str:
    """The text of a file with a fault of it."""
    old, new, lines = fault.old, fault.new, text.encode().split(b"\n")  # columns count bytes
    put = f"({ast.unparse(new)})" if isinstance(new, ast.expr) else ast.unparse(new)
    before, after = lines[old.lineno - 1][: old.col_offset], lines[old.end_lineno - 1][old.end_col_offset :]
    lines[old.lineno - 1 : old.end_lineno] = [before + put.encode() + after]
    return b"\n".join(lines).decode()


def drawn(given: Sequence[Fault], limit: int, seed: int) -> list[Fault]:
    """Up to so many: the kinds take turns, each line that has one is as likely as the others, and so is each on it."""
    rng, turn = random.Random(seed), defaultdict(count)
    of_lines = {(fault.kind, fault.file, fault.old.lineno): fault for fault in rng.sample(given, len(given))}
    shuffled = rng.sample([*of_lines.values()], len(of_lines))
    return sorted(shuffled, key=lambda fault: next(turn[fault.kind]))[:limit]


def _changes(node: ast.AST) -> Iterator[tuple[str, ast.AST, ast.AST]]:
    """Of a node and all in it: the kind of a fault, a node, and what comes in its place."""
    match node:
        case ast.Assert() | ast.Import() | ast.ImportFrom() | ast.JoinedStr() | ast.Raise() | ast.Expr(ast.Constant()):
            return  # it does not say how code works, and nor do the next
        case ast.Assign(targets=[ast.Name("__all__" | "__version__")]) | ast.If(test=ast.Name("TYPE_CHECKING")):
            return
        case ast.Call(func=ast.Attribute(attr=name) | ast.Name(name)) | ast.keyword(arg=name) if name in SILENT:
            return
        case ast.Compare(ops=ops):
            for index, op in enumerate(ops):
                yield "comparison", node, _with(node, ops=[*ops[:index], EXCHANGED[type(op)](), *ops[index + 1 :]])
        case ast.BinOp(op=op) | ast.AugAssign(op=op) if type(op) in EXCHANGED:
            yield "arithmetic", node, _with(node, op=EXCHANGED[type(op)]())
        case ast.BoolOp(op=op):
            yield "condition", node, _with(node, op=EXCHANGED[type(op)]())
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            yield "arithmetic", node, operand
        case ast.Constant(bool() | int() | float() | str() as value) if len(str(value).split()) < 2:  # no prose
            new = not value if isinstance(value, bool) else value + ("_" if isinstance(value, str) else 1)
            yield "constant", node, ast.Constant(new)
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test) | ast.comprehension(ifs=[test, *_]):
            if not isinstance(test, ast.Compare):  # which has faults of its own
                yield "condition", test, ast.UnaryOp(ast.Not(), test)
        case ast.Call(func=called, args=args, keywords=keywords):
            is_fixed = isinstance(called, ast.Name) and called.id in SAME_OR_REFUSED
            for index, (first, second) in enumerate(() if is_fixed else pairwise(args)):
                yield "argument", node, _with(node, args=[*args[:index], second, first, *args[index + 2 :]])
            for each in keywords:
                if each.arg and each.arg not in SILENT:
                    yield "argument", node, _with(node, keywords=[other for other in keywords if other is not each])
        case ast.Return(ast.expr() as value) if not (isinstance(value, ast.Constant) and value.value is False):
            yield "returned value", value, ast.Constant(None)
            if isinstance(value, ast.Tuple):
                yield "returned value", value, ast.Tuple(value.elts[::-1], ast.Load())
    match node:
        case ast.Expr(ast.Call()) | ast.AugAssign() | ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield "dropped statement", node, ast.Pass()
    for child in ast.iter_child_nodes(node):
        if child not in (getattr(node, "annotation", None), getattr(node, "returns", None)):
            yield from _changes(child)


def _with(node: ast.AST, **fields: object) -> ast.AST:
    return type(node)(**{**dict(ast.iter_fields(node)), **fields})
