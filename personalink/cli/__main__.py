"""`python -m personalink.cli`."""

import sys

from personalink.cli import main

sys.exit(main())
