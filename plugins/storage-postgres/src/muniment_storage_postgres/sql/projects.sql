-- Projects and their grants. An audience is :user, :groups and :write.

-- name: facts
-- A project as an audience may know it; all grants only for its owner.
    p.id, p.key, p.owner, p.version, p.created_at, p.updated_at,
    ARRAY(
        SELECT s.access FROM share s WHERE s.project_id = p.id AND s.group_name = ANY(%(groups)s::text[])
    ),
    CASE WHEN p.owner = %(user)s::text THEN coalesce(
        (SELECT jsonb_object_agg(s.group_name, s.access) FROM share s WHERE s.project_id = p.id), '{}'
    ) END

-- name: find_projects
SELECT
-- include: facts
FROM project p
WHERE (p.key = %(name)s::text OR p.id = %(name)s::text) AND (
    p.owner = %(user)s::text
    OR EXISTS (
        SELECT FROM share s
        WHERE s.project_id = p.id AND s.group_name = ANY(%(groups)s::text[])
            AND (s.access = 'rw' OR NOT %(write)s::boolean)
    )
)

-- name: list_projects
WITH readable AS (
    SELECT p.id FROM project p WHERE p.owner = %(user)s::text
    UNION
    SELECT s.project_id FROM share s
    WHERE s.group_name = ANY(%(groups)s::text[]) AND (s.access = 'rw' OR NOT %(write)s::boolean)
)
SELECT
-- include: facts
FROM readable r JOIN project p ON p.id = r.id
WHERE p.created_at < coalesce(%(after_at)s::timestamptz, 'infinity')
    OR (p.created_at = %(after_at)s::timestamptz AND p.id > %(after_id)s::text)
ORDER BY p.created_at DESC, p.id
LIMIT %(limit)s::int

-- name: register_project
WITH made AS (
    INSERT INTO project (id, scope_key, key, owner, version, created_at, updated_at)
    VALUES (%(id)s, %(scope_key)s, %(key)s, %(owner)s, 1, now(), now())
    ON CONFLICT (owner, key) DO NOTHING
    RETURNING id, version, created_at, updated_at
), audited AS (
    INSERT INTO audit (
        id, at, actor, agent, surface, action, memory_id, project_id, version, changed, scope_key, moved_to, patch,
        details
    )
    SELECT
        %(audit_id)s, m.updated_at, %(actor)s, %(agent)s, %(surface)s, %(action)s, %(audit_memory)s, %(audit_project)s,
        %(audit_version)s, %(audit_changed)s::text[], %(audit_scope_key)s, %(moved_to)s, %(patch)s::jsonb,
        %(details)s::jsonb
    FROM made m
)
SELECT m.version, m.created_at, m.updated_at FROM made m

-- name: owned_project
SELECT
-- include: facts
FROM project p WHERE p.owner = %(user)s::text AND p.key = %(key)s::text

-- name: change_share
WITH changed AS (
    UPDATE project p SET version = p.version + 1, updated_at = greatest(now(), p.updated_at)
    WHERE p.id = %(id)s::text AND p.version = %(expected)s::int
    RETURNING p.id, p.version, p.created_at, p.updated_at
), granted AS (
    INSERT INTO share (project_id, group_name, access)
    SELECT c.id, %(group)s, %(access)s FROM changed c WHERE %(access)s::text IS NOT NULL
    ON CONFLICT (project_id, group_name) DO UPDATE SET access = excluded.access
), taken AS (
    DELETE FROM share s USING changed c
    WHERE s.project_id = c.id AND s.group_name = %(group)s::text AND %(access)s::text IS NULL
), audited AS (
    INSERT INTO audit (
        id, at, actor, agent, surface, action, memory_id, project_id, version, changed, scope_key, moved_to, patch,
        details
    )
    SELECT
        %(audit_id)s, c.updated_at, %(actor)s, %(agent)s, %(surface)s, %(action)s, %(audit_memory)s, %(audit_project)s,
        %(audit_version)s, %(audit_changed)s::text[], %(audit_scope_key)s, %(moved_to)s, %(patch)s::jsonb,
        %(details)s::jsonb
    FROM changed c
)
SELECT c.version, c.created_at, c.updated_at FROM changed c

-- name: project_version
SELECT p.version FROM project p WHERE p.id = %(id)s::text

-- name: record
INSERT INTO audit (
    id, at, actor, agent, surface, action, memory_id, project_id, version, changed, scope_key, moved_to, patch, details
)
VALUES (
    %(audit_id)s, now(), %(actor)s, %(agent)s, %(surface)s, %(action)s, %(audit_memory)s, %(audit_project)s,
    %(audit_version)s, %(audit_changed)s::text[], %(audit_scope_key)s, %(moved_to)s, %(patch)s::jsonb, %(details)s::jsonb
)
ON CONFLICT (id) DO NOTHING
