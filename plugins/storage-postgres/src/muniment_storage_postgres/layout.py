"""Names that the database and this distribution agree on, for who needs no tables as SQLAlchemy sees them: that library
takes longer to load than a storage to open."""

from __future__ import annotations

VERSION_TABLE = "muniment_schema"
"""Where Alembic notes the revision."""
REVISIONS = ("0001", "0002", "0003", "0004", "0005")
"""Every revision that this distribution knows, oldest first; a test compares it with the migrations."""
SIDE_TABLES = ("passage", "search_entry", "search_keys", "posting")
"""The tables that are partitioned by scope."""
INDEX_OF_A_SPACE = r"^passage_\d+_near_\d+$"
"""What the name of an index looks like that comes and goes with a space: by partition and number of the space."""
