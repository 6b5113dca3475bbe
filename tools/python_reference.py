"""The Python reference: every public name with its signature and docstring, as Markdown."""

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType
from typing import Final

_HEAD: Final = """\
# Python

Generated from the docstrings (`make docs`). The [commands](cli.md) call these same functions.
"""

_MODULES: Final[dict[str, tuple[str, ...]]] = {
    "lumos_df": (),
    "lumos_df.trace.result": (),
    "lumos_df.corpus.report": (),
    "lumos_df.estimate": (),
    "lumos_df.estimate.search": ("Found", "Refused"),
    "lumos_df.capture": (),
}
"""In the order of the page; with the names to show, or none where all that is public is shown."""

_SECTION: Final = re.compile(r"(Args|Returns|Raises|Yields):")
_ENTRY: Final = re.compile(r"(?P<name>[\w, ]+): (?P<text>.*)")


def python_reference() -> str:
    """Return the reference as Markdown. Raises `ValueError` where a public name has no docstring."""
    return _HEAD + "".join(
        f"{line}\n" for name, chosen in _MODULES.items() for line in _module(import_module(name), chosen)
    )


def _module(module: ModuleType, chosen: tuple[str, ...]) -> Iterator[str]:
    yield from ("", f"## {module.__name__}", "", *_text(module.__name__, inspect.getdoc(module)))
    for name in chosen or _public(module):
        value = getattr(module, name)
        if inspect.isclass(value):
            yield from _class(module, name, value)
        elif inspect.isroutine(value):
            yield from _function(f"{module.__name__}.{name}", inspect.unwrap(value), "###")


def _public(module: ModuleType) -> list[str]:
    """Return the names in `__all__`, or else all that the module defines itself."""
    listed = getattr(module, "__all__", None)
    if listed is not None:
        return list(listed)
    defined = (name for name, value in vars(module).items() if getattr(value, "__module__", None) == module.__name__)
    return [name for name in defined if not name.startswith("_")]


def _class(module: ModuleType, name: str, kind: type) -> Iterator[str]:
    title = f"{module.__name__}.{name}"
    yield from ("", f"### `{title}`", "", *_text(title, inspect.getdoc(kind)))
    body = _tree(kind).body
    fields = [
        (node.target.id, ast.unparse(node.annotation), _string(after))
        for node, after in zip(body, [*body[1:], None], strict=True)
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    ]
    if any(text for *_, text in fields):
        yield from ("", "| field | type | what |", "|---|---|---|")
        for field, annotation, text in fields:
            yield f"| `{field}` | `{_cell(annotation)}` | {_cell(text)} |"
    elif fields:  # their names say it
        yield from ("", ", ".join(f"`{field}: {annotation}`" for field, annotation, _ in fields))
    for member, value in vars(kind).items():
        function = getattr(value, "__func__", getattr(value, "fget", getattr(value, "func", value)))
        written = inspect.isfunction(function) and function.__code__.co_filename == inspect.getsourcefile(kind)
        if written and not member.startswith("_"):
            yield from _function(f"{title}.{member}", function, "####")


def _function(title: str, function: object, level: str) -> Iterator[str]:
    source = textwrap.dedent(inspect.getsource(function))  # type: ignore[arg-type]  # a function, as the caller saw
    tree = ast.parse(source).body[0]
    assert isinstance(tree, ast.FunctionDef)  # noqa: S101 - tells the type checker
    # As it is written, decorators and all, up to the docstring; but what it says to a linter is nobody else's.
    header = [re.sub(r"  # noqa.*", "", line) for line in source.splitlines()[: tree.body[0].lineno - 1]]
    yield from ("", f"{level} `{title}`", "", "```python", *header, "```", "")
    yield from _text(title, inspect.getdoc(function))


def _text(title: str, doc: str | None) -> Iterator[str]:
    """Yield a docstring's paragraphs; what it lists under Args, Returns and Raises as bullets."""
    if not doc:
        raise ValueError(f"'{title}' has no docstring")
    lines = doc.splitlines()
    for number, line in enumerate(lines):
        if heading := _SECTION.fullmatch(line):
            yield f"**{heading[1]}**"
            yield ""
        elif not line.startswith("    ") or not any(map(_SECTION.fullmatch, lines[:number])):
            yield line
        elif entry := _ENTRY.fullmatch(line[4:]):
            yield f"- `{entry['name']}`: {entry['text']}"
        else:
            yield f"  {line.strip()}" if line.startswith("     ") else line.strip()


def _tree(kind: type) -> ast.ClassDef:
    tree = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    assert isinstance(tree, ast.ClassDef)  # noqa: S101 - tells the type checker
    return tree


def _string(node: ast.stmt | None) -> str:
    """Return the docstring under a field, or nothing."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
        return node.value.value
    return ""


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
