"""Every fault that may be put into a file of our own, the file with one of them, and a sample drawn with a seed."""

import ast
import random
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple

KINDS = ("comparison", "arithmetic", "constant", "condition", "argument", "dropped statement", "returned value")
EXCHANGED = {ast.Lt: ast.LtE, ast.Gt: ast.GtE, ast.Eq: ast.NotEq, ast.Is: ast.IsNot, ast.In: ast.NotIn}
EXCHANGED |= {ast.And: ast.Or, ast.Add: ast.Sub, ast.Mult: ast.Div, ast.BitAnd: ast.BitOr}
EXCHANGED |= {new: old for old, new in EXCHANGED.items()}
EXCHANGED |= {ast.FloorDiv: ast.Div, ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult, ast.MatMult: ast.Mult}
NEGATED = (ast.Eq, ast.NotEq, ast.Is, ast.IsNot, ast.In, ast.NotIn)  # already, as a comparison
# Calls and keywords that compute nothing, hold prose, or change nothing on Linux as long as all goes well.
SILENT = {"dataclass", "warn", "NewType", "TypeVar", "strict", "encoding", "help", "metavar"}
SAME_OR_REFUSED = {"isinstance", "issubclass", "getattr", "hasattr", "max", "min"}  # with their arguments exchanged
LEFT_OUT = (ast.Assert, ast.Import, ast.ImportFrom, ast.JoinedStr, ast.Raise)


class Fault(NamedTuple):
    """One fault: where it begins, what it does, and the text that it changes."""

    file: str
    line: int
    column: int
    kind: str
    what: str
    text: str


class Change(NamedTuple):
    """What makes a fault: a node that goes and one that comes; `place` is where to look."""

    kind: str
    what: str
    place: ast.AST
    old: ast.AST
    new: ast.AST


def faults(file: str, text: str) -> list[Fault]:
    """Every fault of a file."""
    return [_fault(file, text.split("\n"), change) for change in _changes(ast.parse(text))]


def mutated(text: str, fault: Fault) -> tuple[str, str]:
    """The text with a fault of it, and of that the line that differs; nothing where the fault is not there."""
    lines = text.split("\n")
    change = next((each for each in _changes(ast.parse(text)) if _fault(fault.file, lines, each) == fault), None)
    if change is None:
        return "", ""
    old, put = change.old, ast.unparse(change.new)
    if isinstance(change.new, ast.expr) and not isinstance(change.new, ast.Constant):
        put = f"({put})"  # whatever stands around it
    encoded = [line.encode() for line in lines]  # columns count bytes
    before, after = encoded[old.lineno - 1][: old.col_offset], encoded[old.end_lineno - 1][old.end_col_offset :]
    lines[old.lineno - 1 : old.end_lineno] = [(before + put.encode() + after).decode()]
    return "\n".join(lines), lines[old.lineno - 1].strip()


def drawn(given: Iterable[Fault], count: int, seed: int) -> list[Fault]:
    """Up to so many: the kinds take turns, each line that has one is as likely as the others, and so is each on it."""
    rng = random.Random(seed)
    places: dict[str, dict[tuple[str, int], list[Fault]]] = {kind: defaultdict(list) for kind in KINDS}
    for fault in sorted(given):
        places[fault.kind][fault.file, fault.line].append(fault)
    found: list[Fault] = []
    while len(found) < count and any(places.values()):
        for kind in rng.sample(KINDS, len(KINDS)):
            if places[kind]:
                found.append(rng.choice(places[kind].pop(rng.choice([*places[kind]]))))
    return found[:count]


def _fault(file: str, lines: list[str], change: Change) -> Fault:
    text = " ".join(line.strip() for line in lines[change.old.lineno - 1 : change.old.end_lineno])
    return Fault(file, change.place.lineno, change.place.col_offset, change.kind, change.what, text)


def _changes(node: ast.AST) -> Iterator[Change]:
    """The changes of a node and of all that is in it."""
    if _is_left_out(node):
        return
    yield from _of_expression(node)
    yield from _of_statement(node)
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and name not in ("annotation", "returns"):
                yield from _changes(child)


def _is_left_out(node: ast.AST) -> bool:
    match node:
        case ast.Expr(ast.Constant()) | ast.FunctionDef(name="__repr__"):
            return True
        case ast.If(test=ast.Name("TYPE_CHECKING") | ast.Compare(left=ast.Name("__name__"))):
            return True
        case ast.Assign(targets=[ast.Name("__all__" | "__version__")]):
            return True
        case ast.Call(func=ast.Attribute(attr=name)) | ast.keyword(arg=name) | ast.Call(func=ast.Name(name)):
            return name in SILENT
    return isinstance(node, LEFT_OUT)


def _of_expression(node: ast.AST) -> Iterator[Change]:
    match node:
        case ast.Compare(ops=ops, comparators=others):
            for index, (old, other) in enumerate(zip(ops, others, strict=True)):
                new = EXCHANGED[type(old)]()
                yield _exchanged("comparison", node, other, old, new, ops=[*ops[:index], new, *ops[index + 1 :]])
        case ast.BinOp(op=old, right=other) | ast.AugAssign(op=old, value=other):
            if type(old) in EXCHANGED and not any(_is_text(each) for each in ast.iter_child_nodes(node)):
                new = EXCHANGED[type(old)]()
                yield _exchanged("arithmetic", node, other, old, new, op=new)
        case ast.BoolOp(op=old, values=[_, second, *_]):
            new = EXCHANGED[type(old)]()
            yield _exchanged("condition", node, second, old, new, op=new)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            yield Change("arithmetic", "- dropped", node, node, operand)
        case ast.Constant(bool() | int() | float() | str() as old):
            new = not old if isinstance(old, bool) else old + ("_" if isinstance(old, str) else 1)
            if new != old and not re.search(r"\s", str(old)):  # else it is huge, or prose
                yield Change("constant", f"{old!r} to {new!r}", node, node, ast.Constant(new))
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test) | ast.comprehension(ifs=[test, *_]):
            if not (isinstance(test, ast.Compare) and isinstance(test.ops[-1], NEGATED)):
                is_negated = isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
                new = test.operand if is_negated else ast.UnaryOp(ast.Not(), test)
                yield Change("condition", "negated", test, test, new)
        case ast.Call(args=args, keywords=keywords):
            for index, (first, second) in enumerate(pairwise(args) if _can_be_swapped(node) else ()):
                if ast.dump(first) != ast.dump(second):
                    new = _with(node, args=[*args[:index], second, first, *args[index + 2 :]])
                    yield Change("argument", f"{index + 1} and {index + 2} swapped", first, node, new)
            for each in keywords:
                if each.arg and each.arg not in SILENT:
                    left = [other for other in keywords if other is not each]
                    yield Change("argument", f"{each.arg} dropped", each, node, _with(node, keywords=left))


def _of_statement(node: ast.AST) -> Iterator[Change]:
    match node:
        case ast.Expr(ast.Call()) | ast.AugAssign():
            yield Change("dropped statement", type(node).__name__, node, node, ast.Pass())
        case ast.Assign(targets=[target]) | ast.AnnAssign(target=target, value=ast.expr()):
            if isinstance(target, ast.Attribute | ast.Subscript):  # else a name would not be bound
                yield Change("dropped statement", type(node).__name__, node, node, ast.Pass())
        case ast.Return(ast.expr() as value) if not (isinstance(value, ast.Constant) and value.value in (None, False)):
            yield Change("returned value", "None", value, value, ast.Constant(None))
            if isinstance(value, ast.Tuple) and len({*map(ast.dump, value.elts)}) > 1:
                yield Change("returned value", "turned round", value, value, ast.Tuple(value.elts[::-1], ast.Load()))


def _exchanged(kind: str, node: ast.AST, place: ast.AST, old: ast.AST, new: ast.AST, **fields: object) -> Change:
    return Change(kind, f"{type(old).__name__} to {type(new).__name__}", place, node, _with(node, **fields))


def _with(node: ast.AST, **fields: object) -> ast.AST:
    return type(node)(**{**dict(ast.iter_fields(node)), **fields})


def _can_be_swapped(call: ast.Call) -> bool:
    is_known = isinstance(call.func, ast.Name) and call.func.id in SAME_OR_REFUSED
    return not is_known and not any(isinstance(each, ast.Starred) for each in call.args)


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or isinstance(getattr(node, "value", None), str)
