-- The registry of spaces, how a space is filled, and how it is dropped. A space's number is read by the statement that
-- uses it, since a space that is registered again after it was dropped has another one.
--
-- `embedded_in` takes few different values, one for each set of spaces in which some memories are complete. Each value is
-- looked up by itself in memory_embedded, so that memories that are complete cost nothing, however many there are.

-- name: wanted
-- The number of a space, null for one that is not registered.
wanted AS MATERIALIZED (
    SELECT (SELECT s.number FROM space s WHERE s.id = %(space)s::text) AS number
)

-- name: held
-- The space of a write. Its row cannot be deleted until the write is done; where a deletion came first it is not there.
held AS MATERIALIZED (
    SELECT s.number FROM space s WHERE s.id = %(space)s::text FOR KEY SHARE
)

-- name: has_space
(%(space)s::text IS NULL OR EXISTS (SELECT FROM held))

-- name: sets
-- The different values of embedded_in, each found by one look into the index.
sets AS (
    (SELECT m.embedded_in FROM memory m WHERE NOT m.deleted ORDER BY m.embedded_in LIMIT 1)
    UNION ALL
    SELECT n.embedded_in
    FROM sets s CROSS JOIN LATERAL (
        SELECT m.embedded_in FROM memory m
        WHERE NOT m.deleted AND m.embedded_in > s.embedded_in
        ORDER BY m.embedded_in LIMIT 1
    ) n
)

-- name: to_embed
-- What whoever embeds the memory m needs, with the passages that it has in the space already.
    m.id, m.version, m.content,
    ARRAY(
        SELECT p.hash FROM passage p
        WHERE p.scope = m.scope_number AND p.space = (SELECT w.number FROM wanted w) AND p.memory = m.number
    )

-- name: take_turn
-- One of the callers with the same key goes on, the others wait for the end of its transaction.
SELECT pg_advisory_xact_lock(hashtextextended('muniment ' || current_schema() || ' ' || %(turn)s::text, 0))

-- name: register_space
-- The test comes first because a conflict would use up a number at every start.
INSERT INTO space (
    id, provider, model, dimensions, pooling, normalised, passage_tokens, probes, embedder, registered_at, activated_at
)
SELECT
    %(space)s, %(provider)s, %(model)s, %(dimensions)s, %(pooling)s, %(normalised)s, %(passage_tokens)s,
    %(probes)s::vector[], NULL, clock_timestamp(), NULL
WHERE NOT EXISTS (SELECT FROM space s WHERE s.id = %(space)s::text)
ON CONFLICT (id) DO NOTHING

-- name: probes
SELECT s.probes FROM space s WHERE s.id = %(space)s::text

-- name: list_spaces
SELECT
    s.id, s.provider, s.model, s.dimensions, s.pooling, s.normalised, s.passage_tokens, s.embedder, s.registered_at,
    s.activated_at
FROM space s ORDER BY s.registered_at, s.id

-- name: space_number
SELECT s.number FROM space s WHERE s.id = %(space)s::text

-- name: activate_space
-- In its caller's turn. Later than every other time, so that this one is the active space whatever the clock does.
WITH latest AS MATERIALIZED (SELECT max(o.activated_at) AS at FROM space o)
UPDATE space s SET
    embedder = %(embedder)s,
    activated_at = greatest(clock_timestamp(), l.at + interval '1 microsecond')
FROM latest l
WHERE s.id = %(space)s::text AND (s.activated_at = l.at) IS NOT TRUE
RETURNING s.number

-- name: space_progress
WITH RECURSIVE
-- include: wanted
,
-- include: sets
, counts AS (
    SELECT s.embedded_in, f.count
    FROM sets s CROSS JOIN LATERAL (
        SELECT count(*) AS count FROM memory m WHERE NOT m.deleted AND m.embedded_in = s.embedded_in
    ) f
)
SELECT
    coalesce(sum(c.count) FILTER (WHERE (SELECT w.number FROM wanted w) = ANY(c.embedded_in)), 0)::bigint,
    coalesce(sum(c.count), 0)::bigint
FROM counts c

-- name: embeddings_pending
WITH RECURSIVE
-- include: wanted
,
-- include: sets
SELECT coalesce(sum(f.count), 0)::bigint
FROM sets s CROSS JOIN LATERAL (
    SELECT count(*) AS count FROM memory m WHERE NOT m.deleted AND m.embedded_in = s.embedded_in
) f
WHERE ((SELECT w.number FROM wanted w) = ANY(s.embedded_in)) IS NOT TRUE

-- name: unembedded
WITH RECURSIVE
-- include: wanted
,
-- include: sets
, waiting AS MATERIALIZED (
    SELECT f.id
    FROM sets s CROSS JOIN LATERAL (
        SELECT m.id FROM memory m
        WHERE NOT m.deleted AND m.embedded_in = s.embedded_in
        ORDER BY m.id LIMIT %(limit)s::int
    ) f
    WHERE ((SELECT w.number FROM wanted w) = ANY(s.embedded_in)) IS NOT TRUE
    ORDER BY f.id LIMIT %(limit)s::int
)
SELECT
-- include: to_embed
FROM waiting w JOIN memory m ON m.id = w.id
ORDER BY m.id

-- name: forget_leases
DELETE FROM embedding_lease l USING space s
WHERE s.id = %(space)s::text AND l.space = s.number AND l.until <= clock_timestamp()

-- name: lease_unembedded
-- In its caller's turn, so that nobody else leases in this space meanwhile, after `forget_leases`: what is left and of the
-- memory's version is somebody's. No row of a memory is locked.
WITH RECURSIVE
-- include: held
,
-- include: sets
, waiting AS MATERIALIZED (
    SELECT f.id, f.number, f.version, h.number AS space
    FROM held h CROSS JOIN sets s CROSS JOIN LATERAL (
        SELECT m.id, m.number, m.version FROM memory m
        WHERE NOT m.deleted AND m.embedded_in = s.embedded_in AND m.id > coalesce(%(after)s::text, '')
            AND NOT EXISTS (
                SELECT FROM embedding_lease l
                WHERE l.space = h.number AND l.memory = m.number AND l.version = m.version
            )
        ORDER BY m.id LIMIT %(limit)s::int
    ) f
    WHERE h.number <> ALL(s.embedded_in)
    ORDER BY f.id LIMIT %(limit)s::int
), leased AS (
    INSERT INTO embedding_lease (space, memory, version, until)
    SELECT w.space, w.number, w.version, clock_timestamp() + %(lease)s::interval FROM waiting w
    ON CONFLICT (space, memory) DO UPDATE SET version = excluded.version, until = excluded.until
)
SELECT
    m.id, m.version, m.content,
    ARRAY(SELECT p.hash FROM passage p WHERE p.scope = m.scope_number AND p.space = w.space AND p.memory = m.number)
FROM held h LEFT JOIN (waiting w JOIN memory m ON m.number = w.number) ON true
ORDER BY m.id

-- name: store_passages
-- The memory's row is updated in any case: its lock and its new row version are what a concurrent mutation sees. `seen` is
-- as in mutations.sql. Where passages that were to be kept are gone, a space that is being dropped lost them.
WITH
-- include: held
, seen AS MATERIALIZED (
    SELECT m.xmin AS row_version, m.number, m.scope_number, h.number AS space
    FROM memory m CROSS JOIN held h
    WHERE m.id = %(id)s::text AND m.version = %(expected)s::int AND NOT m.deleted
), whole AS MATERIALIZED (
    SELECT %(complete)s::boolean AND cardinality(%(kept_hashes)b::text[]) = count(p.hash) AS complete
    FROM seen s LEFT JOIN passage p ON p.scope = s.scope_number AND p.space = s.space AND p.memory = s.number
        AND p.hash = ANY(%(kept_hashes)b::text[])
), changed AS (
    UPDATE memory m SET embedded_in = ARRAY(
        SELECT e.number FROM unnest(m.embedded_in) AS e (number) WHERE e.number <> seen.space
        UNION ALL
        SELECT seen.space FROM whole WHERE whole.complete
        ORDER BY 1
    )
    FROM seen
    WHERE m.id = %(id)s::text AND m.xmin = seen.row_version
    RETURNING m.number, m.scope_number, seen.space
), told AS (
    UPDATE search_entry e SET changed =
-- include: this_transaction
    FROM changed c
    WHERE e.scope = c.scope_number AND e.memory = c.number
), dropped AS (
    DELETE FROM passage p USING changed c
    WHERE p.scope = c.scope_number AND p.space = c.space AND p.memory = c.number AND p.hash <> ALL(%(hashes)b::text[])
), added AS (
    INSERT INTO passage (scope, space, memory, hash, embedding)
    SELECT c.scope_number, c.space, c.number, v.hash, v.embedding
    FROM changed c CROSS JOIN unnest(%(fresh)b::text[], %(vectors)b::vector[]) AS v (hash, embedding)
    ON CONFLICT (scope, space, memory, hash) DO UPDATE SET embedding = excluded.embedding
), ended AS (
    DELETE FROM embedding_lease l USING changed c WHERE l.space = c.space AND l.memory = c.number
)
SELECT EXISTS (SELECT FROM changed), EXISTS (SELECT FROM seen), EXISTS (SELECT FROM held)

-- name: droppable_space
-- The number of a space, unless it is the active one.
SELECT s.number FROM space s
WHERE s.id = %(space)s::text
    AND (s.activated_at IS NULL OR s.activated_at < (SELECT max(o.activated_at) FROM space o))

-- name: inactive
-- A space, unless it is the active one, which was activated last.
inactive AS MATERIALIZED (
    SELECT s.number FROM space s
    WHERE s.number = %(number)s::int
        AND (s.activated_at IS NULL OR s.activated_at < (SELECT max(o.activated_at) FROM space o))
)

-- name: clear_space
-- Takes a space's passages from the memories of one page, by number; the last number of the page, null at the end.
-- The memories' rows are changed in any case, in order, as in `store_passages`. What is stored meanwhile may be passed over;
-- `delete_space` finds it.
WITH
-- include: inactive
, page AS MATERIALIZED (
    SELECT m.number, m.scope_number, m.embedded_in FROM memory m
    WHERE m.number > %(after)s::bigint AND EXISTS (SELECT FROM inactive)
    ORDER BY m.number LIMIT %(limit)s::int
), holding AS MATERIALIZED (
    SELECT m.number, m.scope_number FROM memory m
    WHERE m.number = ANY(ARRAY(
        SELECT p.number FROM page p
        WHERE %(number)s::int = ANY(p.embedded_in) OR EXISTS (
            SELECT FROM passage v
            WHERE v.scope = p.scope_number AND v.space = %(number)s::int AND v.memory = p.number
        )
    ))
    ORDER BY m.number
    FOR NO KEY UPDATE
), cleared AS (
    UPDATE memory m SET embedded_in = array_remove(m.embedded_in, %(number)s::int)
    FROM holding h WHERE m.number = h.number
), dropped AS (
    DELETE FROM passage v USING holding h
    WHERE v.scope = h.scope_number AND v.space = %(number)s::int AND v.memory = h.number
)
SELECT EXISTS (SELECT FROM inactive), (SELECT max(p.number) FROM page p)

-- name: lock_space
SELECT s.number FROM space s WHERE s.number = %(number)s::int FOR UPDATE

-- name: delete_space
-- After `lock_space`, which waited for whoever wrote into the space: nothing can come into it any more.
WITH
-- include: inactive
, remaining AS MATERIALIZED (
    SELECT EXISTS (
        SELECT FROM memory m WHERE NOT m.deleted AND %(number)s::int = ANY(m.embedded_in)
    ) OR EXISTS (
        SELECT FROM scope o CROSS JOIN LATERAL (
            SELECT FROM passage p WHERE p.scope = o.number AND p.space = %(number)s::int LIMIT 1
        ) p
    ) AS some
), deleted AS (
    DELETE FROM space s USING inactive i CROSS JOIN remaining r WHERE s.number = i.number AND NOT r.some
    RETURNING s.number
), ended AS (
    DELETE FROM embedding_lease l USING deleted d WHERE l.space = d.number
), forgotten AS (
    DELETE FROM approximate a USING deleted d WHERE a.space = d.number
)
SELECT EXISTS (SELECT FROM inactive), EXISTS (SELECT FROM deleted)
