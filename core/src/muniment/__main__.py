"""``python -m muniment``: the command line."""

from __future__ import annotations

from muniment.cli import main

if __name__ == "__main__":
    main()
