"""`python -m stepladder`: the command."""

import sys

from .command import main

sys.exit(main())
