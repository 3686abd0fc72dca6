//! `hookfast spool`

use hookfast_admin::view::SpoolView;
use hookfast_store::{SetAside, Spool, SpoolStatus, StoreUrl};

use super::tables::{print_json, to_the_second};
use crate::config::OperatorConfig;
use crate::exit::Exit;

/// Events that are set aside are listed up to this number.
const SHOWN: usize = 20;

/// Says how many events wait in the spool, and since when.
pub(crate) async fn show(config: OperatorConfig, as_json: bool) -> Result<(), Exit> {
    let Some(spool) = config.spool else {
        let why = match config.store.url {
            StoreUrl::Sqlite(_) => "a spool stands before Postgres, and the store is SQLite, which needs none",
            StoreUrl::Postgres(_) => "the configuration has `spool = false` in `[store]`",
        };
        return Err(Exit::NotFound(format!("there is no spool: {why}")));
    };
    let path = spool.file.path;
    let empty = SpoolStatus { events: 0, refused: 0, oldest: None, bytes: 0 };
    let (status, aside) = Spool::look(&path, SHOWN).await?.unwrap_or((empty, Vec::new()));
    let max_bytes = spool.file.max_bytes;
    if as_json {
        print_json(&SpoolView::new(&path, max_bytes, &status, &aside));
        return Ok(());
    }
    let SpoolStatus { events, refused, oldest, bytes } = status;
    match oldest {
        None => outln!("No event waits in the spool {}.", path.display()),
        Some(oldest) => {
            outln!("{events} events wait in the spool {}, the oldest since {}.", path.display(), to_the_second(oldest));
            outln!("{} KiB of {} KiB are in use.", bytes / 1024, max_bytes / 1024);
            outln!("They are drained by the gateway that has this spool, as soon as Postgres takes them.");
        }
    }
    print_set_aside(refused, &aside);
    Ok(())
}

/// Events that Postgres did not take.
fn print_set_aside(refused: u64, aside: &[SetAside]) {
    if refused == 0 {
        return;
    }
    outln!("{refused} of them are set aside, because Postgres did not take them; the others pass them:");
    for SetAside { id, source, size_bytes, reason, .. } in aside {
        outln!("  {id} from {source}, {size_bytes} bytes: {reason}");
    }
    if (aside.len() as u64) < refused {
        outln!("  … and {} more", refused - aside.len() as u64);
    }
    outln!(
        "The gateway tries them again, after 5 minutes at first, then less often up to once an hour, and at its start."
    );
}
