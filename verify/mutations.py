"""The small faults that `verify/mutants.py` plants: what is changed in a module's syntax tree, one node at a time.

A module's source comes in, its mutants go out, and from each of them the whole changed source. A mutant's key names
the change by module, function and text, so that it stays the same when lines move. What only shapes a
message, a type or a cache is left alone: annotations, decorators, docstrings, `assert`, the arguments of `raise`, and
`__repr__` and its like.
"""

import ast
from collections import Counter
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from itertools import islice

__all__ = ["Mutant", "mutants_of", "mutated"]

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv, ast.LShift: ast.RShift, ast.RShift: ast.LShift, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
    ast.Pow: ast.Mult,
}  # fmt: skip
CALLS = {"max": "min", "min": "max", "any": "all", "all": "any", "maximum": "minimum", "minimum": "maximum"}
UNSEEN = {"__repr__", "__str__", "_repr_html_"}
LEFT_ALONE = ("annotation", "returns", "decorator_list", "type_params", "bases")


@dataclass(frozen=True)
class Mutant:
    """A module with one change: `change` is the text before and after, with a number from the second alike on.

    `lines` are those of the statement that is changed, or of the head of one that has others inside.
    """

    module: str
    function: str
    change: str
    lines: range
    number: int

    @property
    def key(self) -> tuple[str, str, str]:
        return self.module, self.function, self.change

    def __str__(self) -> str:
        return f"{self.module}:{self.lines[0]} {self.function}: {self.change}"


@dataclass(frozen=True)
class _Place:
    """A node, where it hangs, and the function, class or constant that it is in."""

    parent: ast.AST
    field: str
    index: int | None
    node: ast.AST
    function: str
    lines: range

    def put(self, node: ast.AST) -> None:
        if self.index is None:
            setattr(self.parent, self.field, node)
        else:
            getattr(self.parent, self.field)[self.index] = node


def mutants_of(module: str, source: str) -> list[Mutant]:
    """Every mutant of a module, in the order of its lines."""
    found, seen = [], Counter[tuple[str, str]]()
    for number, (place, changed) in enumerate(_all_changes(ast.parse(source))):
        change = f"{_text(place.node)} -> {_text(changed)}"
        seen[place.function, change] += 1
        if (count := seen[place.function, change]) > 1:
            change += f" #{count}"
        found.append(Mutant(module, place.function, change, place.lines, number))
    return found


def mutated(mutant: Mutant, source: str) -> str:
    """The module's source with the mutant's change made."""
    tree = ast.parse(source)
    place, changed = next(islice(_all_changes(tree), mutant.number, None))
    place.put(changed)
    return ast.unparse(ast.fix_missing_locations(tree))


def _all_changes(tree: ast.Module) -> Iterator[tuple[_Place, ast.AST]]:
    for place in _places(tree, "module", range(1)):
        for changed in _changes(place.node):
            yield place, changed


def _places(parent: ast.AST, function: str, lines: range) -> Iterator[_Place]:
    """Every node below one that may be changed, with what leads to it."""
    for field, value in ast.iter_fields(parent):
        if field in LEFT_ALONE:
            continue
        for index, node in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if not isinstance(node, ast.AST) or _is_left_alone(node):
                continue
            name = _name(node, parent)
            inside = function if name is None else name if function == "module" else f"{function}.{name}"
            head = _head(node) if isinstance(node, ast.stmt) else lines
            if not (
                isinstance(node, ast.Raise) and isinstance(parent, ast.If) and not parent.orelse
            ):  # goes as a whole
                yield _Place(parent, field, index, node, inside, head)
            if not isinstance(node, ast.Raise | ast.JoinedStr):
                yield from _places(node, inside, head)


def _head(node: ast.stmt) -> range:
    """The lines of a statement without those inside it; of a function all, whose defaults are used wherever it runs."""
    inside = [] if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else getattr(node, "body", [])
    return range(node.lineno, inside[0].lineno if inside else (node.end_lineno or 0) + 1)


def _name(node: ast.AST, parent: ast.AST) -> str | None:
    """The name of a function or class, or of a constant or field outside of functions."""
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return name
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            return name if isinstance(parent, ast.Module | ast.ClassDef) else None
    return None


def _is_left_alone(node: ast.AST) -> bool:
    match node:
        case ast.Expr(value=ast.Constant()) | ast.Assert() | ast.Import() | ast.ImportFrom():
            return True
        case ast.FunctionDef(name=name):
            return name in UNSEEN
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
        case ast.keyword(arg=name):
            return name in ("strict", "copy", "maxsize")  # of zip, of numpy, of a cache
        case ast.Assign(targets=[ast.Name(id=name)]):
            return name in ("__all__", "__slots__")
    return False


def _changes(node: ast.AST) -> Iterator[ast.AST]:  # noqa: PLR0912 - one for each kind of fault
    """The nodes that may stand in a node's place."""
    match node:
        case ast.Compare(ops=ops):
            for at, op in enumerate(ops):
                if type(op) in COMPARISONS:
                    changed = deepcopy(node)
                    changed.ops[at] = COMPARISONS[type(op)]()
                    yield changed
        case ast.BoolOp(op=op, values=values):
            yield ast.BoolOp(ast.Or() if isinstance(op, ast.And) else ast.And(), values)
            for at in range(len(values)):
                left = values[:at] + values[at + 1 :]
                yield left[0] if len(left) == 1 else ast.BoolOp(op, left)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS and not _is_text(left):
            yield ast.BinOp(left, OPERATORS[type(op)](), right)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield operand
        case ast.Call(func=ast.Name(id=name)) if name in CALLS:
            yield ast.Call(ast.Name(CALLS[name], ast.Load()), node.args, node.keywords)
        case ast.Call(func=ast.Attribute(value=value, attr=name)) if name in CALLS:
            yield ast.Call(ast.Attribute(value, CALLS[name], ast.Load()), node.args, node.keywords)
        case ast.Constant(value=bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(value=int(value)):
            yield ast.Constant(value + 1)
            yield ast.Constant(value - 1)
        case ast.Constant(value=bytes(value)) if value:
            yield ast.Constant(value + b"?")
        case ast.If(test=test, body=body, orelse=orelse):
            if not orelse and isinstance(body[-1], ast.Raise | ast.Return | ast.Continue | ast.Break):
                yield ast.Pass()
            if not _is_negated_anyway(test):
                yield ast.If(ast.UnaryOp(ast.Not(), test), body, orelse)
        case ast.IfExp(test=test, body=body, orelse=orelse) if not _is_negated_anyway(test):
            yield ast.IfExp(ast.UnaryOp(ast.Not(), test), body, orelse)
        case ast.Raise():
            yield ast.Pass()


def _is_negated_anyway(test: ast.expr) -> bool:
    """Whether a change of the condition itself negates it."""
    match test:
        case ast.Compare(ops=[op]):
            return not isinstance(op, ast.Lt | ast.LtE | ast.Gt | ast.GtE)
        case ast.UnaryOp(op=ast.Not()):
            return True
    return False


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _text(node: ast.AST) -> str:
    """The node as source; of an `if`, its condition."""
    if isinstance(node, ast.If):
        return f"if {ast.unparse(node.test)}"
    return ast.unparse(node)
