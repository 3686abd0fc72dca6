//! Files and functions stay short. What was longer when the limits were set is in `ratchet.toml`, and may only shrink.

use std::collections::BTreeMap;
use std::fs;

use crate::syntax::{Source, sources};
use crate::{read, root};

/// The longest line of a comment. rustfmt keeps code within 120, but for text that it cannot break.
const LINE_CHARACTERS: usize = 130;
const FILE_LINES: usize = 400;
const FUNCTION_LINES: usize = 40;
/// A test tells a story from its beginning to its end.
const TEST_FUNCTION_LINES: usize = 60;

const RATCHET: &str = "tests/tidy/ratchet.toml";
const HEADER: &str = "\
# Files that are longer, or have a longer function, than tests/tidy/sizes.rs allows: the number of lines is the most that each
# may have. Nothing is added here and no number grows. After a file became shorter: tests/run tidy --shrink
";

/// The sizes that are beyond a limit, by file.
type Sizes = BTreeMap<String, usize>;

#[derive(Debug, Default, PartialEq, Eq)]
struct Ratchet {
    file_lines: Sizes,
    function_lines: Sizes,
}

impl Ratchet {
    fn read() -> Self {
        let table: toml::Table = read(RATCHET).parse().unwrap();
        let sizes = |key: &str| -> Sizes {
            let numbers = table[key].as_table().unwrap().iter();
            numbers.map(|(path, lines)| (path.clone(), lines.as_integer().unwrap() as usize)).collect()
        };
        Self { file_lines: sizes("file_lines"), function_lines: sizes("function_lines") }
    }

    /// What is beyond the limits now.
    fn of(sources: &[Source]) -> Self {
        let mut now = Self::default();
        for source in sources {
            let (path, lines) = (source.path.display().to_string(), source.text.lines().count());
            if lines > FILE_LINES {
                now.file_lines.insert(path.clone(), lines);
            }
            let longest = source.functions().iter().map(|function| function.lines).max().unwrap_or(0);
            if longest > function_limit(source) {
                now.function_lines.insert(path, longest);
            }
        }
        now
    }

    /// The smaller of both, and nothing that is in one of them alone.
    fn shrunk(&self, now: &Self) -> Self {
        let smaller = |old: &Sizes, new: &Sizes| -> Sizes {
            old.iter().filter_map(|(path, old)| Some((path.clone(), (*old).min(*new.get(path)?)))).collect()
        };
        Self {
            file_lines: smaller(&self.file_lines, &now.file_lines),
            function_lines: smaller(&self.function_lines, &now.function_lines),
        }
    }

    fn write(&self) {
        let section = |name: &str, sizes: &Sizes| {
            let rows = sizes.iter().map(|(path, lines)| format!("\"{path}\" = {lines}\n"));
            format!("\n[{name}]\n{}", rows.collect::<String>())
        };
        let sections = section("file_lines", &self.file_lines) + &section("function_lines", &self.function_lines);
        fs::write(root().join(RATCHET), format!("{HEADER}{sections}")).unwrap();
    }
}

fn function_limit(source: &Source) -> usize {
    let is_test = source.is_for_tests() || source.path.starts_with("tests");
    if is_test { TEST_FUNCTION_LINES } else { FUNCTION_LINES }
}

/// What grew beyond its limit or its place in the ratchet.
fn grown(what: &str, allowed: &Sizes, now: &Sizes) -> Vec<String> {
    let too_long = now.iter().filter(|(path, lines)| allowed.get(*path).is_none_or(|allowed| *lines > allowed));
    too_long.map(|(path, lines)| format!("{path}: {what} of {lines} lines")).collect()
}

#[test]
fn no_file_and_no_function_grows_beyond_its_limit() {
    let (ratchet, now) = (Ratchet::read(), Ratchet::of(&sources()));
    let mut wrong = grown("a file", &ratchet.file_lines, &now.file_lines);
    wrong.extend(grown("a function", &ratchet.function_lines, &now.function_lines));
    assert!(
        wrong.is_empty(),
        "a file may have {FILE_LINES} lines, a function {FUNCTION_LINES}, one of a test {TEST_FUNCTION_LINES}: {wrong:#?}"
    );
}

#[test]
fn the_ratchet_holds_nothing_that_is_shorter_by_now() {
    let ratchet = Ratchet::read();
    assert_eq!(ratchet, ratchet.shrunk(&Ratchet::of(&sources())), "run tests/run tidy --shrink");
}

#[test]
#[ignore = "it changes ratchet.toml: tests/run tidy --shrink"]
fn shrink_the_ratchet() {
    Ratchet::read().shrunk(&Ratchet::of(&sources())).write();
}

#[test]
fn no_line_of_a_comment_is_too_long_to_read() {
    let mut wrong = Vec::new();
    for source in sources() {
        let comments = source.text.lines().enumerate().filter(|(_, line)| line.trim_start().starts_with("//"));
        let long = comments.filter(|(_, line)| line.chars().count() > LINE_CHARACTERS);
        wrong.extend(long.map(|(index, _)| format!("{}:{}", source.path.display(), index + 1)));
    }
    assert!(wrong.is_empty(), "longer than {LINE_CHARACTERS} characters: {wrong:#?}");
}

#[test]
fn growth_is_noticed_and_a_ratchet_only_shrinks() {
    let sizes = |sizes: &[(&str, usize)]| -> Sizes { sizes.iter().map(|(p, n)| ((*p).to_owned(), *n)).collect() };
    let old = Ratchet { file_lines: sizes(&[("a.rs", 500), ("b.rs", 500), ("c.rs", 500)]), ..Ratchet::default() };
    let new = Ratchet { file_lines: sizes(&[("a.rs", 600), ("b.rs", 450), ("d.rs", 401)]), ..Ratchet::default() };
    let grown = grown("a file", &old.file_lines, &new.file_lines);
    assert_eq!(grown, ["a.rs: a file of 600 lines", "d.rs: a file of 401 lines"]);
    assert_eq!(old.shrunk(&new).file_lines, sizes(&[("a.rs", 500), ("b.rs", 450)]));
}
