"""`python -m ingero` is `ingero`."""

import sys

from ingero.serve.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
