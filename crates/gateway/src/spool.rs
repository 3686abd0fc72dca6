//! `hookfast spool`

use hookfast_store::{Spool, SpoolStatus};
use serde_json::json;

use crate::config::OperatorConfig;
use crate::events::{rfc3339, to_the_second};
use crate::exit::Exit;

/// Says how many events wait in the spool, and since when.
pub(crate) async fn show(config: OperatorConfig, as_json: bool) -> Result<(), Exit> {
    let Some(spool) = config.spool else {
        return Err(Exit::NotFound("there is no spool: it stands before Postgres, unless `spool = false`".into()));
    };
    let path = spool.file.path;
    let empty = SpoolStatus { events: 0, refused: 0, oldest: None, bytes: 0 };
    let status = Spool::look(&path).await?.unwrap_or(empty);
    let SpoolStatus { events, refused, oldest, bytes } = status;
    let max_bytes = spool.file.max_bytes;
    if as_json {
        let oldest = oldest.map(rfc3339);
        let path = path.display().to_string();
        outln!(
            "{}",
            json!({"path": path, "events": events, "refused": refused, "oldest": oldest, "bytes": bytes, "max_bytes": max_bytes})
        );
        return Ok(());
    }
    match oldest {
        None => outln!("No event waits in the spool {}.", path.display()),
        Some(oldest) => {
            outln!("{events} events wait in the spool {}, the oldest since {}.", path.display(), to_the_second(oldest));
            outln!("{} KiB of {} KiB are in use.", bytes / 1024, max_bytes / 1024);
            outln!("They are drained by the gateway that has this spool, as soon as Postgres takes them.");
        }
    }
    if refused > 0 {
        outln!(
            "Postgres refuses {refused} of them; the gateway's log says why. They are tried again at its next start."
        );
    }
    Ok(())
}
