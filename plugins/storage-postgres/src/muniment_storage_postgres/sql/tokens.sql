-- API tokens, found by the hash of their secret.

-- name: token_columns
    t.id, t.user_name, t.group_names, t.scopes, t.created_at, t.expires_at, t.last_used_at, t.revoked_at

-- name: add_token
INSERT INTO api_token AS t (id, digest, user_name, group_names, scopes, created_at, expires_at)
VALUES (
    %(id)s, %(digest)s, %(user)s, %(groups)s::text[], %(scopes)s::text[], now(), %(expires_at)s::timestamptz
)
RETURNING
-- include: token_columns

-- name: find_token
SELECT
-- include: token_columns
FROM api_token t WHERE t.digest = %(digest)s::text

-- name: list_tokens
SELECT
-- include: token_columns
FROM api_token t
WHERE t.created_at < coalesce(%(after_at)s::timestamptz, 'infinity')
    OR (t.created_at = %(after_at)s::timestamptz AND t.id > %(after_id)s::text)
ORDER BY t.created_at DESC, t.id
LIMIT %(limit)s::int

-- name: revoke_token
UPDATE api_token t SET revoked_at = coalesce(t.revoked_at, now()) WHERE t.id = %(id)s::text
RETURNING
-- include: token_columns

-- name: touch_token
UPDATE api_token t SET last_used_at = greatest(t.last_used_at, now()) WHERE t.id = %(id)s::text
