-- Envelopes, their sections and exchanges. Each is one statement, so all of it is applied or nothing.
--
-- A parameter in a SELECT of its own, (SELECT %(x)s), is one whose value the planner must not see: it then finds that a
-- plan made for the values is no better than the general one, and stops planning at every call, which costs more than
-- to run the statement.
--
-- Locks are taken in this order, everywhere: events, sections by name, envelopes by key, receipts. Nobody waits for one
-- that comes earlier while holding a later one, so there is no deadlock.

-- name: register_agent
INSERT INTO envelope AS e (agent_name, instance_id, revision, last_seen, oldest, pods)
VALUES (%(agent)s, %(instance)s, 0, 0, 1, %(pods)s::text[])
ON CONFLICT (agent_name, instance_id) DO UPDATE SET pods = excluded.pods

-- name: load_envelope
-- The envelope's row first, whether there is one or not, then one for each section; all from one snapshot.
SELECT
    e.revision, e.last_seen, e.sync_key, e.pods, now(),
    CASE WHEN %(exchanges)s::boolean THEN (
        SELECT json_agg(
            json_build_array(
                x.revision, x.at, x.kind, x.surface_pod_id, x.surface_label, x.peers, x.takeaway, x.size
            )
            ORDER BY x.revision DESC
        )
        FROM exchange x
        WHERE x.agent_name = %(agent)s::text AND x.instance_id = %(instance)s::text AND x.revision >= e.oldest
    ) END,
    NULL::text, NULL::text, NULL::text, NULL::int, NULL::int, NULL::timestamptz
FROM (VALUES (1)) AS one
LEFT JOIN envelope e ON e.agent_name = %(agent)s::text AND e.instance_id = %(instance)s::text
UNION ALL
SELECT NULL, NULL, NULL, NULL, NULL, NULL, s.name, s.value, s.visibility, s.version, s.byte_size, s.updated_at
FROM section s
WHERE s.agent_name = %(agent)s::text AND s.instance_id = %(instance)s::text
    AND (%(sections)s::text[] IS NULL OR s.name = ANY(%(sections)s::text[]))

-- name: write_sections
-- `held` waits for whoever writes the same sections and then shows their newest versions, which this statement's
-- snapshot may be too old for; so the updates below must not look at the version again. Two first writes at once meet
-- in section_pkey instead, which undoes the second one whole.
WITH sent AS MATERIALIZED (
    SELECT *
    FROM unnest(
        %(names)s::text[], %(values)s::text[], %(visibilities)s::text[], %(sizes)s::int[], %(expected)s::int[]
    ) WITH ORDINALITY AS s (name, value, visibility, byte_size, expected, place)
), held AS MATERIALIZED (
    SELECT s.name, s.version
    FROM section s
    WHERE s.agent_name = %(agent)s::text AND s.instance_id = %(instance)s::text AND s.name = ANY(%(names)s::text[])
    ORDER BY s.name
    FOR NO KEY UPDATE
), stale AS MATERIALIZED (
    SELECT coalesce(h.version, 0) AS version
    FROM sent s LEFT JOIN held h ON h.name = s.name
    WHERE coalesce(h.version, 0) <> s.expected
    ORDER BY s.place LIMIT 1
), enveloped AS (
    INSERT INTO envelope AS e (agent_name, instance_id, revision, last_seen, oldest, pods, sync_key)
    SELECT %(agent)s, %(instance)s, 0, 0, 1, '{}', %(sync_key)s::text WHERE NOT EXISTS (SELECT FROM stale)
    ON CONFLICT (agent_name, instance_id) DO UPDATE SET
        sync_key = CASE WHEN %(keeps_sync_key)s::boolean THEN e.sync_key ELSE excluded.sync_key END
    RETURNING 1
), changed AS MATERIALIZED (
    SELECT count(*) AS count, clock_timestamp() AS at FROM enveloped
), updated AS (
    UPDATE section t SET
        value = s.value,
        visibility = s.visibility,
        version = s.expected + 1,
        byte_size = s.byte_size,
        updated_at = greatest(c.at, t.updated_at)
    FROM sent s CROSS JOIN changed c
    WHERE c.count > 0 AND s.expected > 0
        AND t.agent_name = %(agent)s::text AND t.instance_id = %(instance)s::text AND t.name = s.name
), inserted AS (
    INSERT INTO section (agent_name, instance_id, name, value, visibility, version, byte_size, updated_at)
    SELECT %(agent)s, %(instance)s, s.name, s.value, s.visibility, 1, s.byte_size, c.at
    FROM sent s CROSS JOIN changed c
    WHERE c.count > 0 AND s.expected = 0
)
SELECT c.at, (SELECT version FROM stale) FROM changed c

-- name: section_versions
SELECT s.name, s.version
FROM section s
WHERE s.agent_name = %(agent)s::text AND s.instance_id = %(instance)s::text AND s.name = ANY(%(names)s::text[])

-- name: append_exchange
-- `raised` locks the envelopes in the order of their keys and takes each one's newest revision. Which entries the cap
-- leaves is decided there too, as `oldest`, which every read obeys. Deleting the others only clears away, and by this
-- statement's snapshot, which may be older than the lock: `missed` says that the entry that left the cap was not
-- visible to it. `happened` is complete, and its time taken, only when all envelopes are locked. The LIMIT is more than
-- there ever are, one or two; it tells the planner that they are few.
WITH sent AS MATERIALIZED (
    SELECT
        s.*,
        (
            SELECT k.revision FROM exchange_key k
            WHERE k.agent_name = s.agent AND k.instance_id = s.instance AND k.dedupe_key = (SELECT %(dedupe_key)s::text)
        ) AS used
    FROM json_to_recordset((SELECT %(entries)s::json)) AS s (
        place int, agent text, instance text, kind text, surface_pod_id text, surface_label text, peers text[],
        takeaway text, size int
    )
    LIMIT 8
), raised AS (
    INSERT INTO envelope AS e (agent_name, instance_id, revision, last_seen, oldest, pods)
    SELECT s.agent, s.instance, 1, 0, 1, '{}'
    FROM sent s
    WHERE NOT EXISTS (SELECT FROM sent o WHERE o.used IS NOT NULL)
    ORDER BY s.agent COLLATE "C", s.instance COLLATE "C"
    ON CONFLICT (agent_name, instance_id) DO UPDATE SET
        revision = e.revision + 1, oldest = greatest(e.oldest, e.revision + 2 - %(cap)s::int)
    RETURNING e.agent_name, e.instance_id, e.revision, e.oldest
), happened AS MATERIALIZED (
    SELECT count(*) AS count, clock_timestamp() AS at FROM raised
), stored AS (
    INSERT INTO exchange (
        agent_name, instance_id, revision, at, kind, surface_pod_id, surface_label, peers, takeaway, size
    )
    SELECT
        r.agent_name, r.instance_id, r.revision, h.at, s.kind, s.surface_pod_id, s.surface_label,
        s.peers, s.takeaway, s.size
    FROM happened h CROSS JOIN raised r JOIN sent s ON s.agent = r.agent_name AND s.instance = r.instance_id
), keyed AS (
    INSERT INTO exchange_key (agent_name, instance_id, dedupe_key, revision)
    SELECT r.agent_name, r.instance_id, %(dedupe_key)s, r.revision FROM happened h CROSS JOIN raised r
), trimmed AS (
    DELETE FROM exchange x
    USING raised r
    WHERE x.agent_name = r.agent_name AND x.instance_id = r.instance_id AND x.revision < r.oldest
    RETURNING x.agent_name, x.instance_id, x.revision
)
-- once: kept_claim
SELECT
    coalesce(r.revision, s.used), r.revision IS NULL, h.at,
    r.revision > %(cap)s::int AND NOT EXISTS (
        SELECT FROM trimmed t
        WHERE t.agent_name = r.agent_name AND t.instance_id = r.instance_id AND t.revision = r.revision - %(cap)s::int
    ) AS missed
FROM sent s CROSS JOIN happened h
LEFT JOIN raised r ON r.agent_name = s.agent AND r.instance_id = s.instance
ORDER BY s.place

-- name: trim_exchanges
DELETE FROM exchange x
USING envelope e, json_to_recordset((SELECT %(entries)s::json)) AS s (agent text, instance text)
WHERE e.agent_name = s.agent AND e.instance_id = s.instance
    AND x.agent_name = e.agent_name AND x.instance_id = e.instance_id AND x.revision < e.oldest

-- name: raise_last_seen
INSERT INTO envelope AS e (agent_name, instance_id, revision, last_seen, oldest, pods)
VALUES (%(agent)s, %(instance)s, 0, %(revision)s::bigint, 1, '{}')
ON CONFLICT (agent_name, instance_id) DO UPDATE SET last_seen = greatest(e.last_seen, excluded.last_seen)
RETURNING e.last_seen
