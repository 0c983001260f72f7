"""Lets the API reference show what stands behind a field: ``value: Tensor  # [B]``."""

from __future__ import annotations

import ast
from typing import Any

import griffe


class FieldComments(griffe.Extension):
    """Takes the comment at the end of a field's line as its documentation, if it has no other."""

    def on_attribute_instance(self, *, node: ast.AST | griffe.ObjectNode, attr: griffe.Attribute, **_: Any) -> None:
        """Called for every attribute that is found."""
        is_field = isinstance(node, ast.AnnAssign) and isinstance(attr.parent, griffe.Class)
        if not is_field or attr.docstring is not None or attr.endlineno is None:
            return
        line = attr.lines_collection[attr.filepath][attr.endlineno - 1]
        _, mark, comment = line.partition("  # ")
        if mark and not comment.startswith(("noqa", "type:")):
            text = " ".join(comment.split())
            attr.docstring = griffe.Docstring(text[0].upper() + text[1:], parent=attr, lineno=attr.endlineno)
