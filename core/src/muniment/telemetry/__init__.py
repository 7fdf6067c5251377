"""What is told of an engine at work: measured, traced and logged. Each is a watch of the engine's (``watching``).

``metrics`` and ``tracing`` need the extra ``muniment[telemetry]`` and are imported where it is there; ``calls`` needs
nothing. None of them tells contents, ids of memories, users or secrets.
"""
