"""``python -m eventprof``: the same program as ``eventprof``."""

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
