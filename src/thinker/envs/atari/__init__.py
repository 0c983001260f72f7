"""Atari 2600 games as in the paper's section 5.2, with the emulator ``ale-py`` (extra ``thinker[atari]``)."""
