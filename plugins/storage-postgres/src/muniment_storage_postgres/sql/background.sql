-- What is made in the background: the vectors of a space, and terms of another analyser made anew.

-- name: space_number
SELECT s.number FROM space s WHERE s.id = %(space_id)s::text

-- name: register_space
-- The test comes first because a conflict would use up a number at every start.
INSERT INTO space (id, provider, model, dimensions, pooling, normalised, passage_tokens, probes)
SELECT
    %(space_id)s, %(provider)s, %(model)s, %(dimensions)s, %(pooling)s, %(normalised)s, %(passage_tokens)s,
    %(probes)s::vector[]
WHERE NOT EXISTS (SELECT FROM space s WHERE s.id = %(space_id)s::text)
ON CONFLICT (id) DO NOTHING

-- name: probes
SELECT s.probes FROM space s WHERE s.id = %(space_id)s::text

-- name: unembedded
SELECT
    m.id, m.version, m.content,
    ARRAY(
        SELECT p.hash FROM passage p
        WHERE p.scope_key = m.scope_key AND p.space = %(space)s::int AND p.memory_id = m.id
    )
FROM memory m
WHERE NOT m.deleted AND (%(space)s::int = ANY(m.embedded_in)) IS NOT TRUE
ORDER BY m.id
LIMIT %(limit)s::int

-- name: store_passages
-- The memory's row is updated in any case: its lock and its new row version are what a concurrent mutation sees.
WITH changed AS (
    UPDATE memory m SET embedded_in = array_remove(m.embedded_in, %(space)s::int) || %(embedded_in)s::int[]
    WHERE m.id = %(id)s::text AND m.version = %(expected)s::int AND NOT m.deleted
    RETURNING m.id, m.scope_key
), dropped AS (
    DELETE FROM passage p USING changed c
    WHERE p.scope_key = c.scope_key AND p.space = %(space)s::int AND p.memory_id = c.id
        AND p.hash <> ALL(%(hashes)s::text[])
), added AS (
    INSERT INTO passage (scope_key, space, memory_id, hash, embedding)
    SELECT c.scope_key, %(space)s::int, c.id, v.hash, v.embedding
    FROM changed c CROSS JOIN unnest(%(fresh)s::text[], %(vectors)s::vector[]) AS v (hash, embedding)
    ON CONFLICT (scope_key, space, memory_id, hash) DO UPDATE SET embedding = excluded.embedding
)
SELECT count(*) FROM changed

-- name: outdated_terms
-- Two ranges instead of an inequality, so that the index on analyser answers.
SELECT m.id, m.version, m.content
FROM search_entry e JOIN memory m ON m.id = e.memory_id
WHERE (e.analyser < %(analyser)s::text OR e.analyser > %(analyser)s::text) AND NOT m.deleted
ORDER BY m.id
LIMIT %(limit)s::int

-- name: store_terms
WITH changed AS (
    UPDATE memory m SET embedded_in = m.embedded_in
    WHERE m.id = %(id)s::text AND m.version = %(expected)s::int AND NOT m.deleted
    RETURNING m.id, m.scope_key, m.tags
), entered AS (
    INSERT INTO search_entry (scope_key, memory_id, analyser, length, terms, tags)
    SELECT c.scope_key, c.id, %(analyser)s, %(length)s, %(terms)s::jsonb, c.tags FROM changed c
    ON CONFLICT (scope_key, memory_id) DO UPDATE SET
        analyser = excluded.analyser, length = excluded.length, terms = excluded.terms
)
SELECT count(*) FROM changed
