-- Mutations: each is one statement, so all of it is applied or nothing.
--
-- `seen` and `xmin` together say that the row has not changed since this statement's snapshot was taken. Without that,
-- an update that waited for a lock would go on with the newest row but delete side rows by the old snapshot, and leave
-- vectors behind that were committed meanwhile. `unchanged` rows are retried by the caller.
--
-- `keyed` comes after `entered` everywhere: who changes a memory's keys has its entry first, as `settling` has.

-- name: trail
-- The audit entry and the claim of a mutation whose first part is called `changed`; what it is now, and whether it is
-- complete in a space.
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
), happened AS (
    SELECT count(*) AS count, max(c.updated_at) AS at FROM changed c
)
-- once: kept_claim
SELECT c.version, c.created_at, c.updated_at, c.embedded_in <> '{}' FROM changed c

-- name: registered
-- The project that a mutation, whose first part is called `changed`, puts its memory into, and its audit entry.
, registered AS (
    INSERT INTO project (id, scope_key, key, owner, version, created_at, updated_at)
    SELECT
        %(project_id)s, %(new_scope_key)s, %(project_key)s, %(project_owner)s, 1, c.updated_at, c.updated_at
    FROM changed c
), registered_audited AS (
    INSERT INTO audit (
        id, at, actor, agent, surface, action, memory_id, project_id, version, changed, scope_key, moved_to, patch,
        details
    )
    SELECT
        %(project_audit_id)s, c.updated_at, %(project_actor)s, %(project_agent)s, %(project_surface)s,
        %(project_action)s, %(project_audit_memory)s, %(project_audit_project)s, %(project_audit_version)s,
        %(project_audit_changed)s::text[], %(project_audit_scope_key)s, %(project_moved_to)s, %(project_patch)s::jsonb,
        %(project_details)s::jsonb
    FROM changed c
)

-- name: place
-- The number of the scope that a memory is put into; a scope that has had no memory gets one.
scoped AS (
    INSERT INTO scope (key)
    SELECT %(new_scope_key)s WHERE NOT EXISTS (SELECT FROM scope s WHERE s.key = %(new_scope_key)s::text)
    ON CONFLICT (key) DO UPDATE SET key = excluded.key
    RETURNING number
), place AS MATERIALIZED (
    SELECT s.number FROM scope s WHERE s.key = %(new_scope_key)s::text
    UNION ALL
    SELECT s.number FROM scoped s
)

-- name: tag_keys
-- An entry for each tag, packed, with the key that `keys.tag_key` gives it.
coalesce((
    SELECT string_agg(int8send(
        (('x' || encode(substring(sha256(convert_to(' ' || t.tag, 'UTF8')) FROM 1 FOR 6), 'hex'))::bit(48)::bigint >> 1)
            << 16 | 1
    ), '')
    FROM (SELECT DISTINCT unnest(c.tags) AS tag) t
), '')

-- name: this_transaction
-- What `search_entry.changed` is for a mutation: a snapshot tells by it whether it was committed before.
pg_current_xact_id()::text::bigint

-- name: scope_at_run
-- The number of the memory's scope, not looked at before the statement runs (to_number is stable): it then opens only that
-- scope's partitions. Of the plain parameter PostgreSQL believes that a plan made with it is far cheaper than one for any
-- scope, and plans every edit anew, which takes it longer than the edit.
to_number(%(scope)s::int::text, '9999999999')::int

-- name: new_entry
-- What a memory is found by from now on; a search reads its keys until they are settled.
, entered AS (
    INSERT INTO search_entry (scope, memory, length, batch, analyser, changed)
    SELECT
        c.scope_number, c.number, %(length)s::int, 0, %(analyser)s,
-- include: this_transaction
    FROM changed c
), keyed AS (
    INSERT INTO search_keys (scope, memory, unsettled, terms, tags)
    SELECT
        c.scope_number, c.number, c.scope_number, %(terms)s,
-- include: tag_keys
    FROM changed c
)

-- name: now_complete
-- The space as the one in which the memory is complete. What is to be kept is there for certain only if the memory was
-- complete: a space that is being dropped loses passages. Otherwise `store_passages` looks after this statement.
CASE
    WHEN %(complete)s::boolean
        AND (%(kept_hashes)b::text[] = '{}' OR (SELECT h.number FROM held h) = ANY(m.embedded_in))
    THEN ARRAY(SELECT h.number FROM held h)
    ELSE '{}'::int[]
END

-- name: added_passages
, added AS (
    INSERT INTO passage (scope, space, memory, hash, embedding)
    SELECT c.scope_number, h.number, c.number, v.hash, v.embedding
    FROM changed c CROSS JOIN held h CROSS JOIN unnest(%(fresh)b::text[], %(vectors)b::vector[]) AS v (hash, embedding)
    ON CONFLICT (scope, space, memory, hash) DO UPDATE SET embedding = excluded.embedding
)

-- name: create
WITH
-- include: held
,
-- include: place
, changed AS (
    INSERT INTO memory (
        id, scope_number, scope_key, scope, user_name, project_id, content, tags, version, last_edited_by, created_at,
        updated_at, deleted, embedded_in
    )
    SELECT
        %(id)s, p.number, %(new_scope_key)s, %(scope_kind)s, %(user_name)s, %(project_id)s, %(content)s,
        %(tags)s::text[], 1, %(editor)s, now(), now(), false,
        CASE WHEN %(complete)s::boolean THEN ARRAY(SELECT h.number FROM held h) ELSE '{}'::int[] END
    FROM place p
    WHERE
-- include: has_space
    RETURNING number, scope_number, version, created_at, updated_at, tags, embedded_in
)
-- include: new_entry
-- include: added_passages
-- registering: registered
-- include: trail

-- name: edit
-- New content, perhaps new tags, in the same scope.
WITH
-- include: held
, seen AS MATERIALIZED (
    SELECT m.xmin AS row_version FROM memory m WHERE m.id = %(id)s::text
), changed AS (
    UPDATE memory m SET
        content = %(content)s,
        tags = coalesce(%(tags)s::text[], m.tags),
        version = m.version + 1,
        last_edited_by = %(editor)s,
        updated_at = greatest(now(), m.updated_at),
        embedded_in =
-- include: now_complete
    FROM seen
    WHERE m.id = %(id)s::text AND m.version = %(expected)s::int AND NOT m.deleted
        AND m.scope_number = %(scope)s::int AND m.xmin = seen.row_version AND
-- include: has_space
    RETURNING m.number, m.scope_number, m.version, m.created_at, m.updated_at, m.tags, m.embedded_in
), entered AS (
    UPDATE search_entry e SET
        length = %(length)s::int, batch = 0, analyser = %(analyser)s, changed =
-- include: this_transaction
    FROM changed c
    WHERE e.memory = c.number AND e.scope =
-- include: scope_at_run
    RETURNING c.number, c.tags
), keyed AS (
    UPDATE search_keys k SET
        unsettled = k.scope,
        terms = %(terms)s,
        tags =
-- include: tag_keys
    FROM entered c
    WHERE k.memory = c.number AND k.scope =
-- include: scope_at_run
), dropped AS (
    DELETE FROM passage p USING changed c
    WHERE p.memory = c.number AND p.scope =
-- include: scope_at_run
        AND p.space = ANY(ARRAY(SELECT s.number FROM space s))
        AND (p.space = (SELECT h.number FROM held h) AND p.hash = ANY(%(hashes)b::text[])) IS NOT TRUE
)
-- include: added_passages
-- include: trail

-- name: label
-- New tags, nothing else.
WITH seen AS MATERIALIZED (
    SELECT m.xmin AS row_version FROM memory m WHERE m.id = %(id)s::text
), changed AS (
    UPDATE memory m SET
        tags = coalesce(%(tags)s::text[], m.tags),
        version = m.version + 1,
        last_edited_by = %(editor)s,
        updated_at = greatest(now(), m.updated_at)
    FROM seen
    WHERE m.id = %(id)s::text AND m.version = %(expected)s::int AND NOT m.deleted
        AND m.scope_number = %(scope)s::int AND m.xmin = seen.row_version
    RETURNING m.number, m.scope_number, m.version, m.created_at, m.updated_at, m.tags, m.embedded_in
), entered AS (
    UPDATE search_entry e SET
        batch = 0, changed =
-- include: this_transaction
    FROM changed c
    WHERE e.memory = c.number AND e.scope =
-- include: scope_at_run
    RETURNING c.number, c.tags
), keyed AS (
    UPDATE search_keys k SET
        unsettled = k.scope,
        tags =
-- include: tag_keys
    FROM entered c
    WHERE k.memory = c.number AND k.scope =
-- include: scope_at_run
)
-- include: trail

-- name: move
-- Another scope, perhaps with new content and tags; terms and passages go along.
WITH
-- include: held
, seen AS MATERIALIZED (
    SELECT m.xmin AS row_version FROM memory m WHERE m.id = %(id)s::text
),
-- include: place
, changed AS (
    UPDATE memory m SET
        scope_number = place.number,
        scope_key = %(new_scope_key)s,
        scope = %(scope_kind)s,
        user_name = %(user_name)s,
        project_id = %(project_id)s,
        content = coalesce(%(content)s::text, m.content),
        tags = coalesce(%(tags)s::text[], m.tags),
        version = m.version + 1,
        last_edited_by = %(editor)s,
        updated_at = greatest(now(), m.updated_at),
        embedded_in = CASE WHEN %(content)s::text IS NULL THEN m.embedded_in ELSE
-- include: now_complete
        END
    FROM seen CROSS JOIN place
    WHERE m.id = %(id)s::text AND m.version = %(expected)s::int AND NOT m.deleted
        AND m.scope_number = %(scope)s::int AND m.xmin = seen.row_version AND
-- include: has_space
    RETURNING m.number, m.scope_number, m.version, m.created_at, m.updated_at, m.tags, m.embedded_in
), entered AS (
    UPDATE search_entry e SET
        scope = c.scope_number,
        batch = 0,
        changed =
-- include: this_transaction
        ,
        length = coalesce(%(length)s::int, e.length),
        analyser = coalesce(%(analyser)s::text, e.analyser)
    FROM changed c
    WHERE e.memory = c.number AND e.scope =
-- include: scope_at_run
    RETURNING c.number, c.scope_number, c.tags
), keyed AS (
    UPDATE search_keys k SET
        scope = c.scope_number,
        unsettled = c.scope_number,
        terms = coalesce(%(terms)s, k.terms),
        tags =
-- include: tag_keys
    FROM entered c
    WHERE k.memory = c.number AND k.scope =
-- include: scope_at_run
), dropped AS (
    DELETE FROM passage p USING changed c
    WHERE p.memory = c.number AND p.scope =
-- include: scope_at_run
        AND p.space = ANY(ARRAY(SELECT s.number FROM space s))
        AND %(content)s::text IS NOT NULL
        AND (p.space = (SELECT h.number FROM held h) AND p.hash = ANY(%(kept_hashes)b::text[])) IS NOT TRUE
), moved AS (
    UPDATE passage p SET scope = c.scope_number FROM changed c
    WHERE p.memory = c.number AND p.scope =
-- include: scope_at_run
        AND p.space = ANY(ARRAY(SELECT s.number FROM space s))
        AND (
            %(content)s::text IS NULL
            OR (p.space = (SELECT h.number FROM held h) AND p.hash = ANY(%(kept_hashes)b::text[]))
        )
)
-- include: added_passages
-- registering: registered
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
        AND m.scope_number = %(scope)s::int AND m.xmin = seen.row_version
    RETURNING m.number, m.scope_number, m.version, m.created_at, m.updated_at, m.embedded_in
), entered AS (
    DELETE FROM search_entry e USING changed c
    WHERE e.memory = c.number AND e.scope =
-- include: scope_at_run
    RETURNING e.memory
), keyed AS (
    DELETE FROM search_keys k USING entered e
    WHERE k.memory = e.memory AND k.scope =
-- include: scope_at_run
), dropped AS (
    DELETE FROM passage p USING changed c
    WHERE p.memory = c.number AND p.scope =
-- include: scope_at_run
        AND p.space = ANY(ARRAY(SELECT s.number FROM space s))
)
-- include: trail

-- name: restore
-- A deleted memory has neither terms nor passages.
WITH
-- include: held
, changed AS (
    UPDATE memory m SET
        deleted = false,
        version = m.version + 1,
        last_edited_by = %(editor)s,
        updated_at = greatest(now(), m.updated_at),
        embedded_in = CASE WHEN %(complete)s::boolean THEN ARRAY(SELECT h.number FROM held h) ELSE '{}'::int[] END
    WHERE m.id = %(id)s::text AND m.version = %(expected)s::int AND m.deleted
        AND m.scope_number = %(scope)s::int AND
-- include: has_space
    RETURNING m.number, m.scope_number, m.version, m.created_at, m.updated_at, m.tags, m.embedded_in
)
-- include: new_entry
-- include: added_passages
-- include: trail

-- name: standing
-- Why a mutation changed nothing: the memory as it is now, whether the claim's key is taken, and whether the space of its
-- passages is there.
SELECT
    m.version, m.deleted, m.scope_number,
    EXISTS (
        SELECT FROM receipt r
        WHERE r.principal = %(claim_principal)s::text AND r.key = %(claim_key)s::text
            AND r.at > now() - %(kept)s::interval
    ),
    %(space)s::text IS NULL OR EXISTS (SELECT FROM space s WHERE s.id = %(space)s::text)
FROM (VALUES (1)) AS one LEFT JOIN memory m ON m.id = %(id)s::text

-- name: scope_number
SELECT s.number FROM scope s WHERE s.key = %(scope_key)s::text
