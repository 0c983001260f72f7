"""Building blocks that world models and agents share (appendix C)."""
