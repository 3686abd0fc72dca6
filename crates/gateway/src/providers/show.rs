//! `hookfast providers` and `hookfast providers show NAME`.

use serde_json::json;

use super::{Kind, Providers};
use crate::exit::Exit;

pub(crate) fn list(providers: &Providers, as_json: bool) {
    let mut kinds: Vec<_> = providers.iter().collect();
    kinds.sort_by_key(|kind| kind.name());
    if as_json {
        kinds.iter().for_each(|kind| outln!("{}", summary(kind)));
        return;
    }
    let width = kinds.iter().map(|kind| kind.name().len()).max().unwrap_or_default();
    for kind in kinds {
        let tested = if kind.is_vector_tested() { "" } else { "  (from its documentation, no test vectors)" };
        outln!("{:width$}  {}{tested}", kind.name(), kind.scheme());
        outln!("{:width$}  dedupe: {}", "", kind.dedupe());
    }
    outln!("\nMore about one, and how to set it up: hookfast providers show NAME");
}

pub(crate) fn show(providers: &Providers, name: &str, as_json: bool) -> Result<(), Exit> {
    let kind = providers.find(name).map_err(Exit::NotFound)?;
    if as_json {
        let mut summary = summary(kind);
        summary["contract"] = kind.contract().into();
        outln!("{summary}");
    } else {
        outln!("{}", kind.contract().trim_end());
        let settings = kind.settings();
        if !settings.is_empty() {
            outln!("\nSettings of a source: {}", settings.join(", "));
        }
    }
    Ok(())
}

fn summary(kind: &Kind) -> serde_json::Value {
    json!({
        "name": kind.name(),
        "scheme": kind.scheme(),
        "dedupe": kind.dedupe(),
        "settings": kind.settings(),
        "vector_tested": kind.is_vector_tested(),
    })
}
