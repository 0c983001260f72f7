"""The paper's experiments: its figures and tables as commands, and the analysis of what agents learned."""
