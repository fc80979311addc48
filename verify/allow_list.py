"""Read the enclave's Python source, and report what it does with secrets beyond a list of allowed operations.

numpy may be used through listed names only: operations whose branches and addresses depend on shapes, not on values.
A value that is secret (by annotation, by name, or because it was computed from a secret) may not decide a branch or a
loop, stand inside an index, be turned into a Python number, or be printed. Secrets are followed within a
function; between functions by the names and annotations below. docs/verification.md says what this does not see.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["ENCLAVE", "EXCEPTIONS", "PLANTED", "Violation", "in_package", "in_source"]

ENCLAVE = Path(__file__).parents[1] / "src" / "scumble" / "enclave"

NUMPY = {
    # making and moving, by shape alone
    *("empty", "empty_like", "zeros", "full", "ascontiguousarray", "broadcast_to", "concatenate"),
    "frombuffer",
    # arithmetic and bits
    *("bitwise_and", "bitwise_or", "diff"),
    # types
    *("dtype", "int32", "int64", "uint8"),
}
# Methods of arrays whose work depends on values, or that make Python objects of them.
METHODS = {
    *("all", "any", "argmax", "argmin", "argpartition", "argsort", "choose", "compress", "cumprod", "item", "nonzero"),
    *("partition", "put", "repeat", "searchsorted", "sort", "take", "tolist"),
}
SECRET_TYPES = {"Words", "Mask", "Values", "NDArray", "FetchedColumn", "Batch"}
SECRET_NAMES = {"answer", "bounds", "chunk", "mask", "plain", "real_rows", "valid", "values"}
SECRET_ALWAYS = {"real_rows"}  # even if the annotation is not that of a secret
SECRET_ATTRIBUTES = {"mask", "valid", "real_rows", "bounds"}
SECRET_CALLS = {"begin", "chunks", "codes", "column", "columns", "fetch", "open_pages", "wide", "_load", "_pieces"}
PUBLIC_ATTRIBUTES = {"dtype", "flags", "itemsize", "nbytes", "ndim", "rows", "shape", "size"}
PUBLIC_CALLS = {"isinstance", "len", "_shape", "_width"}
# Built-in functions that look at the value.
LOOKING = {
    *("all", "any", "bin", "bool", "dict", "divmod", "filter", "float", "format", "frozenset", "hash", "hex", "int"),
    *("list", "max", "min", "print", "range", "repr", "round", "set", "sorted", "str", "sum"),
}
# (file, code): why it may stay.
EXCEPTIONS = {
    ("queries.py", "given"): "a list of validities: empty if no column is nullable, which is public",
    ("queries.py", "not given"): "the same",
    ("loads.py", "keys.sort()"): "the oblivious sort of `Rows`, not an array's",
    ("loads.py", "self._rows.sort(key_word, partial(where.write_keys, key_word=key_word, seen=seen))"): "the same",
    ("loads.py", "max([self._capacity, *(where.capacity for where in learned)])"): "capacities, which are public",
    ("flushes.py", "self._rows.sort(self._layout.key_offset)"): "the oblivious sort of `Rows`",
    ("merges.py", "keys.sort()"): "the same",
    (
        "merges.py",
        "rows.rows.sort(layout.key_offset, partial(where.write_keys, key_word=layout.key_offset, seen=seen))",
    ): "the same",
    ("kernels.py", "int(word[0])"): "how many rows are real, as a client states it of a load: handed on to be sealed",
    ("kernels.py", "bool(flag[0] == 1)"): "whether a change is made at all, which the next version shows",
}


@dataclass(frozen=True)
class Violation:
    """An operation that is not allowed, and where it is."""

    file: str
    line: int
    what: str
    code: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.what}: {self.code}"


def in_package(folder: Path = ENCLAVE) -> list[Violation]:
    """The violations in a folder's modules, the enclave's by default."""
    return [found for path in sorted(folder.glob("*.py")) for found in in_source(path.read_text(), path.name)]


def in_source(source: str, file: str = "planted.py") -> list[Violation]:
    """The violations in one module."""
    tree = ast.parse(source)
    found = list(_numpy(tree))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.Lambda)]
    for function in functions:
        found += _Function(function).violations()
    kept = {(node.lineno, what, ast.unparse(node)) for node, what in found}
    return [Violation(file, *each) for each in sorted(kept) if (file, each[2]) not in EXCEPTIONS]


def _numpy(tree: ast.AST) -> Iterator[tuple[ast.expr, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "numpy":
            if node.module != "numpy.typing":
                yield ast.copy_location(ast.Name(node.module or ""), node), "numpy by another name"
        elif isinstance(node, ast.Import):
            for name in node.names:
                if name.name.split(".")[0] == "numpy" and (name.name, name.asname) != ("numpy", "np"):
                    yield ast.copy_location(ast.Name(name.name), node), "numpy by another name"
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "np":
            if node.attr not in NUMPY:
                yield node, "not on the list of numpy's operations"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in METHODS:
            yield node, "a method that looks at values"


class _Function:
    """One function, and which of its names hold secrets."""

    def __init__(self, function: ast.FunctionDef | ast.Lambda) -> None:
        self._nodes = [node for node in ast.walk(function) if node is not function]
        self._known: dict[str, bool] = {}
        for argument in [*function.args.args, *function.args.kwonlyargs, *function.args.posonlyargs]:
            self._known[argument.arg] = argument.arg in SECRET_ALWAYS or (
                argument.arg in SECRET_NAMES if argument.annotation is None else _secret_type(argument.annotation)
            )
        before = None
        while before != self._known:  # until nothing more becomes secret
            before = dict(self._known)
            for node in self._nodes:
                self._follow(node)

    def _follow(self, node: ast.AST) -> None:
        match node:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    self._assign(target, value)
            case ast.AnnAssign(target=target, annotation=annotation, value=value):
                self._set(target, _secret_type(annotation) or (value is not None and self.secret(value)))
            case ast.AugAssign(target=target, value=value):
                self._set(target, self.secret(value) or self.secret(target))
            case ast.NamedExpr(target=target, value=value):
                self._set(target, self.secret(value))
            case ast.For(target=target, iter=source) | ast.comprehension(target=target, iter=source):
                self._set(target, self.secret(source))

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            for one, other in zip(target.elts, value.elts, strict=True):
                self._set(one, self.secret(other))
        else:
            self._set(target, self.secret(value))

    def _set(self, target: ast.expr, secret: bool) -> None:
        match target:
            case ast.Name(id=name):
                self._known[name] = self._known.get(name, False) or secret
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                for part in parts:
                    self._set(part, secret)
            case ast.Starred(value=inner):
                self._set(inner, secret)
            case ast.Subscript(value=ast.Name() as whole) if secret:
                self._set(whole, True)

    def secret(self, node: ast.expr | None) -> bool:
        """Whether an expression's value may depend on a secret."""
        match node:
            case None | ast.Constant() | ast.Lambda() | ast.Compare(ops=[ast.Is() | ast.IsNot()]):
                found = False
            case ast.Name(id=name):
                found = self._known.get(name, name in SECRET_NAMES)
            case ast.Attribute(value=value, attr=attribute):
                found = attribute not in PUBLIC_ATTRIBUTES and (attribute in SECRET_ATTRIBUTES or self.secret(value))
            case ast.Call(func=function) if _called(function) in PUBLIC_CALLS:
                found = False
            case ast.Call(func=function, args=args, keywords=keywords):
                used = [*args, *(keyword.value for keyword in keywords)]
                if isinstance(function, ast.Attribute):
                    used.append(function.value)
                found = _called(function) in SECRET_CALLS or any(map(self.secret, used))
            case _:
                found = any(self.secret(child) for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr))
        return found

    def violations(self) -> Iterator[tuple[ast.expr, str]]:
        """Where something secret decides, addresses, or leaves numpy."""
        for node in self._nodes:
            match node:
                case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test) | ast.Assert(test=test):
                    yield from self._refused([test], "a branch on a secret")
                case ast.comprehension(ifs=tests):
                    yield from self._refused(tests, "a branch on a secret")
                case ast.BoolOp(values=values):
                    yield from self._refused(values[:-1], "a branch on a secret")
                case ast.UnaryOp(op=ast.Not(), operand=operand):
                    yield from self._refused([operand], "a branch on a secret")
                case ast.Match(subject=subject):
                    yield from self._refused([subject], "a branch on a secret")
                case ast.Subscript(slice=place):
                    yield from self._refused([place], "an index with a secret")
                case ast.BinOp(op=ast.Div() | ast.FloorDiv() | ast.Mod(), right=divisor):
                    yield from self._refused([divisor], "a division by a secret")
                case ast.FormattedValue(value=value):
                    yield from self._refused([value], "a secret in a text")
                case ast.Call(func=ast.Name(id=name), args=args) if name in LOOKING and any(map(self.secret, args)):
                    yield node, "a secret turned into a Python value"
                case ast.Raise(exc=ast.Call(args=args)):
                    yield from self._refused(args, "a secret in an error")

    def _refused(self, candidates: list[ast.expr], what: str) -> Iterator[tuple[ast.expr, str]]:
        return ((node, what) for node in candidates if self.secret(node))


def _called(function: ast.expr) -> str:
    match function:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def _secret_type(annotation: ast.expr) -> bool:
    names = {node.id for node in ast.walk(annotation) if isinstance(node, ast.Name)}
    return bool(names & SECRET_TYPES) and "Callable" not in names and "Iterator" not in names


PLANTED = {
    "where": "def f(mask: Mask, values: Words) -> Words:\n    return np.where(mask, values, 0)",
    "boolean index": "def f(mask: Mask, values: Words) -> Words:\n    return values[mask == 1]",
    "gather": "def f(values: Words, codes: Words) -> Words:\n    return values[codes]",
    "take": "def f(values: Words, codes: Words) -> Words:\n    return values.take(codes)",
    "sort": "def f(values: Words) -> None:\n    values.sort()",
    "skipped batch": "def f(batch):\n    mask = batch.mask\n    if mask.any():\n        return batch",
    "loop over real rows": "def f(real_rows: int) -> int:\n    return [0 for _ in range(real_rows)]",
    "early exit": "def f(values: Words) -> int:\n    at = 0\n    while values[at] < 7:\n        at += 1\n    return at",
    "conditional": "def f(values: Words) -> int:\n    first = values[0]\n    return 1 if first else 0",
    "Python number": "def f(answer: Words) -> int:\n    return int(answer[0])",
    "division": "def f(values: Words, codes: Words) -> Words:\n    return values // codes",
    "secret in an error": "def f(values: Words) -> None:\n    raise ValueError(f'bad {values[0]}')",
    "another name of numpy": "from numpy import take",
}
"""Modules that each do one thing that must be refused."""
