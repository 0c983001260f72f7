"""The paper's experiments as commands: what agents learned, beside what the paper saw."""
