//! SQL that both databases understand.

/// Every source once, by one look into the index for each.
pub(crate) const SOURCES: &str = "
WITH RECURSIVE found (source) AS (
    SELECT (SELECT min(source) FROM dedupe_keys)
    UNION ALL
    SELECT (SELECT min(source) FROM dedupe_keys WHERE source > found.source) FROM found WHERE source IS NOT NULL
)
SELECT source FROM found WHERE source IS NOT NULL";
