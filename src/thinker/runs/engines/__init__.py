"""Engines schedule the parts of a run."""
