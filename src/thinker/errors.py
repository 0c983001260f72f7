"""Errors that users can fix. The command line prints them without a traceback; everything else keeps its own."""

from __future__ import annotations


class UserError(ValueError):
    """Wrong settings, files, spaces or numbers; the message names what was wrong and what to do."""


class UnsupportedError(UserError, TypeError):
    """An environment, space or object of a kind that does not work here."""
