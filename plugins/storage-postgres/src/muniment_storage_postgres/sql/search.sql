-- Search: the candidates of all three rankers in one statement. Scope keys, limits and the formulas' constants are
-- parameters; the formulas are those of muniment.ranking.
--
-- Each side table is read per readable scope: LATERAL with OFFSET 0 stays a nested loop, in which PostgreSQL opens only
-- the partition of that scope. Terms of a memory are one jsonb object from term to frequency, so that a lookup is a
-- binary search and a memory is one row to write.

-- name: candidates
WITH
-- include: readable
, within AS MATERIALIZED (
    SELECT
        r.scope_key,
        (%(scope_key)s::text IS NULL OR r.scope_key = %(scope_key)s::text)
            AND (%(scope)s::text IS NULL OR r.scope = %(scope)s::text) AS selected
    FROM readable r
), asked AS MATERIALIZED (
    SELECT q.term, q.weight, q.place
    FROM unnest(%(terms)s::text[], %(weights)s::float8[]) WITH ORDINALITY AS q (term, weight, place)
), entry AS MATERIALIZED (
    -- Every live memory that the audience reads, whether or not the selector takes it: the statistics count them all.
    SELECT
        e.memory_id, e.length, r.selected AND e.tags @> %(must_tags)s::text[] AS selected,
        CASE WHEN e.tags && %(tags)s::text[] THEN (
            SELECT count(DISTINCT t.tag) FROM unnest(e.tags) AS t (tag) WHERE t.tag = ANY(%(tags)s::text[])
        ) ELSE 0 END AS shared_tags
    FROM within r CROSS JOIN LATERAL (
        SELECT s.memory_id, s.length, s.tags FROM search_entry s WHERE s.scope_key = r.scope_key OFFSET 0
    ) e
), hit AS MATERIALIZED (
    -- Memory by memory: any other order of this join would copy every memory's terms first.
    SELECT h.memory_id, h.length, r.selected AND h.selected AS selected, h.place, h.frequency
    FROM within r CROSS JOIN LATERAL (
        SELECT s.memory_id, s.length, s.tags @> %(must_tags)s::text[] AS selected, t.place, t.frequency::float8
        FROM search_entry s CROSS JOIN LATERAL (
            SELECT q.place, s.terms ->> q.term AS frequency FROM asked q OFFSET 0
        ) t
        WHERE s.scope_key = r.scope_key AND t.frequency IS NOT NULL
        OFFSET 0
    ) h
), totals AS MATERIALIZED (
    SELECT count(*)::int AS documents, sum(e.length)::float8 / count(*) AS average_length FROM entry e
), rarity AS MATERIALIZED (
    SELECT
        q.place, q.weight, coalesce(f.documents, 0)::int AS frequency,
        ln(1 + (t.documents - coalesce(f.documents, 0) + 0.5::float8) / (coalesce(f.documents, 0) + 0.5::float8)) AS idf
    FROM asked q CROSS JOIN totals t LEFT JOIN (
        SELECT h.place, count(*) AS documents FROM hit h GROUP BY h.place
    ) f ON f.place = q.place
), words AS MATERIALIZED (
    -- Added in the order of the terms, as the core does, so that equal memories tie here exactly when they tie there.
    SELECT
        h.memory_id,
        sum(
            y.weight * y.idf * h.frequency * (%(k1)s::float8 + 1)
            / (h.frequency + %(k1)s::float8 * (
                1 - %(b)s::float8
                + %(b)s::float8 * CASE WHEN t.average_length > 0 THEN h.length / t.average_length ELSE 1 END
            ))
            ORDER BY h.place
        ) AS score
    FROM hit h JOIN rarity y ON y.place = h.place CROSS JOIN totals t
    WHERE h.selected
    GROUP BY h.memory_id
), meaning AS MATERIALIZED (
    -- The distance is computed before anything is ordered, so that no plan can put an approximate index in its place.
    SELECT d.memory_id, max(1 - d.distance) AS score
    FROM within r CROSS JOIN LATERAL (
        SELECT p.memory_id, p.embedding <=> %(vector)s::vector AS distance
        FROM passage p
        WHERE p.scope_key = r.scope_key AND p.space = %(space)s::int
        OFFSET 0
    ) d
    WHERE r.selected AND d.distance <> 'NaN' AND (
        cardinality(%(must_tags)s::text[]) = 0
        OR d.memory_id IN (SELECT e.memory_id FROM entry e WHERE e.selected)
    )
    GROUP BY d.memory_id
), pool AS MATERIALIZED (
    (SELECT m.memory_id FROM meaning m ORDER BY m.score DESC, m.memory_id LIMIT %(pool)s::int)
    UNION
    (SELECT w.memory_id FROM words w WHERE w.score > 0 ORDER BY w.score DESC, w.memory_id LIMIT %(pool)s::int)
    UNION
    (
        SELECT e.memory_id FROM entry e WHERE e.selected AND e.shared_tags > 0
        ORDER BY e.shared_tags DESC, e.memory_id LIMIT %(pool)s::int
    )
)
SELECT
    c.memory_id, m.score, w.score, e.shared_tags::int, t.documents, t.average_length,
    ARRAY(SELECT y.frequency FROM rarity y ORDER BY y.place)
FROM pool c
JOIN entry e ON e.memory_id = c.memory_id
LEFT JOIN meaning m ON m.memory_id = c.memory_id
LEFT JOIN words w ON w.memory_id = c.memory_id
CROSS JOIN totals t

-- name: contents
SELECT m.id, m.scope, m.project_id, m.content, m.tags, m.version, m.last_edited_by, m.created_at, m.updated_at
FROM memory m WHERE m.id = ANY(%(ids)s::text[])
