//! What a row says, as the types of the program. A word that the program does not know is an error: to take it for another
//! one could run a job that must not run.

use std::str::FromStr;

use hookfast_webhook::HandlerName;
use sqlx::{ColumnIndex, Decode, Error, Row, Type};

use crate::ByHandler;

/// The value that this word of a table stands for.
pub(crate) fn word<T: FromStr<Err = String>>(word: &str) -> Result<T, Error> {
    word.parse().map_err(|problem: String| Error::Decode(problem.into()))
}

/// The same for a column that may be NULL.
pub(crate) fn optional_word<T: FromStr<Err = String>>(text: Option<&str>) -> Result<Option<T>, Error> {
    text.map(word).transpose()
}

/// A handler's name from a table.
pub(crate) fn handler(name: &str) -> Result<HandlerName, Error> {
    HandlerName::new(name).map_err(|error| Error::Decode(error.into()))
}

/// What rows say, by the handler that each is about.
pub(crate) fn by_handler<'r, R: Row, T>(
    rows: &'r [R],
    read: impl Fn(&'r R) -> Result<T, Error>,
) -> Result<ByHandler<T>, Error>
where
    &'static str: ColumnIndex<R>,
    String: Decode<'r, R::Database> + Type<R::Database>,
{
    let mut found = ByHandler::new();
    for row in rows {
        found.entry(row.try_get("handler")?).or_default().push(read(row)?);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use hookfast_webhook::JobState;

    use super::*;

    #[test]
    fn a_word_that_nobody_knows_is_an_error() {
        assert_eq!(word::<JobState>("dead_letter").ok(), Some(JobState::DeadLetter));
        assert!(matches!(word::<JobState>("asleep"), Err(Error::Decode(_))));
        assert!(matches!(optional_word::<JobState>(None), Ok(None)));
    }
}
