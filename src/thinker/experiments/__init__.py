"""Experiments of the paper beyond single runs: its figures, and the analysis of what agents learned."""
