//! Development secrets: made for whoever serves without a configuration, and kept, so that a restart has the same.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use data_encoding::HEXLOWER;
use hookfast_store::StoreUrl;
use hookfast_webhook::{Secret, Secrets, SourceName};

use crate::Config;
use crate::providers::Builtin;

/// What was made up.
pub(crate) struct Development {
    /// The file that keeps the secrets.
    pub(crate) file: PathBuf,
    /// The sources that have theirs from there.
    pub(crate) sources: Vec<SourceName>,
}

/// Gives each source without a secret one from the file beside the database. Such sources exist only where there is no
/// configuration file.
pub(crate) fn supply_secrets(config: &mut Config) -> Result<Option<Development>, String> {
    let folder = folder_of(&config.store.url);
    let mut lacking = config.sources.iter_mut().filter(|(_, source)| source.secrets.is_empty()).peekable();
    if lacking.peek().is_none() {
        return Ok(None);
    }
    let mut file = SecretsFile::open(&folder)?;
    let mut sources = Vec::new();
    for (name, source) in lacking {
        let secret = file.secret_of(name.as_str(), Builtin::find(source.provider.name())?)?;
        source.secrets = Secrets::new(vec![secret]);
        sources.push(name.clone());
    }
    Ok(Some(Development { file: file.path, sources }))
}

fn folder_of(url: &StoreUrl) -> PathBuf {
    match url {
        StoreUrl::Sqlite(path) => path.parent().map(Path::to_owned).unwrap_or_default(),
        StoreUrl::Postgres(_) => PathBuf::new(),
    }
}

/// One line for each source.
struct SecretsFile {
    path: PathBuf,
    secrets: toml::Table,
}

impl SecretsFile {
    /// Reads the file if it is there.
    fn open(folder: &Path) -> Result<Self, String> {
        let path = folder.join("hookfast.dev-secrets.toml");
        let secrets = match fs::symlink_metadata(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => toml::Table::new(),
            Err(error) => return Err(format!("{}: {error}", path.display())),
            Ok(found) if !found.is_file() => {
                return Err(format!("{} is not a plain file: remove it", path.display()));
            }
            Ok(_) => read(&path)?,
        };
        Ok(Self { path, secrets })
    }

    /// The secret of a source; a new one is written down before it is used.
    fn secret_of(&mut self, source: &str, provider: &Builtin) -> Result<Secret, String> {
        if !self.secrets.contains_key(source) {
            let mut random = [0; 24];
            getrandom::fill(&mut random).map_err(|error| format!("the system gives no random numbers: {error}"))?;
            let secret = format!("{}{}", provider.secret_prefix, HEXLOWER.encode(&random));
            self.secrets.insert(source.into(), secret.into());
            self.write()?;
        }
        let text = self.secrets[source].as_str().unwrap_or_default();
        Secret::new(text).map_err(|_| format!("{}: `{source}` is no secret: remove the line", self.path.display()))
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

fn read(path: &Path) -> Result<toml::Table, String> {
    let text = fs::read_to_string(path).map_err(|error| format!("{} cannot be read: {error}", path.display()))?;
    text.parse().map_err(|_| format!("{} is damaged: remove it, and new secrets are made", path.display()))
}
