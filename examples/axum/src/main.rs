//! A plain axum server that verifies the webhooks of Stripe and GitHub itself: no gateway, no database.
//!
//! ```sh
//! STRIPE_SECRETS=whsec_… GITHUB_SECRETS='new old' PUBLIC_URL=https://hooks.example.com cargo run -p hookfast-example-axum
//! ```

mod webhooks;

use std::env;
use std::error::Error;
use std::sync::Arc;

use hookfast_catalog::{CatalogProvider, EMBEDDED, Settings};
use hookfast_stripe::Stripe;
use hookfast_webhook::{BlankSecret, Provider, Secret, Secrets};
use tokio::net::TcpListener;

use webhooks::{Endpoint, Webhooks};

const ADDRESS: &str = "127.0.0.1:3000";

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let webhooks = Webhooks {
        public_url: env::var("PUBLIC_URL").unwrap_or_else(|_| format!("http://{ADDRESS}")),
        stripe: Endpoint { provider: stripe(), secrets: secrets("STRIPE_SECRETS")? },
        github: Endpoint { provider: github()?, secrets: secrets("GITHUB_SECRETS")? },
    };
    axum::serve(TcpListener::bind(ADDRESS).await?, webhooks::router(webhooks)).await?;
    Ok(())
}

/// A provider that is a crate.
fn stripe() -> Arc<dyn Provider> {
    Arc::new(Stripe::new(&hookfast_stripe::Config::default()))
}

/// A provider that is a file of the catalog.
fn github() -> Result<Arc<dyn Provider>, &'static str> {
    let description = EMBEDDED.iter().find(|description| description.name == "github").ok_or("not in the catalog")?;
    Ok(Arc::new(CatalogProvider::new(Arc::clone(description), Settings::default())))
}

/// Several, with blanks between them, while one is rotated. Without any, every request is refused.
fn secrets(variable: &str) -> Result<Secrets, BlankSecret> {
    let secrets = env::var(variable).unwrap_or_default();
    secrets.split_whitespace().map(Secret::new).collect::<Result<_, _>>().map(Secrets::new)
}

#[cfg(test)]
mod tests;
