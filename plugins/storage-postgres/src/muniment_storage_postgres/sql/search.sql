-- Search, in one snapshot: the readable scopes, what the rankers need, the candidates' ids, the page. BM25 and the order are
-- muniment.ranking's.
--
-- The scopes' numbers are parameters of what follows, so that PostgreSQL opens only their partitions. Numbers of thousands
-- of memories leave the server as one binary array, which costs a fifth of as many rows; where there are two numbers of
-- each, the memory is in the upper bits and the other in the lower 20.

-- name: scopes
-- The readable scopes that have had a memory, whether the selector takes them, the number of the query's space, whether the
-- scope has outgrown exact search there, the oldest transaction that this snapshot may not have seen, and the file that
-- memories are in, which is another one after a dump was restored.
WITH
-- include: readable
,
-- include: wanted
SELECT
    s.number,
    (%(scope_key)s::text IS NULL OR r.scope_key = %(scope_key)s::text)
        AND (%(scope)s::text IS NULL OR r.scope = %(scope)s::text),
    (SELECT w.number FROM wanted w),
    EXISTS (SELECT FROM approximate a WHERE a.space = (SELECT w.number FROM wanted w) AND a.scope = s.number),
    pg_snapshot_xmin(pg_current_snapshot())::text::bigint,
    pg_relation_filenode('memory'::regclass)::bigint
FROM readable r CROSS JOIN LATERAL (SELECT o.number FROM scope o WHERE o.key = r.scope_key) s

-- name: holders
-- Place 0, for each scope: every live memory with its length, whether or not the selector takes it, since the statistics
-- count them all, and the batch that its postings are in. Place 1 and on: who held each key, as batches of postings have it,
-- and of each batch its number and how many. Place -1, for each scope: the keys of the memories that are in no batch, and of
-- each memory its number and how many.
SELECT
    0 AS place, e.scope AS scope, array_send(array_agg((e.memory << 20) | e.length)) AS packed,
    array_send(array_agg(e.batch)) AS beside
FROM search_entry e WHERE e.scope = ANY(%(held)s::int[])
GROUP BY e.scope
UNION ALL
SELECT
    k.place::int, NULL, string_agg(p.holders, ''),
    array_send(array_agg(p.batch::bigint << 20 | octet_length(p.holders) / 8))
FROM unnest(%(keys)s::bigint[]) WITH ORDINALITY AS k (key, place)
CROSS JOIN LATERAL (
    SELECT p.batch, p.holders FROM posting p WHERE p.scope = ANY(%(held)s::int[]) AND p.key = k.key
) p
GROUP BY k.place
UNION ALL
SELECT
    -1, k.scope, string_agg(k.terms || k.tags, ''),
    array_send(array_agg(k.memory << 20 | (octet_length(k.terms) + octet_length(k.tags)) / 8))
FROM search_keys k
WHERE k.scope = ANY(%(held)s::int[]) AND k.unsettled = ANY(%(held)s::int[]) AND %(keys)s::bigint[] <> '{}'
GROUP BY k.scope

-- name: changes
-- What has become of a scope of which something is kept: how many live memories it has; of those that were changed `since`,
-- each one's length, how many keys it has, and all keys; and their passages in a space. What
-- bears a transaction that this snapshot cannot have seen came with a dump from another server. Sent to the scope's partition;
-- with that transaction as a query PostgreSQL sees that the range is narrow whatever the parameters, and plans once.
SELECT
    (SELECT count(*) FROM search_entry e WHERE e.scope = %(number)s::int),
    w.memories, w.counts, w.keys, v.memories, v.vectors
FROM (
    SELECT
        array_send(array_agg((e.memory << 20) | e.length)) AS memories,
        array_send(array_agg((octet_length(k.terms) + octet_length(k.tags)) / 8)) AS counts,
        string_agg(k.terms || k.tags, '') AS keys
    FROM search_entry e
    JOIN search_keys k ON k.scope = e.scope AND k.memory = e.memory
    WHERE e.scope = %(number)s::int AND e.changed >= %(since)s::bigint
        AND e.changed < (SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint)
) w CROSS JOIN (
    SELECT array_send(array_agg(p.memory)) AS memories, string_agg(vector_send(p.embedding), '') AS vectors
    FROM search_entry e
    JOIN passage p ON p.scope = e.scope AND p.memory = e.memory
    WHERE e.scope = %(number)s::int AND e.changed >= %(since)s::bigint
        AND e.changed < (SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint) AND p.space = %(space)s::int
) v

-- name: words
-- Every live memory of some scopes: each one's length, how many keys it has, and all keys; and the partition of each scope.
SELECT
    e.scope, array_send(array_agg((e.memory << 20) | e.length)),
    array_send(array_agg((octet_length(k.terms) + octet_length(k.tags)) / 8)), string_agg(k.terms || k.tags, ''),
    substring(min(e.tableoid)::regclass::text FROM '[0-9]+$')::int
FROM search_entry e JOIN search_keys k ON k.scope = e.scope AND k.memory = e.memory
WHERE e.scope = ANY(%(words_read)s::int[]) AND k.scope = ANY(%(words_read)s::int[])
GROUP BY e.scope

-- name: live
-- The live memories of a scope.
SELECT array_send(coalesce(array_agg(e.memory), '{}')) FROM search_entry e WHERE e.scope = %(number)s::int

-- name: passages
-- Every passage of some scopes.
SELECT p.scope, array_send(array_agg(p.memory)), string_agg(vector_send(p.embedding), '')
FROM passage p WHERE p.scope = ANY(%(vectors_read)s::int[]) AND p.space = %(space)s::int
GROUP BY p.scope

-- name: scanned
-- Every passage of some scopes as two arrays in one order, whose it is and how far; no index can approximate it.
SELECT array_send(d.memories), array_send(d.distances)
FROM (
    SELECT array_agg(p.memory) AS memories, array_agg(p.embedding <=> %(vector)s::vector) AS distances
    FROM passage p
    WHERE p.scope = ANY(%(scanned)s::int[]) AND p.space = %(space)s::int AND %(vector)s::vector IS NOT NULL
) d
WHERE d.memories IS NOT NULL

-- name: compared
-- The same for every passage of some memories in scopes that are not scanned.
SELECT array_send(d.memories), array_send(d.distances)
FROM (
    SELECT array_agg(p.memory) AS memories, array_agg(p.embedding <=> %(vector)s::vector) AS distances
    FROM passage p
    WHERE p.scope = ANY(%(outgrown)s::int[]) AND p.space = %(space)s::int
        AND p.memory = ANY(%(numbers)s::bigint[])
) d
WHERE d.memories IS NOT NULL

-- name: ids
SELECT m.number, m.id FROM memory m WHERE m.number = ANY(%(numbers)s::bigint[])

-- name: contents
SELECT m.id, m.scope, m.project_id, m.content, m.tags, m.version, m.last_edited_by, m.created_at, m.updated_at
FROM memory m WHERE m.id = ANY(%(ids)s::text[])
