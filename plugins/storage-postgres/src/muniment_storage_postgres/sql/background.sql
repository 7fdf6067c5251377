-- Terms of another analyser, which are made anew in the background.

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
    SELECT t.term, t.frequency FROM unnest(%(terms)b::text[], %(frequencies)b::int[]) AS t (term, frequency)
), entered AS (
    INSERT INTO search_entry (scope, memory, length, analyser, terms, frequencies)
    SELECT
        c.scope_number, c.number, %(length)s::int, %(analyser)s, %(terms)b::text[], %(frequencies)b::int[]
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
