//! The providers there are: those that need code, those of the catalog, and those of the user's own files.

mod builtin;

use std::fs;
use std::path::Path;
use std::sync::Arc;

use hookfast_catalog::{CatalogProvider, Description, EMBEDDED};
use hookfast_webhook::Provider;
use toml::Table;

use builtin::{BUILTIN, Builtin};

/// A provider that a source can be of.
#[derive(Clone)]
pub(crate) enum Kind {
    /// It needs code.
    Code(&'static Builtin),
    /// It is described by a file.
    Described(Arc<Description>),
}

impl Kind {
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Code(builtin) => builtin.name,
            Self::Described(description) => &description.name,
        }
    }

    /// What can be set for a source, beside what every source has.
    pub(crate) fn settings(&self) -> Vec<&'static str> {
        match self {
            Self::Code(builtin) => builtin.settings.to_vec(),
            Self::Described(description) => description.settings(),
        }
    }

    /// The section of a source of it, without a secret, for whoever serves without a configuration.
    pub(crate) fn development_section(&self) -> String {
        let name = self.name();
        format!("[sources.{name}]\nprovider = \"{name}\"\n{}\n", self.development())
    }

    fn development(&self) -> &'static str {
        match self {
            Self::Code(builtin) => builtin.development,
            Self::Described(_) => "",
        }
    }

    /// How it proves that a request is genuine, in a few words.
    pub(crate) fn scheme(&self) -> String {
        match self {
            Self::Code(builtin) => builtin.scheme.into(),
            Self::Described(description) => description.scheme(),
        }
    }

    /// What tells its events apart, in a few words.
    pub(crate) fn dedupe(&self) -> String {
        match self {
            Self::Code(builtin) => builtin.dedupe.into(),
            Self::Described(description) => description.dedupe(),
        }
    }

    /// Whether the type of its events stands outside of what is signed, as far as that can be told without its settings.
    pub(crate) fn never_signs_type(&self) -> bool {
        match self {
            Self::Code(_) => false,
            Self::Described(description) => !description.can_sign_type(),
        }
    }

    /// Contract and set-up steps, for people.
    pub(crate) fn contract(&self) -> String {
        match self {
            Self::Code(builtin) => builtin.contract.into(),
            Self::Described(description) => description.contract(),
        }
    }

    pub(crate) fn is_vector_tested(&self) -> bool {
        match self {
            Self::Code(_) => true,
            Self::Described(description) => description.vector_tested,
        }
    }

    /// The provider with the settings of one source.
    pub(crate) fn build(&self, settings: Table) -> Result<Arc<dyn Provider>, String> {
        match self {
            Self::Code(builtin) => (builtin.build)(settings),
            Self::Described(description) => {
                let settings = builtin::settings(settings)?;
                Ok(Arc::new(CatalogProvider::new(Arc::clone(description), settings)))
            }
        }
    }

    /// The provider as it is without a configuration.
    fn build_for_development(&self) -> Result<Arc<dyn Provider>, String> {
        self.build(self.development().parse().map_err(|error: toml::de::Error| error.to_string())?)
    }
}

/// All providers there are.
#[derive(Clone)]
pub(crate) struct Providers {
    kinds: Vec<Kind>,
    is_incomplete: bool,
}

impl Providers {
    /// Those that are in the program.
    pub(crate) fn embedded() -> Self {
        let code = BUILTIN.iter().map(Kind::Code);
        let described = EMBEDDED.iter().map(|description| Kind::Described(Arc::clone(description)));
        Self { kinds: code.chain(described).collect(), is_incomplete: false }
    }

    /// Adds a file of the user's own.
    pub(crate) fn add_file(&mut self, path: &Path) -> Result<(), String> {
        let described = self.read_file(path);
        self.is_incomplete |= described.is_err();
        self.kinds.push(Kind::Described(Arc::new(described?)));
        Ok(())
    }

    fn read_file(&self, path: &Path) -> Result<Description, String> {
        let text = fs::read_to_string(path).map_err(|error| format!("{} cannot be read: {error}", path.display()))?;
        let description = Description::parse(&text).map_err(|problem| format!("{}: {problem}", path.display()))?;
        if self.kinds.iter().any(|kind| kind.name() == description.name) {
            let name = description.name;
            return Err(format!("{}: there is a provider `{name}` already: choose another name", path.display()));
        }
        Ok(description)
    }

    /// Whether a file of the user's own could not be added.
    pub(crate) fn is_incomplete(&self) -> bool {
        self.is_incomplete
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Kind> {
        self.kinds.iter()
    }

    /// The provider called `name`, or which there are.
    pub(crate) fn find(&self, name: &str) -> Result<&Kind, String> {
        self.iter().find(|kind| kind.name() == name).ok_or_else(|| {
            let mut names: Vec<_> = self.iter().map(Kind::name).collect();
            names.sort_unstable();
            format!("there is no provider `{}`; there is: {}", name.escape_debug(), names.join(", "))
        })
    }

    /// Each provider once, to recognise requests that come to the wrong source.
    pub(crate) fn for_recognition(&self) -> Vec<Arc<dyn Provider>> {
        self.iter().filter_map(|kind| kind.build_for_development().ok()).collect()
    }
}
