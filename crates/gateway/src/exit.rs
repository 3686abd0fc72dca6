//! How the program ends when it does not end well: one sentence for people, one number for scripts.

use std::fmt::Display;
use std::process::ExitCode;

use hookfast_admin::operate::ActError;
use hookfast_store::{AskError, OpenError, StoreError};

use crate::Problem;

/// The ways to fail. The numbers are part of the public surface.
#[derive(Debug)]
pub(crate) enum Exit {
    /// It was tried and did not work, and the words say why.
    Failed(String),
    /// The answer is no, and was printed already.
    No,
    /// The configuration or the command line is wrong.
    Config(Vec<Problem>),
    /// What was asked for does not exist.
    NotFound(String),
    /// A server does not answer.
    Unreachable(String),
    /// A signal ended it before it was done, and the words say how to go on.
    Interrupted(String),
}

impl Exit {
    pub(crate) fn failed(problem: impl Display) -> Self {
        Self::Failed(problem.to_string())
    }

    /// The command line is wrong.
    pub(crate) fn usage(flag: &str, problem: impl Into<String>) -> Self {
        Self::Config(vec![Problem { origin: "the command line".into(), key: flag.into(), problem: problem.into() }])
    }

    pub(crate) fn report(self) -> ExitCode {
        match self {
            Self::Failed(problem) => say(&problem, 1),
            Self::No => ExitCode::from(1),
            Self::Config(problems) => {
                if let [problem] = problems.as_slice() {
                    return say(&problem.to_string(), 2);
                }
                errln!("error: the configuration has {} problems:", problems.len());
                problems.iter().for_each(|problem| errln!("  {problem}"));
                ExitCode::from(2)
            }
            Self::NotFound(problem) => say(&problem, 3),
            Self::Unreachable(problem) => say(&problem, 5),
            Self::Interrupted(problem) => say(&problem, 130),
        }
    }
}

fn say(problem: &str, code: u8) -> ExitCode {
    errln!("error: {problem}");
    ExitCode::from(code)
}

impl From<OpenError> for Exit {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Unreachable { .. } | OpenError::Refused { .. } => Self::Unreachable(error.to_string()),
            _ => Self::Failed(error.to_string()),
        }
    }
}

impl From<StoreError> for Exit {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Unavailable(_) => Self::Unreachable(error.to_string()),
            StoreError::Rejected(_) | StoreError::Broken(_) => Self::Failed(error.to_string()),
        }
    }
}

impl From<AskError> for Exit {
    fn from(error: AskError) -> Self {
        match error {
            // The store is fine, and trying again would not help.
            AskError::TooBroad(_) => Self::Failed(error.to_string()),
            AskError::Store(error) => error.into(),
        }
    }
}

impl From<ActError> for Exit {
    fn from(error: ActError) -> Self {
        match error {
            ActError::NoReason(_) => Self::usage("--why", error.to_string()),
            ActError::NoTarget | ActError::NoHandler { .. } | ActError::Foreign(_) => {
                Self::usage("--handler", error.to_string())
            }
            ActError::NoOrigin | ActError::StillConfigured(_) => Self::usage("--from-handler", error.to_string()),
            ActError::NoAct(_) => Self::NotFound(format!("{error}. `hookfast audit list` shows the latest")),
            ActError::NotResumable(..) => Self::Failed(error.to_string()),
            ActError::Store(source) | ActError::Broken { source, .. } => source.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_question_that_takes_too_long_is_no_outage() {
        let Exit::Failed(said) = AskError::TooBroad(Duration::from_secs(60)).into() else { panic!("another code") };
        assert!(said.starts_with("the question is too broad") && said.contains("60 s. Ask for less"), "{said}");
        let away = AskError::Store(StoreError::Unavailable("gone".into()));
        assert!(matches!(away.into(), Exit::Unreachable(_)));
    }
}
