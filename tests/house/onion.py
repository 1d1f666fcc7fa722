"""The rules of the onion, read from the syntax tree. `broken_rules` gives one line for each place that breaks one.

1. `next(call)` is entered under `aclosing` (or `pulling`), or returned as it is by a plain function.
2. No timeout, lock, task group or telemetry context is held across a `yield`.
3. A `finally` of a generator awaits nothing but the closing of its inside and the end of its own tasks, and yields nothing.
4. A layer is an async generator or a plain function, never a coroutine.
5. A generator that catches its own closing or cancellation raises it again.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from house.source import dotted, functions

CLOSERS = {"aclosing", "pulling"}
HELD = {"timeout", "timeout_at", "condition", "taskgroup", "use_span", "start_as_current_span", "attached", "copy_context"}
JOINS = {"aclose", "wait", "gather"}
ENDINGS = {"GeneratorExit", "CancelledError", "BaseException"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def broken_rules(module: ast.Module) -> list[str]:
    return sorted({f"{line}: {rule}" for function in functions(module) for line, rule in of(function)})


def of(function: Function) -> Iterator[tuple[int, str]]:
    if "next" in parameters(function):
        yield from next_is_closed(function)
    if not isinstance(function, ast.AsyncFunctionDef):
        return
    if is_generator(function):
        yield from nothing_is_held(function)
        yield from finally_is_quick(function)
        yield from endings_pass(function)
    elif is_layer(function):
        yield function.lineno, "a layer is an async generator or a plain function, never a coroutine"


def is_layer(function: Function) -> bool:
    """Part of the seam: a step inside a layer may be a coroutine, and starts with an underscore."""
    named = [name for name in parameters(function) if name != "self"]
    return named == ["call", "next"] and (function.name == "__call__" or not function.name.startswith("_"))


def parameters(function: Function) -> list[str]:
    return [each.arg for each in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]


def own(node: ast.AST) -> Iterator[ast.AST]:
    """What stands in `node` itself, leaving out functions and classes defined in it."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            yield child
            yield from own(child)


def is_generator(function: Function) -> bool:
    return any(isinstance(node, ast.Yield) for node in own(function))


def last(node: ast.AST) -> str:
    return dotted(node).rsplit(".", 1)[-1]


def next_is_closed(function: Function) -> Iterator[tuple[int, str]]:
    closed = {id(argument) for entered in entered_contexts(function) if last(entered) in CLOSERS for argument in entered.args}
    if isinstance(function, ast.FunctionDef):
        closed |= {id(node.value) for node in own(function) if isinstance(node, ast.Return) and node.value}
    for node in own(function):
        if isinstance(node, ast.Call) and dotted(node) == "next" and id(node) not in closed:
            yield node.lineno, "next(call) outside `async with aclosing(...)`"


def entered_contexts(function: Function) -> Iterator[ast.Call]:
    for node in own(function):
        if isinstance(node, ast.AsyncWith):
            yield from (item.context_expr for item in node.items if isinstance(item.context_expr, ast.Call))
        elif isinstance(node, ast.Call) and last(node) == "enter_async_context":
            yield from (argument for argument in node.args if isinstance(argument, ast.Call))


def nothing_is_held(function: Function) -> Iterator[tuple[int, str]]:
    for node in own(function):
        if not isinstance(node, ast.With | ast.AsyncWith) or not any(isinstance(inner, ast.Yield) for inner in own(node)):
            continue
        for item in node.items:
            name = last(item.context_expr).lower()
            if name.lstrip("_") in HELD or name.endswith(("lock", "semaphore")):
                yield node.lineno, f"{dotted(item.context_expr)} held across a yield"


def finally_is_quick(function: Function) -> Iterator[tuple[int, str]]:
    if any(last(each) == "asynccontextmanager" for each in function.decorator_list):
        return
    for statement in (each for node in own(function) if isinstance(node, ast.Try) for each in node.finalbody):
        for node in (statement, *own(statement)):
            if isinstance(node, ast.Await) and last(node.value) not in JOINS:
                yield node.lineno, "a finally that awaits more than the end of its own"
            if isinstance(node, ast.AsyncWith | ast.AsyncFor | ast.Yield):
                yield node.lineno, "a finally that does more than end its own"


def endings_pass(function: Function) -> Iterator[tuple[int, str]]:
    for node in own(function):
        if not isinstance(node, ast.ExceptHandler):
            continue
        kinds = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
        stops = any(kind is None or last(kind) in ENDINGS for kind in kinds)
        if stops and not any(isinstance(inner, ast.Raise) for inner in own(node)):
            yield node.lineno, "the end of a generator caught and not raised again"
