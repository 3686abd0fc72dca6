//! Nothing that a terminal would obey or hide is in any output, wherever the text came from.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::Write as _;

use hookfast_webhook::is_unprintable;

/// Prints a line of output. Whatever reads it may have gone.
pub(crate) fn print_line(line: &str) {
    let _ = writeln!(std::io::stdout(), "{}", printable(line));
}

/// The text with its unprintable characters written out, except for line breaks.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    escape(text, |character| is_unprintable(character) && character != '\n')
}

/// The same for a line of the log, which may have colours. What stands in its fields has its control characters escaped by
/// the subscriber.
pub(crate) fn printable_log_line(line: &str) -> Cow<'_, str> {
    escape(line, |character| is_unprintable(character) && !matches!(character, '\n' | '\u{1b}'))
}

/// Writes some characters as JSON does, so that what is JSON means the same as before.
fn escape(text: &str, is_escaped: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_escaped) {
        return text.into();
    }
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        if is_escaped(character) {
            for unit in character.encode_utf16(&mut [0; 2]) {
                let _ = write!(escaped, "\\u{unit:04x}");
            }
        } else {
            escaped.push(character);
        }
    }
    escaped.into()
}

/// Text for a terminal: what would not be printed but obeyed is written out.
pub(crate) fn plain(text: &str) -> String {
    let shown = |character: char| match character {
        '"' | '\'' | '\\' => character.to_string(),
        _ => character.escape_debug().to_string(),
    };
    text.chars().map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_printable_is_written_as_in_json() {
        let text = "a\u{9b}31m\u{200b}\u{e0041}\u{7f}ü 🚀";
        let json = serde_json::json!({ "text": text }).to_string();
        assert_eq!(printable(&json), r#"{"text":"a\u009b31m\u200b\udb40\udc41\u007fü 🚀"}"#);
        assert_eq!(serde_json::from_str::<serde_json::Value>(&printable(&json)).expect("JSON")["text"], text);
        assert_eq!(printable("two\nlines\u{1b}[2J\r"), "two\nlines\\u001b[2J\\u000d");
    }

    #[test]
    fn a_line_of_the_log_keeps_its_colours() {
        assert_eq!(
            printable_log_line("\u{1b}[32mINFO\u{1b}[0m a\u{200b}\u{9b}\n"),
            "\u{1b}[32mINFO\u{1b}[0m a\\u200b\\u009b\n"
        );
    }

    #[test]
    fn what_a_terminal_would_obey_is_written_out() {
        assert_eq!(plain("it's \"fine\" \\ ü"), "it's \"fine\" \\ ü");
        assert_eq!(plain("\x1b[2Jgone\r\n\u{202e}"), "\\u{1b}[2Jgone\\r\\n\\u{202e}");
    }
}
