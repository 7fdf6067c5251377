-- Upkeep: which approximate indexes there are and who is searched by one. One process at a time does it; the statements
-- that name a partition or an index are made by ``approximate``.

-- name: try_upkeep
-- The lock is the connection's, so that it ends with the process.
SELECT pg_try_advisory_lock(hashtextextended('muniment ' || current_schema() || ' upkeep', 0))

-- name: for_upkeep
-- A build ends with the process that wanted it, whatever limits there are for other statements, and leaves the other
-- processors to those who search.
SELECT
    set_config('statement_timeout', '0', false),
    set_config('lock_timeout', '0', false),
    set_config('client_connection_check_interval', '5s', false),
    set_config('max_parallel_maintenance_workers', '0', false)

-- name: grant_memory
-- For what is built on this connection; never less than the server gives anyway.
SELECT set_config('maintenance_work_mem', greatest(s.setting::int, %(kilobytes)s::int)::text || 'kB', false)
FROM pg_settings s WHERE s.name = 'maintenance_work_mem'

-- name: partitions
SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
WHERE i.inhparent = 'passage'::regclass ORDER BY c.relname

-- name: indexes_of_spaces
-- The indexes of the partitions that are no part of one of `passage`, and whether each is whole.
SELECT c.relname, x.indisvalid AND x.indisready
FROM pg_inherits i JOIN pg_index x ON x.indrelid = i.inhrelid JOIN pg_class c ON c.oid = x.indexrelid
WHERE i.inhparent = 'passage'::regclass AND NOT c.relispartition
ORDER BY c.relname

-- name: numbered_spaces
SELECT s.number, s.id, s.dimensions FROM space s ORDER BY s.number

-- name: approximate_scopes
SELECT a.space, a.scope FROM approximate a

-- name: add_approximate
INSERT INTO approximate (space, scope, passages) VALUES (%(space)s, %(scope)s, %(passages)s)
ON CONFLICT (space, scope) DO UPDATE SET passages = excluded.passages

-- name: remove_approximate
DELETE FROM approximate a WHERE a.space = %(space)s::int AND a.scope = ANY(%(scopes)s::int[])

-- name: forget_approximate
DELETE FROM approximate a WHERE a.space = %(number)s::int

-- name: unsorted
-- The partitions of passages in which one owner's rows lie apart, as the last analysis saw it, with the index to sort them
-- by; those of which a rewrite would have to make an approximate index anew are left out.
SELECT c.relname, k.relname
FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
JOIN pg_stats s ON s.schemaname = current_schema() AND s.tablename = c.relname AND s.attname = 'scope'
JOIN pg_index x ON x.indrelid = c.oid AND x.indisprimary JOIN pg_class k ON k.oid = x.indexrelid
WHERE i.inhparent = 'passage'::regclass AND abs(s.correlation) < 0.9
    AND pg_relation_size(c.oid) / current_setting('block_size')::int BETWEEN %(small)s::int AND %(large)s::int
    AND NOT EXISTS (
        SELECT FROM pg_index n JOIN pg_class o ON o.oid = n.indexrelid WHERE n.indrelid = c.oid AND NOT o.relispartition
    )
ORDER BY c.relname

-- name: out_of_order
-- The partitions of the side tables of which many pages were written since they were last vacuumed: an index alone does not
-- answer for these; and what share of the pages they are, in percent.
SELECT c.relname, 100 - 100 * c.relallvisible / (pg_relation_size(c.oid) / current_setting('block_size')::int)
FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
WHERE i.inhparent IN ('passage'::regclass, 'search_entry'::regclass)
    AND pg_relation_size(c.oid) / current_setting('block_size')::int > %(small)s::int
    AND c.relallvisible < 0.8 * pg_relation_size(c.oid) / current_setting('block_size')::int
ORDER BY c.relname

-- name: unsettled
-- The scopes of which many memories are in no batch of postings.
SELECT k.unsettled FROM search_keys k WHERE k.unsettled IS NOT NULL
GROUP BY k.unsettled HAVING count(*) >= %(least)s::int

-- name: batched
SELECT DISTINCT b.scope FROM posting_batch b

-- name: to_settle
-- Memories of a scope that are in no batch, the newest first. Who is being changed is left for later.
SELECT e.memory FROM search_entry e WHERE e.scope = %(scope)s::int AND e.batch = 0
ORDER BY e.memory DESC LIMIT %(limit)s::int FOR UPDATE SKIP LOCKED

-- name: keys_of
-- What these memories are found by.
SELECT k.memory, k.terms || k.tags FROM search_keys k
WHERE k.scope = %(scope)s::int AND k.memory = ANY(%(memories)s::bigint[])
ORDER BY k.memory

-- name: settle
-- Put these memories into a batch; its postings are pieces of one string, in the order of their keys.
WITH batch AS (
    INSERT INTO posting_batch (scope, memories) VALUES (%(scope)s, cardinality(%(memories)s::bigint[])) RETURNING number
), entered AS (
    UPDATE search_entry e SET batch = b.number FROM batch b
    WHERE e.scope = %(scope)s::int AND e.memory = ANY(%(memories)s::bigint[])
), keyed AS (
    UPDATE search_keys k SET unsettled = NULL WHERE k.scope = %(scope)s::int AND k.memory = ANY(%(memories)s::bigint[])
)
INSERT INTO posting (scope, batch, key, holders)
SELECT %(scope)s::int, b.number, p.key, substring(%(holders)b::bytea FROM p.start::int FOR p.size::int)
FROM batch b CROSS JOIN unnest(%(keys)s::bigint[], %(starts)s::bigint[], %(sizes)s::bigint[]) AS p (key, start, size)

-- name: dissolve
-- Take back the batches of a scope of whose memories fewer than half are still in them; how many.
WITH held AS (
    SELECT e.batch, count(*) AS memories FROM search_entry e WHERE e.scope = %(scope)s::int GROUP BY e.batch
), poor AS (
    DELETE FROM posting_batch b
    WHERE b.scope = %(scope)s::int
        AND b.memories > 2 * coalesce((SELECT h.memories FROM held h WHERE h.batch = b.number), 0)
    RETURNING b.number
), freed AS (
    UPDATE search_entry e SET batch = 0
    WHERE e.scope = %(scope)s::int AND e.batch = ANY(ARRAY(SELECT p.number FROM poor p))
    RETURNING e.memory
), keyed AS (
    UPDATE search_keys k SET unsettled = k.scope FROM freed f WHERE k.scope = %(scope)s::int AND k.memory = f.memory
), gone AS (
    DELETE FROM posting p
    WHERE p.scope = %(scope)s::int AND p.batch = ANY(ARRAY(SELECT o.number FROM poor o))
)
SELECT count(*) FROM poor
