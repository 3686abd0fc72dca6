//! The error messages for wrong files.

use std::collections::BTreeSet;
use std::fs;

use crate::{Description, FILES, Problem};

/// A file with every key that can be wrong, one on each line.
const FILE: &str = r#"name = "acme"
title = "Acme"
documentation = "https://acme.example"
setup = "1. Nothing."

[[signature]]
from = "header:acme-signature"
list = { separator = ",", assign = "=", name = "v1" }
encoding = "hex"
algorithm = "hmac-sha256"
signed = "{entry:t}.{body}"

[freshness]
time = "entry:t"

[event]
type = ["{json:type}", "other"]
dedupe = "{json:id}"

[[handshake]]
when = { "json:type" = "ping" }
answer = { json = { token = "{json:token|hmac-sha256-hex}" } }

[answer]
text = "ok"

[[sample]]
kind = "first"
body = '{}'

[[sample]]
kind = "second"
body = '{}'
"#;

/// The problem of the file after `old` is replaced by `new`.
fn problem(old: &str, new: &str) -> Problem {
    assert!(FILE.contains(old), "{old}");
    Description::parse(&FILE.replacen(old, new, 1)).expect_err(new)
}

#[test]
fn every_file_is_embedded() {
    let folder = fs::read_dir(env!("CARGO_MANIFEST_DIR")).expect("this crate's folder");
    let names = folder.map(|entry| entry.expect("an entry").file_name().into_string().expect("a name"));
    let files: BTreeSet<_> = names.filter(|name| name.ends_with(".toml") && name != "Cargo.toml").collect();
    assert_eq!(files, FILES.iter().map(|(name, _)| format!("{name}.toml")).collect());
}

#[test]
fn every_embedded_file_is_right_and_named_as_it_says() {
    for (name, text) in FILES {
        let description = Description::parse(text).unwrap_or_else(|problem| panic!("{name}.toml: {problem}"));
        assert_eq!(description.name, *name);
        assert!(!description.setup.is_empty() && description.documentation.starts_with("https://"), "{name}");
        assert!(description.contract().contains(&description.title), "{name}");
    }
}

#[test]
fn the_file_of_these_tests_is_right() {
    Description::parse(FILE).unwrap_or_else(|problem| panic!("{problem}"));
}

#[test]
fn what_has_the_wrong_form_is_named_with_its_line_and_what_is_allowed() {
    for (old, new, line, words) in [
        ("title =", "titel =", 2, &["`titel`", "`title`", "`documentation`"][..]),
        ("encoding = \"hex\"", "encodign = \"hex\"", 9, &["`encodign`", "`encoding`", "`algorithm`"]),
        ("\"hex\"", "\"base32\"", 9, &["`base32`", "`hex`", "`base64`"]),
        ("hmac-sha256\"", "md5\"", 10, &["`md5`", "`hmac-sha256`", "`ed25519`", "`ecdsa-p256`"]),
        ("{body}\"", "{boddy}\"", 11, &["`boddy`", "header:NAME", "body, url"]),
        ("{body}\"", "{body\"", 11, &["`{` has no `}`"]),
        ("header:acme-signature", "cookie:a", 7, &["`cookie:a` is not a place", "header:NAME", "json:PATH"]),
        ("header:acme-signature", "header:a b", 7, &["`a b` is not the name of a header"]),
        ("\"{json:id}\"", "\"{jsn:id}\"", 18, &["`jsn:id` is not a place", "json:PATH"]),
        ("\"{json:type}\", ", "\"{jsn:type}\", ", 17, &["`jsn:type` is not a place", "json:PATH"]),
        ("\"{json:id}\"", "7", 18, &["integer", "a template in quotes, or a list of templates"]),
        ("\"json:type\" = \"ping\"", "\"jsn:type\" = \"ping\"", 21, &["`jsn:type` is not a place"]),
        ("{json:token|", "{jsn:token|", 22, &["`jsn:token` is not a place"]),
        ("when =", "method = \"PUT\"\nwhen =", 21, &["`PUT`", "GET, HEAD, POST"]),
        ("text =", "headers = { \"a b\" = \"\" }\ntext =", 25, &["`a b` is not the name of a header"]),
        ("signed =", "key = { encoding = \"utf8\" }\nsigned =", 11, &["`utf8`", "`text`", "`hex`", "`base64`"]),
        ("type = [", "each = \"items\"\ntype = [", 17, &["`items` is not an array", "json:PATH"]),
        ("separator = \",\"", "separator = \", \"", 8, &["character"]),
        ("name = \"acme\"", "name = ", 1, &[""]),
    ] {
        let problem = problem(old, new);
        assert_eq!(problem.line, Some(line), "{new}: {problem}");
        assert!(words.iter().all(|word| problem.problem.contains(word)), "{new}: {problem}");
    }
}

#[test]
fn what_is_missing_is_named() {
    for (old, new, line, word) in [
        ("title = \"Acme\"\n", "", 1, "`title`"),
        ("signed = \"{entry:t}.{body}\"\n", "", 6, "`signed`"),
        ("[event]\ntype = [\"{json:type}\", \"other\"]\ndedupe = \"{json:id}\"\n", "", 1, "`event`"),
        ("dedupe = \"{json:id}\"\n", "", 16, "`dedupe`"),
    ] {
        let problem = problem(old, new);
        assert!(problem.problem.contains("missing") && problem.problem.contains(word), "{problem}");
        assert_eq!(problem.line, Some(line), "{problem}");
    }
}

#[test]
fn what_makes_no_sense_is_named_with_its_key_and_its_line() {
    for (old, new, line, words) in [
        ("name = \"acme\"", "name = \"Acme!\"", 1, &["`name`", "lower-case"][..]),
        (
            "[freshness]",
            "[token]\nfrom = \"header:a\"\n[freshness]",
            13,
            &["`token`", "either [[signature]] or [token]"],
        ),
        ("list = { separator = \",\"", "list = { separator = \"=\"", 8, &["`signature.list`", "different"]),
        ("list =", "prefix = \"v1=\"\nlist =", 8, &["`signature.prefix`", "leave out one"]),
        ("{entry:t}.{body}", "{entry:t}", 11, &["`signature.signed`", "{body}", "covers_events = false"]),
        ("{entry:t}.", "{entry:t}{json:a|hmac-sha256-hex}", 11, &["`signature.signed`", "handshake"]),
        ("header:acme-signature", "entry:t", 7, &["`signature.from`", "header:NAME"]),
        (
            "list = { separator = \",\", assign = \"=\", name = \"v1\" }\n",
            "",
            10,
            &["`signature.signed`", "`signature.list`"],
        ),
        ("signed =", "key = { prefix_needed = true }\nsigned =", 11, &["`signature.key.prefix_needed`", "`prefix`"]),
        ("time = \"entry:t\"", "time = \"header:date\"", 14, &["`freshness.time`", "`header:date`", "`signed`"]),
        ("time = \"entry:t\"", "time = \"entry:u\"", 14, &["`freshness.time`", "`entry:u`"]),
        ("\"{json:id}\"", "\"{entry:t}\"", 18, &["`event.dedupe`", "`entry:`"]),
        ("\"{json:id}\"", "[]", 18, &["`event.dedupe`", "at least one"]),
        ("[\"{json:type}\", \"other\"]", "[]", 17, &["`event.type`", "at least one"]),
        ("[\"{json:type}\"", "[\"{json:type|hmac-sha256-hex}\"", 17, &["`event.type`", "handshake"]),
        ("type = [", "each = \"json:\"\njson_in_form = \"payload\"\ntype = [", 17, &["`event.each`", "`json_in_form`"]),
        ("{ \"json:type\" = \"ping\" }", "{}", 21, &["`handshake.when`", "every request"]),
        ("\"json:type\" = \"ping\"", "\"entry:t\" = \"1\"", 21, &["`handshake.when`", "`entry:`"]),
        ("when =", "method = \"GET\"\nwhen =", 21, &["`handshake.method`", "signed = false"]),
        ("when =", "signed = false\nwhen =", 23, &["`handshake.answer`", "handshake that is signed"]),
        ("text = \"ok\"", "text = \"ok\"\njson = {}", 26, &["`answer.json`", "either"]),
        ("text = \"ok\"", "status = 302", 25, &["`answer.status`", "200 to 299"]),
        ("text = \"ok\"", "headers = { a = \"1\", b = \"2\" }", 25, &["`answer.headers`", "one header"]),
        ("\"second\"", "\"first\"", 32, &["`sample.kind`", "two samples of the kind `first`"]),
        ("\"second\"", "\" \"", 32, &["`sample.kind`", "blank"]),
    ] {
        let problem = problem(old, new);
        assert!(words.iter().all(|word| problem.problem.contains(word)), "{new}: {problem}");
        assert_eq!(problem.line, Some(line), "{new}: {problem}");
    }
}

#[test]
fn a_file_needs_a_proof_and_a_sample() {
    let (start, rest) = FILE.split_once("[[signature]]").expect("it has one");
    let (_, rest) = rest.split_once("[event]").expect("it has one");
    let problem = Description::parse(&format!("{start}[event]{rest}")).expect_err("nothing is proved");
    assert!(problem.to_string().contains("either [[signature]] or [token]"), "{problem}");
    let (start, _) = FILE.split_once("[[sample]]").expect("it has one");
    let problem = Description::parse(&format!("{start}\n")).expect_err("there is no sample");
    assert!(problem.to_string().contains("sample"), "{problem}");
    let problem = Description::parse(&format!("sample = []\n{start}")).expect_err("there is no sample");
    assert_eq!(
        problem.to_string(),
        "line 1: `sample`: write at least one [[sample]], with which the file can be tested"
    );
}
