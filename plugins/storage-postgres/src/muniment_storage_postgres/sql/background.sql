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
), entered AS (
    UPDATE search_entry e SET
        length = %(length)s::int, batch = 0, analyser = %(analyser)s, changed =
-- include: this_transaction
    FROM changed c
    WHERE e.scope = c.scope_number AND e.memory = c.number
    RETURNING e.scope, e.memory
), keyed AS (
    UPDATE search_keys k SET unsettled = k.scope, terms = %(terms)s FROM entered e
    WHERE k.scope = e.scope AND k.memory = e.memory
)
SELECT count(*) FROM changed
