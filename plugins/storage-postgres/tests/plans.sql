-- A grown database, always the same one: 400 users with 20 memories each, 30,000 projects of theirs and of others, each
-- shared with a group, 300 agents with 30 exchanges and 30 events each. User 7 is ann, agents 7 and 8 are ann/1 and bob/1.
-- Statements are separated by semicolons.

INSERT INTO project (id, scope_key, key, owner, version, created_at, updated_at)
SELECT 'project-' || n, 'p:project-' || n, 'key-' || n, CASE n WHEN 7 THEN 'ann' ELSE 'user-' || mod(n, 5000) END,
    1, '2024-01-01Z', '2024-01-01Z'
FROM generate_series(1, 30000) n;

INSERT INTO share (project_id, group_name, access)
SELECT 'project-' || n, 'group-' || mod(n, 6000), CASE mod(n, 2) WHEN 0 THEN 'ro' ELSE 'rw' END
FROM generate_series(1, 30000) n;

INSERT INTO scope (number, key) OVERRIDING SYSTEM VALUE
SELECT n, CASE n WHEN 7 THEN 'u:ann' ELSE 'u:user-' || n END FROM generate_series(1, 400) n
UNION ALL
SELECT 400 + n, 'p:project-' || n FROM generate_series(1, 30000) n;

CREATE TEMP TABLE made AS
SELECT
    number, mod(number, 400) + 1 AS scope, 'm-' || number AS id,
    CASE mod(number, 400) + 1 WHEN 7 THEN 'ann' ELSE 'user-' || (mod(number, 400) + 1) END AS owner,
    ARRAY(SELECT 'word-' || mod(number * 31 + w * 17, 997) FROM generate_series(1, 12) w) AS terms,
    '2024-01-01Z'::timestamptz + number * interval '1 minute' AS at
FROM generate_series(1, 8000) number;

INSERT INTO memory (
    id, number, scope_number, scope_key, scope, user_name, project_id, content, tags, version, last_edited_by,
    created_at, updated_at, deleted, embedded_in
) OVERRIDING SYSTEM VALUE
SELECT
    id, number, scope, 'u:' || owner, 'user', owner, NULL, repeat(array_to_string(terms, ' ') || E'.\n', 4),
    ARRAY['tag-' || mod(number, 10)], 2, owner, at, at, mod(number, 400) <> 6 AND mod(number, 20) = 0,
    CASE WHEN mod(number, 50) = 1 THEN '{}' ELSE ARRAY(SELECT s.number FROM space s) END
FROM made;

CREATE FUNCTION pg_temp.key(name text) RETURNS bigint LANGUAGE sql IMMUTABLE AS
$$ SELECT ('x' || encode(substring(sha256(convert_to(name, 'UTF8')) FROM 1 FOR 6), 'hex'))::bit(48)::bigint >> 1 $$;

CREATE TEMP TABLE held AS
SELECT m.scope, m.number AS memory, m.number <= 7200 AS settled, e.key, e.frequency
FROM made m CROSS JOIN LATERAL (
    SELECT pg_temp.key(t) AS key, 4 AS frequency FROM unnest(m.terms) t
    UNION ALL
    SELECT pg_temp.key(' tag-' || mod(m.number, 10)), 1
) e
WHERE mod(m.number, 20) <> 0 OR mod(m.number, 400) = 6;

INSERT INTO search_entry (scope, memory, length, batch, analyser, changed)
SELECT DISTINCT scope, memory, 48, CASE WHEN settled THEN scope ELSE 0 END, '{analyser}', 0 FROM held;

INSERT INTO search_keys (scope, memory, unsettled, terms, tags)
SELECT scope, memory, CASE WHEN NOT settled THEN scope END, string_agg(int8send(key << 16 | frequency), ''), '' FROM held GROUP BY scope, memory, settled;

INSERT INTO posting_batch (number, scope, memories) OVERRIDING SYSTEM VALUE
SELECT n, n, 18 FROM generate_series(1, 400) n;

INSERT INTO posting (scope, batch, key, holders)
SELECT scope, scope, key, string_agg(int8send(memory << 16 | frequency), '' ORDER BY memory) FROM held WHERE settled
GROUP BY scope, key;

INSERT INTO passage (scope, space, memory, hash, embedding)
SELECT
    e.scope, s.number, e.memory, md5(e.memory || ' ' || part),
    ARRAY(SELECT sin(e.memory * 7 + part * 3 + d) FROM generate_series(1, 8) d)::real[]::vector
FROM search_entry e CROSS JOIN space s CROSS JOIN generate_series(1, 3) part
WHERE mod(e.memory, 50) <> 1;

INSERT INTO audit (id, at, actor, agent, surface, action, memory_id, project_id, version, changed, scope_key)
SELECT 'a-' || number || '-' || v, at, owner, NULL, 'mcp', 'memory.write', id, NULL, v, '{content}'::text[], 'u:' || owner
FROM made CROSS JOIN generate_series(1, 2) v
UNION ALL
SELECT 'p-' || id, created_at, owner, NULL, 'mcp', 'project.register', NULL, id, 1, '{key}'::text[], scope_key FROM project;

INSERT INTO receipt (principal, key, body_hash, memory_id, receipt, at)
SELECT owner, 'key ' || number, md5(id), id, '{}', now() - number * interval '1 second' FROM made;

CREATE TEMP TABLE agents AS
SELECT n, CASE n WHEN 7 THEN 'ann' WHEN 8 THEN 'bob' ELSE 'agent-' || n END AS name FROM generate_series(1, 300) n;

INSERT INTO envelope (agent_name, instance_id, revision, last_seen, oldest, sync_key, pods)
SELECT name, i, 30, 20, 1, NULL, '{pod}' FROM agents CROSS JOIN generate_series(1, 5) i;

INSERT INTO section (agent_name, instance_id, name, value, visibility, version, byte_size, updated_at)
SELECT name, '1', s, '"value"', 'private', 1, 7, '2024-01-01Z'
FROM agents CROSS JOIN unnest(ARRAY['long_term', 'soul', 'shared', 'daily', 'cycles']) s;

INSERT INTO exchange (
    agent_name, instance_id, revision, at, kind, surface_pod_id, surface_label, peers, takeaway, size
)
SELECT name, '1', r, '2024-01-01Z', 'task-completed', 'pod', '', '{}', 'takeaway', 100
FROM agents CROSS JOIN generate_series(1, 30) r;

INSERT INTO exchange_key (agent_name, instance_id, dedupe_key, revision)
SELECT agent_name, instance_id, 'key ' || revision, revision FROM exchange;

INSERT INTO event (
    agent_name, instance_id, id, payload, enqueued_at, acked, attempts, token, lease_until, delivered
)
SELECT
    name, '1', 'e-' || n || '-' || e, '{}', '2024-01-01Z', e <= 20, CASE WHEN e <= 23 THEN 1 ELSE 0 END,
    CASE WHEN e <= 23 THEN 'token-' || e END, CASE WHEN e <= 23 THEN now() + interval '1 hour' END,
    CASE WHEN e <= 23 THEN 20 END
FROM agents CROSS JOIN generate_series(1, 30) e;

SELECT setval(pg_get_serial_sequence('memory', 'number'), 8000);
SELECT setval(pg_get_serial_sequence('posting_batch', 'number'), 400);
SELECT setval(pg_get_serial_sequence('scope', 'number'), 30400)
