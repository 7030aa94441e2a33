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
Variant = tuple[str, Node, ast.AST]
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
    places: list[tuple[str, Node]] = [
        ("", node) for node in tree.body if isinstance(node, ast.Assign | ast.AnnAssign)
    ]
    skipped = ((name, node) for name, node in functions(tree))
    places += [one for one in skipped if one[0].rpartition(".")[2] not in SKIPPED_FUNCTIONS]
    for place, top in places:
        for operator, node, new in _all_variants(top):
            words = ast.unparse(node) if not isinstance(node, FUNCTIONS) else node.name
            base = f"{path}:{place}:{operator}:{digest(words)}"
            counted[base] += 1
            name = base if counted[base] == 1 else f"{base}.{counted[base]}"
            lines = frozenset() if not place else lines_of(_first_line(node))
            what = f"{operator}: {' '.join(words.split())[:90]}"
            found.append(Mutant(name, path, place, what, lines, _change(order[id(node)], new)))
    return found


def _first_line(node: Node) -> Node:
    """What a test must run to meet the node: of a compound statement not its whole body."""
    if isinstance(node, FUNCTIONS):
        return node.body[-1] if len(node.body) == 1 else node.body[1]
    return node.body[0] if isinstance(node, ast.ExceptHandler) else node


def _change(index: int, new: ast.AST) -> Callable[[ast.Module], None]:
    def change(tree: ast.Module) -> None:
        node = list(ast.walk(tree))[index]
        replace_node(tree, node, ast.copy_location(deepcopy(new), node))

    return change


def _all_variants(top: Node) -> Iterator[Variant]:
    if isinstance(top, FUNCTIONS):
        yield from _of_function(top)
        for statement in top.body:
            yield from _walk(statement)
    elif isinstance(top, ast.Assign | ast.AnnAssign) and top.value is not None:
        inner = top.value
        if isinstance(inner, ast.Call) and inner.args and _called(inner) in ("frozenset", "set"):
            inner = inner.args[0]
        yield from _smaller(inner)


def _smaller(node: Node | None) -> Iterator[Variant]:
    """A set or a tuple without each of its elements, if it has some."""
    if isinstance(node, ast.Set | ast.Tuple) and len(node.elts) > 1:
        for index, element in enumerate(node.elts):
            left = [one for number, one in enumerate(node.elts) if number != index]
            new = ast.Set(left) if isinstance(node, ast.Set) else ast.Tuple(left, ast.Load())
            yield f"without {ast.unparse(element).rpartition('.')[2][:20]}", node, new


def _walk(node: Node) -> Iterator[Variant]:
    if isinstance(node, FUNCTIONS):
        for statement in node.body:
            yield from _walk(statement)
        return
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        called = ast.unparse(node.value.func)
        if any(word in called for word in NOT_MEANT):
            return
        yield "drop call", node, ast.Pass()
    yield from _of_statement(node)
    yield from _of_expression(node)
    if isinstance(node, ast.Raise):
        return  # the words of an error
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.arguments | ast.JoinedStr):
            yield from _walk(child)


def _of_function(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[Variant]:
    returns = ast.unparse(node.returns) if node.returns else ""
    meant = [ast.unparse(one) for one in node.body if not _is_docstring(one)]
    bodies = []
    if returns == "None" and node.name != "__init__" and meant:
        bodies = [("do nothing", "return None")]
    if returns == "bool":
        both = [(f"always {word}", f"return {word}") for word in ("True", "False")]
        bodies = [one for one in both if meant != [one[1]]]
    for name, body in bodies:
        (fresh,) = ast.parse(ast.unparse(node)).body
        fresh.body = ast.parse(f"def f():\n {body}").body[0].body  # type: ignore[attr-defined]
        yield name, node, fresh


def _is_docstring(node: Node) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _of_statement(node: Node) -> Iterator[Variant]:
    if isinstance(node, ast.Raise):
        yield "drop raise", node, ast.Pass()
    elif isinstance(node, ast.Continue):
        yield "break for continue", node, ast.Break()
    elif isinstance(node, ast.Break):
        yield "continue for break", node, ast.Continue()
    elif isinstance(node, ast.Assign | ast.AugAssign):
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        if isinstance(target, ast.Attribute | ast.Subscript) or isinstance(node, ast.AugAssign):
            yield "drop assignment", node, ast.Pass()
    elif isinstance(node, ast.ExceptHandler) and node.type is not None:
        yield "drop handler", node, ast.ExceptHandler(node.type, node.name, [ast.Raise()])
        if isinstance(node.type, ast.Tuple):
            yield from _smaller(node.type)
    if isinstance(node, ast.If | ast.While | ast.IfExp):
        yield from _of_condition(node.test)
    elif isinstance(node, ast.comprehension):
        for condition in node.ifs:
            yield from _of_condition(condition)


def _of_condition(test: ast.expr) -> Iterator[Variant]:
    compares = isinstance(test, ast.Compare) and len(test.ops) == 1
    if isinstance(test, ast.BoolOp) or (
        compares and type(test.ops[0]) in SWAPS and type(test.ops[0]) not in BOUNDARIES  # type: ignore[attr-defined]
    ):
        return  # changed as expressions
    if not (isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)):
        yield "negate", test, ast.UnaryOp(ast.Not(), test)


def _of_expression(node: Node) -> Iterator[Variant]:
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in SWAPS:
        (right,) = node.comparators
        name = "boundary" if isinstance(node.ops[0], BOUNDARIES) else "opposite"
        yield name, node, ast.Compare(node.left, [SWAPS[type(node.ops[0])]()], [right])
        yield from _smaller(right)
    elif isinstance(node, ast.BoolOp):
        other, name = (ast.Or(), "or for and") if isinstance(node.op, ast.And) else (
            ast.And(), "and for or")  # fmt: skip
        yield name, node, ast.BoolOp(other, node.values)
        for index in range(len(node.values)):
            left = [value for number, value in enumerate(node.values) if number != index]
            fewer = left[0] if len(left) == 1 else ast.BoolOp(node.op, left)
            yield f"without part {index + 1}", node, fewer
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield "drop not", node, node.operand
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield f"{not node.value}", node, ast.Constant(not node.value)
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        if not any(isinstance(side, ast.JoinedStr) for side in (node.left, node.right)):
            adds = isinstance(node.op, ast.Add)
            op = ast.Sub() if adds else ast.Add()
            yield "minus" if adds else "plus", node, ast.BinOp(node.left, op, node.right)
    elif isinstance(node, ast.Call):
        yield from _of_call(node)


def _called(node: ast.Call) -> str:
    return ast.unparse(node.func).rpartition(".")[2]


def _of_call(node: ast.Call) -> Iterator[Variant]:
    for keyword in node.keywords:
        if keyword.arg in CONDITIONS:
            left = [one for one in node.keywords if one is not keyword]
            yield f"drop {keyword.arg}", node, ast.Call(node.func, node.args, left)
    whole = ast.unparse(node.func)
    if other := {"max": "min", "min": "max"}.get(whole):
        renamed = ast.Name(other, ast.Load())
        yield f"{other} for {whole}", node, ast.Call(renamed, node.args, node.keywords)
    if _called(node) == "range" and len(node.args) == 1 and isinstance(node.args[0], ast.Name):
        less = f"range({node.args[0].id} - 1)"
        yield "one time less", node, ast.parse(less, mode="eval").body
