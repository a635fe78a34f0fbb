"""`python -m personalink.testing`: the fake server as a process, which prints its URL and runs until it is stopped."""

import sys

from personalink.testing.process import main

if __name__ == "__main__":
    sys.exit(main())
