"""Changes drawn by rule: each operator says what it would change in a function, wherever it can.

An operator is left out where what it changes cannot matter to a promise: the library's log, its
statistics and progress, the words of errors and notes.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterator
from copy import deepcopy

from tests.mutants.source import (
    FUNCTIONS,
    Mutant,
    digest,
    functions,
    lines_of,
    parsed,
    replace_node,
)

Node = ast.AST
New = ast.AST | list[ast.stmt]
Variant = tuple[str, Node, Callable[[], New]]
"""The operator's name, the node that it changes, and what it puts there."""

NOT_MEANT = ("logger.", "self.statistics.", "self._statistics.", ".progress", "add_note", "_note")
"""Calls that no promise rests on."""
CONDITIONS = frozenset({
    "if_match", "if_none_match", "version_id", "metadata", "owns", "modified", "look_first",
    "leave_visible", "accept", "role", "dry_run", "options", "uuid", "shared", "there", "ended",
    "before_block", "on_answer", "on_abort", "abort_told", "checksum", "weigh",
})  # fmt: skip
"""Keywords of calls that a careless hand leaves out."""
SWAPS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
    ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
BOUNDARIES = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
SKIPPED_FUNCTIONS = ("__repr__", "__str__", "to_dict", "__exit__")


def drawn_from(path: str) -> list[Mutant]:
    """Every mutant that the operators make of a module."""
    found: list[Mutant] = []
    counted: Counter[str] = Counter()
    tree = parsed(path)
    order = {id(node): number for number, node in enumerate(ast.walk(tree))}
    places: list[tuple[str, Node]] = [("", node) for node in tree.body if _is_constant(node)]
    places += [(name, node) for name, node in functions(tree) if not _skipped(name)]
    for place, top in places:
        for operator, node, make in _all_variants(top):
            words = ast.unparse(node) if not isinstance(node, FUNCTIONS) else node.name
            base = f"{path}:{place}:{operator}:{digest(words)}"
            counted[base] += 1
            name = base if counted[base] == 1 else f"{base}.{counted[base]}"
            lines = frozenset() if not place else lines_of(_first_line(node))
            what = f"{operator}: {' '.join(words.split())[:90]}"
            found.append(Mutant(name, path, place, what, lines, _change(order[id(node)], make)))
    return found


def _first_line(node: Node) -> Node:
    """What a test must run to meet the node: of a compound statement not its whole body."""
    if isinstance(node, FUNCTIONS):
        return node.body[-1] if len(node.body) == 1 else node.body[1]
    if isinstance(node, ast.ExceptHandler):
        return node.body[0]
    return node


def _is_constant(node: Node) -> bool:
    return isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None


def _skipped(place: str) -> bool:
    return place.rpartition(".")[2] in SKIPPED_FUNCTIONS


def _change(index: int, make: Callable[[], New]) -> Callable[[ast.Module], None]:
    def change(tree: ast.Module) -> None:
        node = list(ast.walk(tree))[index]
        new = make()
        if isinstance(new, ast.AST):
            ast.copy_location(new, node)
        replace_node(tree, node, new)

    return change


def _all_variants(top: Node) -> Iterator[Variant]:
    if isinstance(top, FUNCTIONS):
        yield from _of_function(top)
        for statement in top.body:
            yield from _walk(statement, top)
    elif isinstance(top, ast.Assign | ast.AnnAssign) and top.value is not None:
        yield from _of_constant(top.value)


def _of_constant(value: ast.expr) -> Iterator[Variant]:
    inner = value
    if isinstance(value, ast.Call) and value.args and _called(value) in ("frozenset", "set"):
        inner = value.args[0]
    if isinstance(inner, ast.Set | ast.Tuple) and len(inner.elts) > 1:
        yield from _smaller(inner)


def _smaller(node: ast.Set | ast.Tuple) -> Iterator[Variant]:
    for index, element in enumerate(node.elts):
        words = ast.unparse(element).rpartition(".")[2]
        yield f"without {words[:20]}", node, lambda i=index: _without(node, i)  # type: ignore[misc]


def _without(node: ast.Set | ast.Tuple, index: int) -> ast.expr:
    left = [_copy(e) for number, e in enumerate(node.elts) if number != index]
    if isinstance(node, ast.Set):
        return ast.Set(left)
    return ast.Tuple(left, ast.Load())


def _copy(node: ast.expr) -> ast.expr:
    return deepcopy(node)


def _walk(node: Node, function: Node) -> Iterator[Variant]:
    if isinstance(node, FUNCTIONS):
        for statement in node.body:
            yield from _walk(statement, function)
        return
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        called = ast.unparse(node.value.func)
        if any(word in called for word in NOT_MEANT):
            return
        yield "drop call", node, lambda: ast.Pass()
    yield from _of_statement(node)
    yield from _of_expression(node)
    if isinstance(node, ast.Raise):
        return  # the words of an error
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.arguments | ast.JoinedStr):
            yield from _walk(child, function)


def _of_function(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[Variant]:
    returns = ast.unparse(node.returns) if node.returns else ""
    meant = [s for s in node.body if not _is_docstring(s)]
    if returns == "None" and node.name != "__init__" and meant:
        yield "do nothing", node, lambda: _with_body(node, "return None")
    if returns == "bool":
        for word in ("True", "False"):
            if [ast.unparse(s) for s in meant] != [f"return {word}"]:
                yield f"always {word}", node, lambda w=word: _with_body(node, f"return {w}")  # type: ignore[misc]


def _is_docstring(node: Node) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _with_body(node: ast.FunctionDef | ast.AsyncFunctionDef, body: str) -> ast.AST:
    (fresh,) = ast.parse(ast.unparse(node)).body
    assert isinstance(fresh, FUNCTIONS)
    fresh.body = ast.parse(f"def f():\n {body}").body[0].body  # type: ignore[attr-defined]
    return fresh


def _of_statement(node: Node) -> Iterator[Variant]:
    if isinstance(node, ast.Raise):
        yield "drop raise", node, lambda: ast.Pass()
    elif isinstance(node, ast.Continue):
        yield "break for continue", node, lambda: ast.Break()
    elif isinstance(node, ast.Break):
        yield "continue for break", node, lambda: ast.Continue()
    elif isinstance(node, ast.Assign | ast.AugAssign):
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        if isinstance(target, ast.Attribute | ast.Subscript) or isinstance(node, ast.AugAssign):
            yield "drop assignment", node, lambda: ast.Pass()
    elif isinstance(node, ast.ExceptHandler) and node.type is not None:
        yield "drop handler", node, lambda: _raising(node)
        if isinstance(node.type, ast.Tuple):
            yield from _smaller(node.type)
    if isinstance(node, ast.If | ast.While | ast.IfExp):
        yield from _of_condition(node.test)
    elif isinstance(node, ast.comprehension):
        for condition in node.ifs:
            yield from _of_condition(condition)


def _raising(node: ast.ExceptHandler) -> ast.ExceptHandler:
    return ast.ExceptHandler(_copy(node.type), node.name, [ast.Raise()])  # type: ignore[arg-type]


def _of_condition(test: ast.expr) -> Iterator[Variant]:
    if isinstance(test, ast.BoolOp) or (
        isinstance(test, ast.Compare) and len(test.ops) == 1 and type(test.ops[0]) in SWAPS
        and type(test.ops[0]) not in BOUNDARIES
    ):  # fmt: skip
        return  # changed as expressions
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return
    yield "negate", test, lambda: ast.UnaryOp(ast.Not(), _copy(test))


def _of_expression(node: Node) -> Iterator[Variant]:
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in SWAPS:
        other = SWAPS[type(node.ops[0])]
        name = "boundary" if isinstance(node.ops[0], BOUNDARIES) else "opposite"
        yield (
            name,
            node,
            lambda: ast.Compare(_copy(node.left), [other()], [_copy(node.comparators[0])]),
        )
        (right,) = node.comparators
        if isinstance(right, ast.Tuple | ast.Set) and len(right.elts) > 1:
            yield from _smaller(right)
    elif isinstance(node, ast.BoolOp):
        opposite = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        name = "or for and" if isinstance(node.op, ast.And) else "and for or"
        yield name, node, lambda: ast.BoolOp(opposite, [_copy(v) for v in node.values])
        for index in range(len(node.values)):
            yield f"without part {index + 1}", node, lambda i=index: _fewer(node, i)  # type: ignore[misc]
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield "drop not", node, lambda: _copy(node.operand)
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield f"{not node.value}", node, lambda: ast.Constant(not node.value)
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        if not any(isinstance(side, ast.JoinedStr) for side in (node.left, node.right)):
            op = ast.Sub() if isinstance(node.op, ast.Add) else ast.Add()
            name = "minus" if isinstance(node.op, ast.Add) else "plus"
            yield name, node, lambda: ast.BinOp(_copy(node.left), op, _copy(node.right))
    elif isinstance(node, ast.Call):
        yield from _of_call(node)


def _fewer(node: ast.BoolOp, index: int) -> ast.expr:
    left = [_copy(value) for number, value in enumerate(node.values) if number != index]
    return left[0] if len(left) == 1 else ast.BoolOp(type(node.op)(), left)


def _called(node: ast.Call) -> str:
    return ast.unparse(node.func).rpartition(".")[2]


def _of_call(node: ast.Call) -> Iterator[Variant]:
    for index, keyword in enumerate(node.keywords):
        if keyword.arg in CONDITIONS:
            yield f"drop {keyword.arg}", node, lambda i=index: _fewer_keywords(node, i)  # type: ignore[misc]
    other = {"max": "min", "min": "max"}.get(ast.unparse(node.func))
    if other is not None:
        name = other
        yield f"{name} for {ast.unparse(node.func)}", node, lambda: _renamed(node, name)
    if _called(node) == "range" and len(node.args) == 1 and isinstance(node.args[0], ast.Name):
        less = f"range({node.args[0].id} - 1)"
        yield "one time less", node, lambda: ast.parse(less, mode="eval").body


def _fewer_keywords(node: ast.Call, index: int) -> ast.expr:
    fresh = _copy(node)
    assert isinstance(fresh, ast.Call)
    del fresh.keywords[index]
    return fresh


def _renamed(node: ast.Call, name: str) -> ast.expr:
    fresh = _copy(node)
    assert isinstance(fresh, ast.Call)
    fresh.func = ast.Name(name, ast.Load())
    return fresh
