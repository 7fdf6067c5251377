"""Memory for AI agents: one core that owns every rule, with storage, embedder and transport as plugins.

Nothing is imported here, so that `import muniment` costs nothing; import the module that owns what you need.
"""

from __future__ import annotations

__version__ = "0.1.0"
