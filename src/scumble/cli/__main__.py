"""`python -m scumble.cli`: the same as `scumble`."""

import sys

from scumble.cli import main

sys.exit(main())
