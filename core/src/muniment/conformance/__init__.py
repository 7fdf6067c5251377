"""The conformance suite: invariants as data, one framework-free runner, thin fronts on it.

A plugin's author supplies a target (``target``) and three lines of test (``pytest_front``); ``muniment
conform`` runs the same checks without a test framework. Nothing is imported here.
"""

from __future__ import annotations
