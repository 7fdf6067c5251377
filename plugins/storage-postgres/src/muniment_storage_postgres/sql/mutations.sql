-- Mutations: each is one statement, so all of it is applied or nothing.
--
-- `seen` and `xmin` together say that the row has not changed since this statement's snapshot was taken. Without that,
-- an update that waited for a lock would go on with the newest row but delete side rows by the old snapshot, and leave
-- vectors behind that were committed meanwhile. `unchanged` rows are retried by the caller.

-- name: trail
-- The audit entry and the claim of a mutation whose first part is called `changed`; a key that is taken violates
-- receipt_pkey, which undoes the whole statement. A few expired claims are cleared away in passing.
, audited AS (
    INSERT INTO audit (
        id, at, actor, agent, surface, action, memory_id, project_id, version, changed, scope_key, moved_to, patch,
        details
    )
    SELECT
        %(audit_id)s, c.updated_at, %(actor)s, %(agent)s, %(surface)s, %(action)s, %(audit_memory)s, %(audit_project)s,
        %(audit_version)s, %(audit_changed)s::text[], %(audit_scope_key)s, %(moved_to)s, %(patch)s::jsonb,
        %(details)s::jsonb
    FROM changed c
), cleared AS (
    DELETE FROM receipt r
    WHERE r.ctid = ANY(ARRAY(
        SELECT o.ctid FROM receipt o
        WHERE o.at <= now() - %(kept)s::interval AND %(claim_key)s::text IS NOT NULL
        ORDER BY o.at LIMIT 4
        FOR UPDATE SKIP LOCKED
    ))
), expired AS (
    DELETE FROM receipt r
    WHERE r.principal = %(claim_principal)s::text AND r.key = %(claim_key)s::text
        AND r.at <= now() - %(kept)s::interval
    RETURNING 1
), claimed AS (
    INSERT INTO receipt (principal, key, body_hash, memory_id, receipt, at)
    SELECT
        %(claim_principal)s, %(claim_key)s, %(claim_body)s, %(claim_memory)s, %(claim_receipt)s::jsonb, c.updated_at
    FROM changed c
    WHERE %(claim_key)s::text IS NOT NULL AND (SELECT count(*) FROM expired) >= 0
)
SELECT c.version, c.created_at, c.updated_at FROM changed c

-- name: create
WITH changed AS (
    INSERT INTO memory (
        id, scope_key, scope, user_name, project_id, content, tags, version, last_edited_by, created_at, updated_at,
        deleted, embedded_in
    )
    VALUES (
        %(id)s, %(new_scope_key)s, %(scope)s, %(user_name)s, %(project_id)s, %(content)s, %(tags)s::text[], 1,
        %(editor)s, now(), now(), false, %(embedded_in)s::int[]
    )
    RETURNING id, version, created_at, updated_at
), entered AS (
    INSERT INTO search_entry (scope_key, memory_id, analyser, length, terms, tags)
    SELECT %(new_scope_key)s, c.id, %(analyser)s, %(length)s, %(terms)s::jsonb, %(tags)s::text[] FROM changed c
), added AS (
    INSERT INTO passage (scope_key, space, memory_id, hash, embedding)
    SELECT %(new_scope_key)s, %(space)s::int, c.id, v.hash, v.embedding
    FROM changed c CROSS JOIN unnest(%(fresh)s::text[], %(vectors)s::vector[]) AS v (hash, embedding)
)
-- include: trail

-- name: edit
-- New content, perhaps new tags, in the same scope.
WITH seen AS MATERIALIZED (
    SELECT m.xmin AS row_version FROM memory m WHERE m.id = %(id)s::text
), changed AS (
    UPDATE memory m SET
        content = %(content)s,
        tags = coalesce(%(tags)s::text[], m.tags),
        version = m.version + 1,
        last_edited_by = %(editor)s,
        updated_at = greatest(now(), m.updated_at),
        embedded_in = %(embedded_in)s::int[]
    FROM seen
    WHERE m.id = %(id)s::text AND m.version = %(expected)s::int AND NOT m.deleted
        AND m.scope_key = %(scope_key)s::text AND m.xmin = seen.row_version
    RETURNING m.id, m.version, m.created_at, m.updated_at, m.tags
), entered AS (
    INSERT INTO search_entry (scope_key, memory_id, analyser, length, terms, tags)
    SELECT %(scope_key)s, c.id, %(analyser)s, %(length)s, %(terms)s::jsonb, c.tags FROM changed c
    ON CONFLICT (scope_key, memory_id) DO UPDATE SET
        analyser = excluded.analyser, length = excluded.length, terms = excluded.terms, tags = excluded.tags
), dropped AS (
    DELETE FROM passage p USING changed c
    WHERE p.scope_key = %(scope_key)s::text AND p.memory_id = %(id)s::text
        AND p.space = ANY(ARRAY(SELECT s.number FROM space s))
        AND (p.space = %(space)s::int AND p.hash = ANY(%(hashes)s::text[])) IS NOT TRUE
), added AS (
    INSERT INTO passage (scope_key, space, memory_id, hash, embedding)
    SELECT %(scope_key)s, %(space)s::int, c.id, v.hash, v.embedding
    FROM changed c CROSS JOIN unnest(%(fresh)s::text[], %(vectors)s::vector[]) AS v (hash, embedding)
    ON CONFLICT (scope_key, space, memory_id, hash) DO UPDATE SET embedding = excluded.embedding
)
-- include: trail

-- name: label
-- New tags, nothing else.
WITH changed AS (
    UPDATE memory m SET
        tags = coalesce(%(tags)s::text[], m.tags),
        version = m.version + 1,
        last_edited_by = %(editor)s,
        updated_at = greatest(now(), m.updated_at)
    WHERE m.id = %(id)s::text AND m.version = %(expected)s::int AND NOT m.deleted
        AND m.scope_key = %(scope_key)s::text
    RETURNING m.id, m.version, m.created_at, m.updated_at, m.tags
), entered AS (
    UPDATE search_entry e SET tags = c.tags FROM changed c
    WHERE e.scope_key = %(scope_key)s::text AND e.memory_id = %(id)s::text
)
-- include: trail

-- name: move
-- Another scope, perhaps with new content and tags; terms and passages go along.
WITH seen AS MATERIALIZED (
    SELECT m.xmin AS row_version FROM memory m WHERE m.id = %(id)s::text
), changed AS (
    UPDATE memory m SET
        scope_key = %(new_scope_key)s,
        scope = %(scope)s,
        user_name = %(user_name)s,
        project_id = %(project_id)s,
        content = coalesce(%(content)s::text, m.content),
        tags = coalesce(%(tags)s::text[], m.tags),
        version = m.version + 1,
        last_edited_by = %(editor)s,
        updated_at = greatest(now(), m.updated_at),
        embedded_in = CASE WHEN %(content)s::text IS NULL THEN m.embedded_in ELSE %(embedded_in)s::int[] END
    FROM seen
    WHERE m.id = %(id)s::text AND m.version = %(expected)s::int AND NOT m.deleted
        AND m.scope_key = %(scope_key)s::text AND m.xmin = seen.row_version
    RETURNING m.id, m.version, m.created_at, m.updated_at, m.tags
), entered AS (
    UPDATE search_entry e SET
        scope_key = %(new_scope_key)s,
        tags = c.tags,
        analyser = coalesce(%(analyser)s::text, e.analyser),
        length = coalesce(%(length)s::int, e.length),
        terms = coalesce(%(terms)s::jsonb, e.terms)
    FROM changed c
    WHERE e.scope_key = %(scope_key)s::text AND e.memory_id = %(id)s::text
), dropped AS (
    DELETE FROM passage p USING changed c
    WHERE p.scope_key = %(scope_key)s::text AND p.memory_id = %(id)s::text
        AND p.space = ANY(ARRAY(SELECT s.number FROM space s))
        AND %(content)s::text IS NOT NULL
        AND (p.space = %(space)s::int AND p.hash = ANY(%(kept_hashes)s::text[])) IS NOT TRUE
), moved AS (
    UPDATE passage p SET scope_key = %(new_scope_key)s FROM changed c
    WHERE p.scope_key = %(scope_key)s::text AND p.memory_id = %(id)s::text
        AND p.space = ANY(ARRAY(SELECT s.number FROM space s))
        AND (%(content)s::text IS NULL OR (p.space = %(space)s::int AND p.hash = ANY(%(kept_hashes)s::text[])))
), added AS (
    INSERT INTO passage (scope_key, space, memory_id, hash, embedding)
    SELECT %(new_scope_key)s, %(space)s::int, c.id, v.hash, v.embedding
    FROM changed c CROSS JOIN unnest(%(fresh)s::text[], %(vectors)s::vector[]) AS v (hash, embedding)
)
-- include: trail

-- name: remove
WITH seen AS MATERIALIZED (
    SELECT m.xmin AS row_version FROM memory m WHERE m.id = %(id)s::text
), changed AS (
    UPDATE memory m SET
        deleted = true,
        version = m.version + 1,
        last_edited_by = %(editor)s,
        updated_at = greatest(now(), m.updated_at),
        embedded_in = '{}'
    FROM seen
    WHERE m.id = %(id)s::text AND m.version = %(expected)s::int AND NOT m.deleted
        AND m.scope_key = %(scope_key)s::text AND m.xmin = seen.row_version
    RETURNING m.id, m.version, m.created_at, m.updated_at
), entered AS (
    DELETE FROM search_entry e USING changed c
    WHERE e.scope_key = %(scope_key)s::text AND e.memory_id = %(id)s::text
), dropped AS (
    DELETE FROM passage p USING changed c
    WHERE p.scope_key = %(scope_key)s::text AND p.memory_id = %(id)s::text
        AND p.space = ANY(ARRAY(SELECT s.number FROM space s))
)
-- include: trail

-- name: restore
-- A deleted memory has neither terms nor passages.
WITH changed AS (
    UPDATE memory m SET
        deleted = false,
        version = m.version + 1,
        last_edited_by = %(editor)s,
        updated_at = greatest(now(), m.updated_at),
        embedded_in = %(embedded_in)s::int[]
    WHERE m.id = %(id)s::text AND m.version = %(expected)s::int AND m.deleted
        AND m.scope_key = %(scope_key)s::text
    RETURNING m.id, m.version, m.created_at, m.updated_at, m.tags
), entered AS (
    INSERT INTO search_entry (scope_key, memory_id, analyser, length, terms, tags)
    SELECT %(scope_key)s, c.id, %(analyser)s, %(length)s, %(terms)s::jsonb, c.tags FROM changed c
), added AS (
    INSERT INTO passage (scope_key, space, memory_id, hash, embedding)
    SELECT %(scope_key)s, %(space)s::int, c.id, v.hash, v.embedding
    FROM changed c CROSS JOIN unnest(%(fresh)s::text[], %(vectors)s::vector[]) AS v (hash, embedding)
)
-- include: trail

-- name: standing
-- Why a mutation changed nothing: the memory as it is now, and whether the claim's key is taken.
SELECT
    m.version, m.deleted, m.scope_key,
    EXISTS (
        SELECT FROM receipt r
        WHERE r.principal = %(claim_principal)s::text AND r.key = %(claim_key)s::text
            AND r.at > now() - %(kept)s::interval
    )
FROM (VALUES (1)) AS one LEFT JOIN memory m ON m.id = %(id)s::text
