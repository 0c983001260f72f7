"""Lets the API reference show what stands behind a field: ``value: Tensor  # [B]``."""

from __future__ import annotations

import ast
from typing import Any

import griffe


class FieldComments(griffe.Extension):
    """Lists the fields of a class that have a comment at the end of their line, and no other documentation."""

    def on_class_members(self, *, node: ast.AST | griffe.ObjectNode, cls: griffe.Class, **_: Any) -> None:
        """Called for every class, when its members are known."""
        found = {
            name: comment_of(one)
            for name, one in cls.members.items()
            if isinstance(one, griffe.Attribute) and not name.startswith("_")
        }
        lines = [f"    {name}: {comment}" for name, comment in found.items() if comment]
        if lines and cls.docstring is not None:
            cls.docstring.value = "\n".join([cls.docstring.value, "", "Attributes:", *lines])


def comment_of(field: griffe.Attribute) -> str:
    """The comment behind a field, if it has no documentation of its own."""
    if field.docstring is not None or field.endlineno is None or field.annotation is None:
        return ""
    line = field.lines_collection[field.filepath][field.endlineno - 1]
    comment = " ".join(line.partition("  # ")[2].split())
    return "" if comment.startswith(("noqa", "type:")) else comment
