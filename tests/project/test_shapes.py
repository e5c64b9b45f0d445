"""Every array field of a record has its shape beside it: in a comment on its line or above, or below it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.project.test_style import named
from tests.support.paths import SHIPPED_SOURCES

#: A name for a kind of array, as modules of the project define it.
ALIAS = re.compile(r"^(\w+) = NDArray\[", re.MULTILINE)
CLASS = re.compile(r"^class (\w+)", re.MULTILINE)
SHAPE = re.compile(r"\[[^\[\]]+\]")


def comment_of(lines: list[str], node: ast.AnnAssign, after: ast.stmt | None) -> str:
    """Text beside a field: on its lines, in comments right above, in a docstring below."""
    own = lines[node.lineno - 1 : node.end_lineno]
    told = [line.split("#", 1)[1] for line in own if "#" in line]
    above = node.lineno - 2
    while above >= 0 and lines[above].strip().startswith("#"):
        told.append(lines[above].split("#", 1)[1])
        above -= 1
    if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
        told.append(str(after.value.value))
    return " ".join(told)


def arrays_of(tree: ast.Module, text: str, aliases: set[str]) -> re.Pattern[str]:
    """Array types in an annotation of this module: numpy's name, its own names, or imported ones."""
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    names = {alias.name for node in imports for alias in node.names} & aliases
    return re.compile(rf"\b({'|'.join(sorted({'NDArray', *ALIAS.findall(text), *names}))})\b")


def shapeless(text: str, aliases: set[str]) -> Iterator[str]:
    """Class and field of every array field without a shape; ``aliases``: names for arrays in all modules."""
    lines, tree = text.splitlines(), ast.parse(text)
    arrays = arrays_of(tree, text, aliases)
    for kind in (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)):
        for node, after in zip(kind.body, [*kind.body[1:], None], strict=True):
            if not isinstance(node, ast.AnnAssign):
                continue
            annotation = ast.unparse(node.annotation)
            is_array = arrays.search(annotation) and "Callable" not in annotation
            if is_array and not SHAPE.search(comment_of(lines, node, after)):
                yield f"{kind.name}.{ast.unparse(node.target)}"


def test_array_fields_have_their_shapes_beside_them() -> None:
    """A field's axes are stated at the field, not in a distant paragraph."""
    texts = {path: path.read_text() for path in SHIPPED_SOURCES}
    classes = {name for text in texts.values() for name in CLASS.findall(text)}
    aliases = {name for text in texts.values() for name in ALIAS.findall(text)} - classes
    assert not [f"{named(p)}: {field}" for p, text in texts.items() for field in shapeless(text, aliases)]


def test_a_field_without_a_shape_is_found() -> None:
    """A shape may be in any of three places; a field with none is found (negative control)."""
    fields = (
        "class Some:\n"
        "    a: NDArray[int]  # [B], requests\n"
        "    #: [B, R].\n"
        "    b: NDArray[int]\n"
        "    c: NDArray[int]\n"
        '    """[B], in order."""\n'
        "    d: NDArray[int]  # in order\n"
        "    e: int\n"
    )
    assert list(shapeless(fields, set())) == ["Some.d"]
    imported = fields.replace("NDArray[int]", "Floats")
    assert not list(shapeless(imported, {"Floats"}))
    assert list(shapeless("from numbers import Floats\n" + imported, {"Floats"})) == ["Some.d"]
