//! Development secrets: made for whoever starts without a configuration, and kept, so that a restart has the same.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use data_encoding::HEXLOWER;
use hookfast_webhook::Secret;

use crate::providers::Builtin;

/// The file beside the database that keeps development secrets, one line for each source.
#[derive(Debug, Clone)]
pub(crate) struct DevelopmentSecrets {
    path: PathBuf,
    secrets: toml::Table,
}

impl DevelopmentSecrets {
    /// Reads the file if it is there.
    pub(crate) fn open(folder: &Path) -> Result<Self, String> {
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

    /// Where they are kept.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The secret of a source; a new one is written down before it is used.
    pub(crate) fn secret_of(&mut self, source: &str, provider: &Builtin) -> Result<Secret, String> {
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
