//! Development secrets: made for whoever serves without a configuration, and kept, so that a restart has the same.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use hookfast_store::{StoreUrl, problem_of_private_file};
use hookfast_webhook::{Provider, Secret, Secrets, SourceName};
use toml::{Table, Value};

use crate::Config;

/// What was made up.
pub(crate) struct Development {
    /// The file that keeps the secrets.
    pub(crate) file: PathBuf,
    /// The sources that have theirs from there, each with what its provider is played with.
    pub(crate) signing_keys: BTreeMap<SourceName, Secret>,
}

/// Whether what is missing is made up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Missing {
    /// It is made up and written down.
    MakeUp,
    /// It is an error: a gateway would have made it up.
    Refuse,
}

/// Gives each source without a secret one from the file beside the database. Such sources exist only where there is no
/// configuration file.
pub(crate) fn supply_secrets(config: &mut Config, missing: Missing) -> Result<Option<Development>, String> {
    let folder = folder_of(&config.store.url);
    let mut lacking = config.sources.iter_mut().filter(|(_, source)| source.secrets.is_empty()).peekable();
    if !config.for_development || lacking.peek().is_none() {
        return Ok(None);
    }
    let mut file = SecretsFile::open(&folder)?;
    if missing == Missing::Refuse && file.secrets.is_empty() {
        return Err("there are no development secrets in this folder: start `hookfast serve` here first".into());
    }
    let mut signing_keys = BTreeMap::new();
    for (name, source) in lacking {
        let (verifying, signing) = file.keys_of(name.as_str(), source.provider.as_ref())?;
        source.secrets = Secrets::new(vec![verifying]);
        signing_keys.insert(name.clone(), signing);
    }
    file.write_if_changed()?;
    Ok(Some(Development { file: file.path, signing_keys }))
}

fn folder_of(url: &StoreUrl) -> PathBuf {
    match url {
        StoreUrl::Sqlite(path) => path.parent().map(Path::to_owned).unwrap_or_default(),
        StoreUrl::Postgres(_) => PathBuf::new(),
    }
}

/// One line for each source, and one more in a section of its own where the provider signs with another key than ours.
struct SecretsFile {
    path: PathBuf,
    secrets: Table,
    changed: bool,
}

/// The section of keys that only the provider has in real life.
const SIGNING_KEYS: &str = "signing_keys";

impl SecretsFile {
    /// Reads the file if it is there.
    fn open(folder: &Path) -> Result<Self, String> {
        let path = folder.join("hookfast.dev-secrets.toml");
        if let Some(problem) = problem_of_private_file(&path) {
            return Err(format!("{}: {problem}", path.display()));
        }
        let secrets = if path.exists() { read(&path)? } else { Table::new() };
        Ok(Self { path, secrets, changed: false })
    }

    /// What we hold of a source, and what its provider signs with. New ones are written down before they are used.
    fn keys_of(&mut self, source: &str, provider: &dyn Provider) -> Result<(Secret, Secret), String> {
        if !self.secrets.contains_key(source) {
            let mut random = [0; 32];
            getrandom::fill(&mut random).map_err(|error| format!("the system gives no random numbers: {error}"))?;
            let keys = provider.key_pair(&random);
            self.secrets.insert(source.into(), keys.verifying.expose().into());
            if keys.signing.expose() != keys.verifying.expose() {
                let section = self.secrets.entry(SIGNING_KEYS).or_insert_with(|| Table::new().into());
                if let Value::Table(section) = section {
                    section.insert(source.into(), keys.signing.expose().into());
                }
            }
            self.changed = true;
        }
        let secret = |text: Option<&Value>| {
            let text = text.and_then(Value::as_str).unwrap_or_default();
            Secret::new(text).map_err(|_| format!("{}: `{source}` is no secret: remove the line", self.path.display()))
        };
        let verifying = secret(self.secrets.get(source))?;
        let signing = self.secrets.get(SIGNING_KEYS).and_then(|section| section.get(source));
        let signing = if signing.is_some() { secret(signing)? } else { verifying.clone() };
        Ok((verifying, signing))
    }

    fn write_if_changed(&self) -> Result<(), String> {
        if self.changed { self.write() } else { Ok(()) }
    }

    /// Writes a new file and puts it in the place of the old one, so that no half of it is ever read.
    fn write(&self) -> Result<(), String> {
        let failed = |error: std::io::Error| format!("{} cannot be written: {error}", self.path.display());
        let new = self.path.with_extension("toml.new");
        let _ = fs::remove_file(&new);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new).map_err(failed)?;
        let text = format!("# Secrets for development only, made by `hookfast serve`.\n{}", self.secrets);
        file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(failed)?;
        fs::rename(&new, &self.path).map_err(failed)
    }
}

fn read(path: &Path) -> Result<Table, String> {
    let text = fs::read_to_string(path).map_err(|error| format!("{} cannot be read: {error}", path.display()))?;
    text.parse().map_err(|_| format!("{} is damaged: remove it, and new secrets are made", path.display()))
}
