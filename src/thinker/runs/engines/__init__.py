"""Engines decide in which order the parts of a run move."""
