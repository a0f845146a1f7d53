"""Every fault that may be put into a file of our own, the file with one of them, and a sample drawn with a seed."""

import ast
import random
import re
from collections import defaultdict, namedtuple
from collections.abc import Iterable, Iterator
from itertools import pairwise

KINDS = ("comparison", "arithmetic", "constant", "condition", "argument", "dropped statement", "returned value")
EXCHANGED = {ast.Lt: ast.LtE, ast.Gt: ast.GtE, ast.Eq: ast.NotEq, ast.Is: ast.IsNot, ast.In: ast.NotIn}
EXCHANGED |= {ast.And: ast.Or, ast.Add: ast.Sub, ast.Mult: ast.Div, ast.BitAnd: ast.BitOr}
EXCHANGED |= {new: old for old, new in EXCHANGED.items()}
EXCHANGED |= {ast.FloorDiv: ast.Div, ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult, ast.MatMult: ast.Mult}
NEGATED = (ast.Eq, ast.NotEq, ast.Is, ast.IsNot, ast.In, ast.NotIn)  # already, as a comparison
# Calls and keywords that compute nothing, hold prose, or change nothing on Linux as long as all goes well.
SILENT = {"dataclass", "warn", "NewType", "TypeVar", "strict", "encoding", "help", "metavar"}
SAME_OR_REFUSED = {"isinstance", "issubclass", "getattr", "hasattr", "max", "min"}  # with their arguments exchanged

# Where a fault begins, what it does, the text that it changes; and a node with what comes in its place.
Fault = namedtuple("Fault", "file line column kind what text old new")
NAMED = Fault._fields[:6]  # what a fault is known by


def faults(file: str, text: str) -> list[Fault]:
    """Every fault of a file."""
    found, lines = [], text.split("\n")
    for kind, what, place, old, new in _changes(ast.parse(text)):
        changed = " ".join(line.strip() for line in lines[old.lineno - 1 : old.end_lineno])
        found.append(Fault(file, place.lineno, place.col_offset, kind, what, changed, old, new))
    return found


def mutated(text: str, fault: Fault) -> tuple[str, str]:
    """The text with a fault of it, and of that the line that differs."""
    old, put, lines = fault.old, ast.unparse(fault.new), text.split("\n")
    if isinstance(fault.new, ast.expr) and not isinstance(fault.new, ast.Constant):
        put = f"({put})"  # whatever stands around it
    before = lines[old.lineno - 1].encode()[: old.col_offset].decode()  # columns count bytes
    after = lines[old.end_lineno - 1].encode()[old.end_col_offset :].decode()
    lines[old.lineno - 1 : old.end_lineno] = [before + put + after]
    return "\n".join(lines), lines[old.lineno - 1].strip()


def drawn(given: Iterable[Fault], count: int, seed: int) -> list[Fault]:
    """Up to so many: the kinds take turns, each line that has one is as likely as the others, and so is each on it."""
    rng = random.Random(seed)
    places: dict[str, dict[tuple[str, int], list[Fault]]] = {kind: defaultdict(list) for kind in KINDS}
    for fault in sorted(given, key=lambda fault: fault[:6]):
        places[fault.kind][fault.file, fault.line].append(fault)
    found: list[Fault] = []
    while len(found) < count and any(places.values()):
        for kind in rng.sample(KINDS, len(KINDS)):
            if places[kind]:
                found.append(rng.choice(places[kind].pop(rng.choice([*places[kind]]))))
    return found[:count]


def _changes(node: ast.AST) -> Iterator[tuple[str, str, ast.AST, ast.AST, ast.AST]]:
    """Of a node and all in it: the kind, what it does, where to look, a node, and what comes in its place."""
    match node:
        # what does not say how code works
        case ast.Assert() | ast.Import() | ast.ImportFrom() | ast.JoinedStr() | ast.Raise() | ast.Expr(ast.Constant()):
            return
        case ast.FunctionDef(name="__repr__") | ast.Assign(targets=[ast.Name("__all__" | "__version__")]):
            return
        case ast.If(test=ast.Name("TYPE_CHECKING") | ast.Compare(left=ast.Name("__name__"))):
            return
        case ast.Call(func=ast.Attribute(attr=name) | ast.Name(name)) | ast.keyword(arg=name) if name in SILENT:
            return
        case ast.Compare(ops=ops, comparators=others):
            for index, (op, other) in enumerate(zip(ops, others, strict=True)):
                new = _with(node, ops=[*ops[:index], EXCHANGED[type(op)](), *ops[index + 1 :]])
                yield "comparison", _named(op), other, node, new
        case ast.BinOp(op=op, right=other) | ast.AugAssign(op=op, value=other):
            if type(op) in EXCHANGED and not any(_is_text(each) for each in ast.iter_child_nodes(node)):
                yield "arithmetic", _named(op), other, node, _with(node, op=EXCHANGED[type(op)]())
        case ast.BoolOp(op=op, values=[_, second, *_]):
            yield "condition", _named(op), second, node, _with(node, op=EXCHANGED[type(op)]())
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            yield "arithmetic", "- dropped", node, node, operand
        case ast.Constant(bool() | int() | float() | str() as value):
            new = not value if isinstance(value, bool) else value + ("_" if isinstance(value, str) else 1)
            if new != value and not re.search(r"\s", str(value)):  # else it is huge, or prose
                yield "constant", f"{value!r} to {new!r}", node, node, ast.Constant(new)
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test) | ast.comprehension(ifs=[test, *_]):
            if not (isinstance(test, ast.Compare) and isinstance(test.ops[-1], NEGATED)):
                is_negated = isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
                yield "condition", "negated", test, test, test.operand if is_negated else ast.UnaryOp(ast.Not(), test)
        case ast.Call(func=called, args=args, keywords=keywords):
            is_known = isinstance(called, ast.Name) and called.id in SAME_OR_REFUSED
            is_fixed = is_known or any(isinstance(each, ast.Starred) for each in args)
            for index, (first, second) in enumerate(() if is_fixed else pairwise(args)):
                if ast.dump(first) != ast.dump(second):
                    new = _with(node, args=[*args[:index], second, first, *args[index + 2 :]])
                    yield "argument", f"{index + 1} and {index + 2} swapped", first, node, new
            for each in keywords:
                if each.arg and each.arg not in SILENT:
                    new = _with(node, keywords=[other for other in keywords if other is not each])
                    yield "argument", f"{each.arg} dropped", each, node, new
        case ast.Return(ast.expr() as value) if not (isinstance(value, ast.Constant) and value.value in (None, False)):
            yield "returned value", "None", value, value, ast.Constant(None)
            if isinstance(value, ast.Tuple) and len({*map(ast.dump, value.elts)}) > 1:
                yield "returned value", "turned round", value, value, ast.Tuple(value.elts[::-1], ast.Load())
    match node:
        case ast.Expr(ast.Call()) | ast.AugAssign() | ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield "dropped statement", type(node).__name__, node, node, ast.Pass()
        case ast.AnnAssign(target=ast.Attribute() | ast.Subscript(), value=ast.expr()):  # a name would not be bound
            yield "dropped statement", type(node).__name__, node, node, ast.Pass()
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and name not in ("annotation", "returns"):
                yield from _changes(child)


def _named(op: ast.AST) -> str:
    return f"{type(op).__name__} to {EXCHANGED[type(op)].__name__}"


def _with(node: ast.AST, **fields: object) -> ast.AST:
    return type(node)(**{**dict(ast.iter_fields(node)), **fields})


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or isinstance(getattr(node, "value", None), str)
