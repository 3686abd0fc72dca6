//! Enums whose values are written as words in tables, metrics, JSON and on the command line.

/// Implements `Display` and `FromStr` for an enum of words. The enum must have `ALL` and `as_str`.
///
/// `$what` describes the enum in the error message for an unknown word.
#[macro_export]
macro_rules! enum_of_words {
    ($type:ty, $what:literal) => {
        impl ::std::fmt::Display for $type {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl ::std::str::FromStr for $type {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                Self::ALL.into_iter().find(|word| word.as_str() == text).ok_or_else(|| {
                    let all: Vec<_> = Self::ALL.iter().map(|word| word.as_str()).collect();
                    format!("`{}` is not {}; known are: {}", text.escape_debug(), $what, all.join(", "))
                })
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;
    use std::str::FromStr;

    use serde::Serialize;

    use crate::{FailureKind, JobState, Priority, ProofKind};

    fn are_found<T>(words: impl IntoIterator<Item = T>)
    where
        T: FromStr<Err = String> + ToString + Serialize + Debug + PartialEq,
    {
        for word in words {
            let json = serde_json::to_value(&word).expect("a word is a text");
            assert_eq!(json, word.to_string(), "JSON has the same word");
            assert_eq!(word.to_string().parse(), Ok(word));
        }
        assert!("nonsense".parse::<T>().is_err_and(|problem| problem.contains("known are")));
    }

    #[test]
    fn every_word_is_found_and_others_are_refused() {
        are_found(FailureKind::ALL);
        are_found(JobState::ALL);
        are_found(Priority::ALL);
        are_found(ProofKind::ALL);
    }

    #[test]
    fn a_word_can_be_a_column_of_a_table() {
        assert_eq!(format!("{:8}|", Priority::High), "high    |");
    }
}
