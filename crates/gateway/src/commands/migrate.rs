//! `hookfast migrate`

use hookfast_store::{Migrate, open};

use crate::config::OperatorConfig;
use crate::exit::Exit;

pub(crate) async fn migrate(config: OperatorConfig) -> Result<(), Exit> {
    let store = open(&config.store, Migrate::Run).await?;
    store.close().await;
    outln!("The tables are up to date.");
    Ok(())
}
