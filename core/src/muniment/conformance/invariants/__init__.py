"""The invariants by family: each module states the rules of one part, with the checks that show them."""

from __future__ import annotations
