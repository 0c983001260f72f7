"""A training run: settings, loop, checkpoints, metrics, progress, evaluation and learning curves."""
