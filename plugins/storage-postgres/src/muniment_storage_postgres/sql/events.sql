-- Events: a queue per agent. Each is one statement, so all of it is applied or nothing.
--
-- An event's number is drawn as it is stored, so two that are enqueued one after the other have numbers in that order.
-- Every now() is the database's, taken as the statement arrives.

-- name: enqueue_event
WITH stored AS (
    INSERT INTO event (agent_name, instance_id, id, payload, enqueued_at, acked, attempts)
    VALUES (%(agent)s, %(instance)s, %(id)s, %(payload)s, now(), false, 0)
    RETURNING enqueued_at
), happened AS (
    SELECT 1 AS count, s.enqueued_at AS at FROM stored s
)
-- once: kept_claim
SELECT h.at FROM happened h

-- name: claim_events
-- Envelope and entries are read by the one snapshot of this statement, so they need no lock: what an append, an
-- acknowledgement or a read commits meanwhile is in all of it or in none. `delivered` is what the snapshot carries, and
-- last seen never falls, so a later acknowledgement raises it to what was carried, or not at all. The digest is
-- `muniment.digests.choose`: the running sum begins with a bracket, each entry brings a comma or the other bracket.
--
-- While no lease has run out, `next` walks the pending events in order and stops at the first that are free. Otherwise
-- `oldest` merges both kinds, from places (ctid) that it read without locks, so that no more rows are locked than are
-- taken: an event that somebody changed meanwhile has another place and is passed over. What is dead or acknowledged is
-- not even looked at.
WITH seen AS MATERIALIZED (
    SELECT e.revision, e.last_seen, greatest(e.last_seen, e.oldest - 1) AS floor
    FROM envelope e
    WHERE e.agent_name = (SELECT %(agent)s::text) AND e.instance_id = (SELECT %(instance)s::text)
), unseen AS MATERIALIZED (
    SELECT x.*, 1 + sum(x.size + 1) OVER (ORDER BY x.revision) AS total
    FROM exchange x
    WHERE x.agent_name = (SELECT %(agent)s::text) AND x.instance_id = (SELECT %(instance)s::text)
        AND x.revision > (SELECT s.floor FROM seen s WHERE s.revision > s.floor)
), digest AS MATERIALIZED (
    SELECT
        count(*) AS unseen,
        max(u.revision) FILTER (WHERE u.total <= (SELECT %(digest_bytes)s::int)) AS delivered,
        json_agg(
            json_build_array(u.revision, u.at, u.kind, u.surface_pod_id, u.surface_label, u.peers, u.takeaway)
            ORDER BY u.revision
        ) FILTER (WHERE u.total <= (SELECT %(digest_bytes)s::int)) AS entries
    FROM unseen u
), lapsed AS MATERIALIZED (
    SELECT e.ctid AS place, e.number FROM event e
    WHERE e.agent_name = (SELECT %(agent)s::text) AND e.instance_id = (SELECT %(instance)s::text)
        AND e.token IS NOT NULL AND NOT e.acked
        AND e.attempts < (SELECT %(attempts_max)s::int) AND e.lease_until <= now()
), next AS (
    SELECT e.ctid AS place, e.number FROM event e
    WHERE e.agent_name = (SELECT %(agent)s::text) AND e.instance_id = (SELECT %(instance)s::text) AND e.token IS NULL
        AND NOT EXISTS (SELECT FROM lapsed)
    ORDER BY e.number
    LIMIT (SELECT %(count)s::int)
    FOR NO KEY UPDATE SKIP LOCKED
), oldest AS (
    SELECT e.ctid AS place, e.number
    FROM (
        SELECT l.place, l.number FROM lapsed l
        UNION ALL
        SELECT p.ctid, p.number FROM event p
        WHERE p.agent_name = (SELECT %(agent)s::text) AND p.instance_id = (SELECT %(instance)s::text)
            AND p.token IS NULL
    ) AS waiting
    JOIN event e ON e.ctid = waiting.place
    WHERE EXISTS (SELECT FROM lapsed)
    ORDER BY waiting.number
    LIMIT (SELECT %(count)s::int)
    FOR NO KEY UPDATE OF e SKIP LOCKED
), taken AS MATERIALIZED (
    SELECT place, row_number() OVER (ORDER BY number) AS turn
    FROM (SELECT place, number FROM next UNION ALL SELECT place, number FROM oldest) AS locked
), leased AS (
    UPDATE event e SET
        token = (%(tokens)s::text[])[t.turn],
        attempts = e.attempts + 1,
        lease_until = now() + %(lease)s::interval,
        delivered = d.delivered
    FROM taken t CROSS JOIN digest d
    WHERE e.ctid = t.place
    RETURNING e.number, e.id, e.token, e.attempts, e.lease_until, e.payload
)
SELECT
    s.revision, s.last_seen, d.unseen, CASE WHEN row_number() OVER (ORDER BY l.number) = 1 THEN d.entries END,
    l.id, l.token, l.attempts, l.lease_until, l.payload
FROM digest d LEFT JOIN seen s ON true LEFT JOIN leased l ON true
ORDER BY l.number

-- name: events_waiting
-- Of all agents, each kind in its partial index: what is acknowledged is not even looked at.
SELECT
    (SELECT count(*) FROM event e WHERE e.token IS NULL)
    + (
        SELECT count(*) FROM event e
        WHERE e.token IS NOT NULL AND NOT e.acked AND e.attempts < %(attempts_max)s::int AND e.lease_until <= now()
    )

-- name: agents_waiting
-- Which of some agents would get an event by a claim: each is looked up in the two partial indexes, in whose order the first
-- event is asked for so that PostgreSQL reads nothing else.
SELECT a.agent_name, a.instance_id
FROM unnest(%(agents)s::text[], %(instances)s::text[]) AS a (agent_name, instance_id)
CROSS JOIN LATERAL (
    (
        SELECT FROM event e WHERE e.agent_name = a.agent_name AND e.instance_id = a.instance_id AND e.token IS NULL
        ORDER BY e.number LIMIT 1
    )
    UNION ALL
    (
        SELECT FROM event e
        WHERE e.agent_name = a.agent_name AND e.instance_id = a.instance_id AND e.token IS NOT NULL AND NOT e.acked
            AND e.attempts < %(attempts_max)s::int AND e.lease_until <= now()
        ORDER BY e.attempts, e.lease_until LIMIT 1
    )
    LIMIT 1
) f

-- name: ack_event
-- The update waits for whoever holds the event and then looks at its newest row again, so a claim that got in first
-- leaves nothing to do here: its token is another one.
WITH changed AS (
    UPDATE event e SET acked = true
    WHERE e.agent_name = %(agent)s::text AND e.instance_id = %(instance)s::text AND e.id = %(id)s::text
        AND e.token = %(token)s::text AND NOT e.acked
    RETURNING e.delivered
), raised AS (
    UPDATE envelope e SET last_seen = greatest(e.last_seen, c.delivered)
    FROM changed c
    WHERE e.agent_name = %(agent)s::text AND e.instance_id = %(instance)s::text AND e.last_seen < c.delivered
)
SELECT true FROM changed

-- name: extend_event
UPDATE event e SET lease_until = clock_timestamp() + %(lease)s::interval
WHERE e.agent_name = %(agent)s::text AND e.instance_id = %(instance)s::text AND e.id = %(id)s::text
    AND e.token = %(token)s::text AND NOT e.acked
RETURNING e.lease_until

-- name: delivery
-- What an acknowledgement that changed nothing found.
SELECT e.token, e.acked, now() + coalesce(%(lease)s::interval, interval '0')
FROM event e
WHERE e.agent_name = %(agent)s::text AND e.instance_id = %(instance)s::text AND e.id = %(id)s::text

-- name: dead_events
SELECT e.id, e.attempts, e.enqueued_at, e.lease_until, e.payload
FROM event e
WHERE e.agent_name = %(agent)s::text AND e.instance_id = %(instance)s::text
    AND e.token IS NOT NULL AND NOT e.acked AND e.attempts >= %(attempts_max)s::int AND e.lease_until <= now()
    AND (%(after_at)s::timestamptz IS NULL OR (e.enqueued_at, e.id) > (%(after_at)s::timestamptz, %(after_id)s::text))
ORDER BY e.enqueued_at, e.id
LIMIT %(limit)s::int

-- name: requeue_events
-- The lease is over already, so without attempts it can be claimed again; the latest token stays good until then.
WITH dead AS MATERIALIZED (
    SELECT e.id FROM event e
    WHERE e.agent_name = %(agent)s::text AND e.instance_id = %(instance)s::text AND e.id = ANY(%(ids)s::text[])
        AND e.token IS NOT NULL AND NOT e.acked AND e.attempts >= %(attempts_max)s::int AND e.lease_until <= now()
    ORDER BY e.number
    FOR NO KEY UPDATE
)
UPDATE event e SET attempts = 0
FROM dead d
WHERE e.agent_name = %(agent)s::text AND e.instance_id = %(instance)s::text AND e.id = d.id
RETURNING e.id
