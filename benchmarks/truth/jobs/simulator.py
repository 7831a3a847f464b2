"""Makes a batch for each byte it reads, until there are no more of them.

simulator.py SETTINGS BOOK
"""

from __future__ import annotations

import os
import sys

from book import Book
from loader import Samples
from settings import read_plan


def main() -> None:
    plan, book, samples = read_plan(sys.argv[1]), Book(sys.argv[2]), Samples()
    while os.read(0, 1):
        samples.batch(plan.at(book.phase))
        os.write(1, b"b" * 64)


if __name__ == "__main__":
    main()
