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
-- Two ranges instead of an inequality, so that the index on embedded_in leaves out the many that are complete in this
-- space alone.
WITH waiting AS MATERIALIZED (
    SELECT m.id FROM memory m
    WHERE NOT m.deleted AND (m.embedded_in < ARRAY[%(space)s::int] OR m.embedded_in > ARRAY[%(space)s::int])
        AND (%(space)s::int = ANY(m.embedded_in)) IS NOT TRUE
    LIMIT %(limit)s::int
)
SELECT
    m.id, m.version, m.content,
    ARRAY(
        SELECT p.hash FROM passage p
        WHERE p.scope = m.scope_number AND p.space = %(space)s::int AND p.memory = m.number
    )
FROM waiting w JOIN memory m ON m.id = w.id

-- name: unembedded_anywhere
-- Of a space that is not registered: every live memory waits.
SELECT m.id, m.version, m.content, '{}'::text[] FROM memory m WHERE NOT m.deleted LIMIT %(limit)s::int

-- name: embeddings_pending
-- As many as `unembedded` finds, by the same two ranges.
SELECT count(*) FROM memory m
WHERE NOT m.deleted AND (m.embedded_in < ARRAY[%(space)s::int] OR m.embedded_in > ARRAY[%(space)s::int])
    AND (%(space)s::int = ANY(m.embedded_in)) IS NOT TRUE

-- name: embeddings_pending_anywhere
SELECT count(*) FROM memory m WHERE NOT m.deleted

-- name: store_passages
-- The memory's row is updated in any case: its lock and its new row version are what a concurrent mutation sees.
WITH changed AS (
    UPDATE memory m SET embedded_in = array_remove(m.embedded_in, %(space)s::int) || %(embedded_in)s::int[]
    WHERE m.id = %(id)s::text AND m.version = %(expected)s::int AND NOT m.deleted
    RETURNING m.number, m.scope_number
), dropped AS (
    DELETE FROM passage p USING changed c
    WHERE p.scope = c.scope_number AND p.space = %(space)s::int AND p.memory = c.number
        AND p.hash <> ALL(%(hashes)s::text[])
), added AS (
    INSERT INTO passage (scope, space, memory, hash, embedding)
    SELECT c.scope_number, %(space)s::int, c.number, v.hash, v.embedding
    FROM changed c CROSS JOIN unnest(%(fresh)s::text[], %(vectors)s::vector[]) AS v (hash, embedding)
    ON CONFLICT (scope, space, memory, hash) DO UPDATE SET embedding = excluded.embedding
)
SELECT count(*) FROM changed

-- name: outdated_terms
-- Two ranges instead of an inequality, so that the index on analyser answers.
WITH outdated AS MATERIALIZED (
    SELECT e.memory FROM search_entry e
    WHERE e.analyser < %(analyser)s::text OR e.analyser > %(analyser)s::text
    LIMIT %(limit)s::int
)
SELECT m.id, m.version, m.content FROM outdated o JOIN memory m ON m.number = o.memory WHERE NOT m.deleted

-- name: store_terms
WITH changed AS (
    UPDATE memory m SET embedded_in = m.embedded_in
    WHERE m.id = %(id)s::text AND m.version = %(expected)s::int AND NOT m.deleted
    RETURNING m.number, m.scope_number
), old AS MATERIALIZED (
    SELECT t.term, t.frequency
    FROM changed c JOIN search_entry e ON e.scope = c.scope_number AND e.memory = c.number
    CROSS JOIN unnest(e.terms, e.frequencies) AS t (term, frequency)
), new AS MATERIALIZED (
    SELECT t.term, t.frequency FROM unnest(%(terms)s::text[], %(frequencies)s::int[]) AS t (term, frequency)
), entered AS (
    INSERT INTO search_entry (scope, memory, length, analyser, terms, frequencies)
    SELECT
        c.scope_number, c.number, %(length)s::int, %(analyser)s, %(terms)s::text[], %(frequencies)s::int[]
    FROM changed c
    ON CONFLICT (scope, memory) DO UPDATE SET
        length = excluded.length, analyser = excluded.analyser, terms = excluded.terms,
        frequencies = excluded.frequencies
), unposted AS (
    DELETE FROM posting p USING changed c
    WHERE p.scope = c.scope_number AND p.memory = c.number
        AND p.term = ANY(ARRAY(SELECT o.term FROM old o EXCEPT SELECT n.term FROM new n))
), posted AS (
    INSERT INTO posting (memory, scope, frequency, term)
    SELECT c.number, c.scope_number, f.frequency, f.term
    FROM changed c CROSS JOIN (
        SELECT n.term, n.frequency FROM new n EXCEPT SELECT o.term, o.frequency FROM old o
    ) f
    ORDER BY f.term
    ON CONFLICT (scope, term, memory) DO UPDATE SET frequency = excluded.frequency
)
SELECT count(*) FROM changed
