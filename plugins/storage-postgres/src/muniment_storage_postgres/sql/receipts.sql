-- Idempotency receipts, each stored by the statement of the write that it protects.

-- name: kept_claim
-- The claim of a write that a part called `happened` tells of, in one row (count, at): how many rows it changed, and
-- when. A key that is taken violates receipt_pkey, which undoes the whole statement. A few expired claims are cleared
-- away in passing.
, cleared AS (
    DELETE FROM receipt r
    WHERE r.ctid = ANY(ARRAY(
        SELECT o.ctid FROM receipt o
        WHERE o.at <= now() - (SELECT %(kept)s::interval)
        ORDER BY o.at LIMIT 4
        FOR UPDATE SKIP LOCKED
    ))
), expired AS (
    DELETE FROM receipt r
    WHERE r.principal = (SELECT %(claim_principal)s::text) AND r.key = (SELECT %(claim_key)s::text)
        AND r.at <= now() - %(kept)s::interval
    RETURNING 1
), claimed AS (
    INSERT INTO receipt (principal, key, body_hash, memory_id, receipt, at)
    SELECT
        %(claim_principal)s, %(claim_key)s, %(claim_body)s, %(claim_memory)s, %(claim_receipt)s::jsonb, h.at
    FROM happened h
    WHERE h.count > 0 AND (SELECT count(*) FROM expired) >= 0
)

-- name: find_receipt
SELECT r.body_hash, r.memory_id, r.receipt, r.at FROM receipt r
WHERE r.principal = %(principal)s::text AND r.key = %(key)s::text AND r.at > now() - %(kept)s::interval
