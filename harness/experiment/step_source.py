"""What the text of a file says of a training step in it, without running it."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator

from harness.errors import suggestion

#: Calls by which a module may get names that do not stand in its text.
_HIDDEN = frozenset({"globals", "locals", "vars", "exec", "eval", "setattr"})
#: What is no function, whatever a run does.
_VALUES = (ast.Constant, ast.JoinedStr, ast.List, ast.Tuple, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


def function_problem(source: bytes, name: str) -> str | None:
    """Why a file has no function of that name, or None: it has, or it gets its names in ways that only a run shows."""
    try:
        module = _parsed(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        why = f" ({_place(error)}{error.msg})" if isinstance(error, SyntaxError) else ""
        return f"cannot be read as Python{why}; mend the file"
    known = set(_bound(module))
    if _is_value(module, name):
        return f"{name!r} in it is a value; name the function that returns model, batches and loss"
    if name in known or "*" in known or "__getattr__" in known or _hides_names(module):
        return None
    functions = [each.name for each in module.body if isinstance(each, ast.FunctionDef | ast.ClassDef)]
    return f"it has no function {name!r}{suggestion(name, functions)}"


def _place(error: SyntaxError) -> str:
    """Of what is wrong with a file as a whole, such as its encoding, there is none."""
    return f"line {error.lineno}: " if error.lineno else ""


def _is_value(module: ast.Module, name: str) -> bool:
    """Whether the one thing that a module calls by this name is a number, a text or the like, written out."""
    return _bound_once(module, name) and any(
        target == name and isinstance(value, _VALUES) for target, value in _assigned(module)
    )


def _bound_once(module: ast.Module, name: str) -> bool:
    """Whether a name stands for one thing, whatever a run does."""
    bound = list(_bound(module))
    return bound.count(name) == 1 and "*" not in bound and not _hides_names(module)


def _assigned(module: ast.Module) -> Iterator[tuple[str, ast.expr | None]]:
    """Names that get a value at the module's own level, with the value; those of `a, b = 1, 2` one by one."""
    for each in module.body:
        targets = (
            each.targets if isinstance(each, ast.Assign) else [each.target] if isinstance(each, ast.AnnAssign) else []
        )
        for target in targets:
            match target, each:
                case ast.Name(id=name), (ast.Assign(value=value) | ast.AnnAssign(value=value)):
                    yield name, value
                case ast.Tuple(elts=parts), ast.Assign(value=ast.Tuple(elts=values)) if len(parts) == len(values):
                    yield from (
                        (part.id, value)
                        for part, value in zip(parts, values, strict=True)
                        if isinstance(part, ast.Name)
                    )


def returns_a_tuple(source: bytes, name: str) -> bool:
    """Whether a function returns a tuple that is written out, whatever happens: (model, batches, loss)."""
    module = _parsed(source)
    functions = [each for each in module.body if isinstance(each, ast.FunctionDef) and each.name == name]
    if len(functions) != 1 or functions[0].decorator_list or not _bound_once(module, name):
        return False
    inside = [each for statement in functions[0].body for each in _own(statement)]
    returned = [each.value for each in inside if isinstance(each, ast.Return)]
    return bool(returned) and all(isinstance(each, ast.Tuple) for each in returned)


def _parsed(source: bytes) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(source)


def _own(node: ast.AST) -> Iterator[ast.AST]:
    """A node and what lies in it, the bodies of functions and classes left out. No recursion: nesting may be deep."""
    waiting = [node]
    while waiting:
        each = waiting.pop()
        yield each
        if not isinstance(each, _SCOPES):
            waiting.extend(ast.iter_child_nodes(each))


def _bound(module: ast.Module) -> Iterator[str]:
    """Names that the module binds; `*` where it takes those of another."""
    for node in _own(module):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.Name(id=name, ctx=ast.Store()):
                yield name
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                yield from ((each.asname or each.name).partition(".")[0] for each in names)
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield name
    yield from (name for node in ast.walk(module) if isinstance(node, ast.Global) for name in node.names)


def _hides_names(module: ast.Module) -> bool:
    for node in ast.walk(module):
        match node:
            case ast.Call(func=ast.Name(id=called)) if called in _HIDDEN:
                return True
            case ast.Attribute(value=ast.Name(id="sys"), attr="modules"):
                return True
    return False
