"""User errors: the command line prints them without a traceback."""

from __future__ import annotations


class UserError(ValueError):
    """Invalid settings, files, spaces or numbers; the message says what is wrong and how to fix it."""


class UnsupportedError(UserError, TypeError):
    """An environment, space or object of an unsupported type."""
