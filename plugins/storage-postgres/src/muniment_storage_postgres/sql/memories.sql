-- Reads of memories. An audience is :user, :groups and :write; what it may not read is not there.

-- name: readable
-- The scopes that the audience reads, as the beginning of a WITH.
readable AS MATERIALIZED (
    SELECT %(user_key)s::text COLLATE "C" AS scope_key, 'user'::text AS scope
    UNION
    SELECT p.scope_key, 'project' FROM project p WHERE p.owner = %(user)s::text
    UNION
    SELECT p.scope_key, 'project'
    FROM share s JOIN project p ON p.id = s.project_id
    WHERE s.group_name = ANY(%(groups)s::text[]) AND (s.access = 'rw' OR NOT %(write)s::boolean)
)

-- name: may_read
-- Whether the audience reads the memory m, whose project, if it has one, is p.
    m.user_name = %(user)s::text
    OR p.owner = %(user)s::text
    OR EXISTS (
        SELECT FROM share s
        WHERE s.project_id = m.project_id AND s.group_name = ANY(%(groups)s::text[])
            AND (s.access = 'rw' OR NOT %(write)s::boolean)
    )

-- name: facts_of_memory
-- A memory with what access is decided from.
    m.id, m.scope, m.project_id, m.content, m.tags, m.version, m.last_edited_by, m.created_at, m.updated_at,
    m.scope_key,
    coalesce(p.owner, m.user_name),
    ARRAY(
        SELECT s.access FROM share s
        WHERE s.project_id = m.project_id AND s.group_name = ANY(%(groups)s::text[])
    ),
    m.deleted,

-- name: load
WITH
-- include: wanted
SELECT
-- include: facts_of_memory
    ARRAY(
        SELECT v.hash FROM passage v
        WHERE v.scope = m.scope_number AND v.space = (SELECT w.number FROM wanted w) AND v.memory = m.number
    ),
    coalesce((SELECT w.number FROM wanted w) = ANY(m.embedded_in), false)
FROM memory m LEFT JOIN project p ON p.id = m.project_id
WHERE m.id = %(id)s::text AND (
-- include: may_read
)

-- name: load_without_passages
SELECT
-- include: facts_of_memory
    '{}'::text[],
    false
FROM memory m LEFT JOIN project p ON p.id = m.project_id
WHERE m.id = %(id)s::text AND (
-- include: may_read
)

-- name: list_memories
-- Each scope gives at most one page, by its index; contents are read for the merged page only.
WITH
-- include: readable
, page AS MATERIALIZED (
    SELECT f.id
    FROM readable r CROSS JOIN LATERAL (
        SELECT m.id, m.created_at FROM memory m
        WHERE m.scope_key = r.scope_key AND m.deleted = %(deleted)s::boolean AND m.tags @> %(tags)s::text[]
            AND m.created_at <= coalesce(%(after_at)s::timestamptz, 'infinity')
            AND (
                m.created_at < coalesce(%(after_at)s::timestamptz, 'infinity')
                OR m.id > %(after_id)s::text COLLATE "C"
            )
        ORDER BY m.created_at DESC, m.id
        LIMIT %(limit)s::int
    ) f
    WHERE (%(scope_key)s::text IS NULL OR r.scope_key = %(scope_key)s::text)
        AND (%(scope)s::text IS NULL OR r.scope = %(scope)s::text)
    ORDER BY f.created_at DESC, f.id
    LIMIT %(limit)s::int
)
SELECT m.id, m.scope, m.project_id, m.content, m.tags, m.version, m.last_edited_by, m.created_at, m.updated_at
FROM page JOIN memory m ON m.id = page.id
ORDER BY m.created_at DESC, m.id

-- name: history
SELECT
    a.id, a.at, a.actor, a.agent, a.surface, a.action, a.memory_id, a.project_id, a.version, a.changed,
    a.scope_key, a.moved_to, a.patch, a.details
FROM audit a
WHERE a.memory_id = %(id)s::text AND a.version < coalesce(%(before)s::int, 2147483647) AND EXISTS (
    SELECT FROM memory m LEFT JOIN project p ON p.id = m.project_id
    WHERE m.id = %(id)s::text AND (
-- include: may_read
    )
)
ORDER BY a.version DESC
LIMIT %(limit)s::int

-- name: scope_trail
-- What was done in a scope to things that are no memories.
SELECT
    a.id, a.at, a.actor, a.agent, a.surface, a.action, a.memory_id, a.project_id, a.version, a.changed,
    a.scope_key, a.moved_to, a.patch, a.details
FROM audit a
WHERE a.scope_key = %(scope_key)s::text AND a.memory_id IS NULL
    AND a.at <= coalesce(%(after_at)s::timestamptz, 'infinity')
    AND (a.at < coalesce(%(after_at)s::timestamptz, 'infinity') OR a.id > %(after_id)s::text COLLATE "C")
ORDER BY a.at DESC, a.id
LIMIT %(limit)s::int

-- name: describe
SELECT current_setting('server_version'), (SELECT e.extversion FROM pg_extension e WHERE e.extname = 'vector')
