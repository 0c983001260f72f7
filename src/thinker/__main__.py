"""``python -m thinker`` is the `thinker` command."""

import sys

from thinker.cli import main

sys.exit(main())
