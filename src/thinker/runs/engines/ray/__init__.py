"""The engine for many processes, on one machine or on a Ray cluster; see docs/scaling.md.

`spec.py` has its settings, `engine.py` the training loop, `pool.py` the acting workers, `parts.py` what runs in the
other processes, `message.py` the form in which they exchange data. Only `spec.py` can be imported without Ray.
"""
