//! Dedupe keys that stand for an event only for a time.

use sqlx::Error;
use sqlx::postgres::PgConnection;
use uuid::Uuid;

use super::work::column;

/// A key that no event with a smaller id holds any more.
pub(super) struct Freed<'a> {
    pub(super) source: &'a str,
    pub(super) dedupe_key: &'a str,
    pub(super) before: Uuid,
}

/// The rows are locked in the order in which all transactions take keys, or two could wait for each other. The arrivals that
/// are kept beside a key belong to the event that had it.
const FREE: &str = "
WITH freed AS (
    SELECT known.source, known.dedupe_key FROM dedupe_keys AS known
    JOIN unnest($1::text[], $2::text[], $3::uuid[]) AS incoming (source, dedupe_key, before) USING (source, dedupe_key)
    WHERE known.event_id < incoming.before
    ORDER BY known.source, known.dedupe_key
    FOR UPDATE OF known
), arrivals AS (
    DELETE FROM resend_arrivals AS kept USING freed
    WHERE (kept.source, kept.dedupe_key) = (freed.source, freed.dedupe_key)
)
DELETE FROM dedupe_keys AS known USING freed
WHERE (known.source, known.dedupe_key) = (freed.source, freed.dedupe_key)
";

pub(super) async fn free(connection: &mut PgConnection, keys: &[Freed<'_>]) -> Result<(), Error> {
    if keys.is_empty() {
        return Ok(());
    }
    sqlx::query(FREE)
        .bind(column(keys, |key| key.source))
        .bind(column(keys, |key| key.dedupe_key))
        .bind(column(keys, |key| key.before))
        .execute(connection)
        .await?;
    Ok(())
}
