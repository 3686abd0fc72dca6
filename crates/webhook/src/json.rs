//! Finds a few members in JSON without parsing the rest. It makes one pass, does not recurse into other members, and
//! returns every member with its original bytes.

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::Unreadable;

/// The most events in one request. A request with more becomes one unreadable event.
pub const EVENTS_MAX: usize = 10_000;

/// The deepest nesting of large JSON. No provider comes near it; deeper JSON is meant to cost us time.
const DEPTH_MAX: usize = 128;

/// Up to this size JSON may be nested to any depth, because reading it takes little time.
const NESTED_FREELY_BYTES: usize = 1024 * 1024;

/// Stops at the first bracket that is too deep, so that the deepest nesting costs the least time.
fn refuse_deep_nesting(json: &[u8]) -> Result<(), Unreadable> {
    if json.len() <= NESTED_FREELY_BYTES {
        return Ok(());
    }
    let mut depth = 0_usize;
    let mut bytes = json.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => skip_string(&mut bytes),
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > DEPTH_MAX {
            return Err(Unreadable(format!("the body is large and nested more than {DEPTH_MAX} levels deep")));
        }
    }
    Ok(())
}

fn skip_string(bytes: &mut std::slice::Iter<'_, u8>) {
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => drop(bytes.next()),
            b'"' => return,
            _ => {}
        }
    }
}

/// Checks that `bytes` are JSON, and nothing more.
pub fn parse(bytes: &[u8]) -> Result<&RawValue, Unreadable> {
    refuse_deep_nesting(bytes)?;
    serde_json::from_slice(bytes).map_err(|error| unreadable("the body is not JSON", &error))
}

/// The members of an object that have these names. A name that occurs twice is an error, because either could be meant.
///
/// ```
/// let body = br#"{"id":"evt_1","data":{"a":[1,2]},"type":"t"}"#;
/// let [id, data, missing] = hookfast_webhook::json::members(body, ["id", "data", "missing"]).unwrap();
/// assert_eq!(hookfast_webhook::json::text(id), Some("evt_1".to_owned()));
/// assert_eq!(data.map(|data| data.get()), Some(r#"{"a":[1,2]}"#));
/// assert!(missing.is_none());
/// ```
pub fn members<'a, const N: usize>(
    object: &'a (impl AsRef<[u8]> + ?Sized),
    names: [&str; N],
) -> Result<[Option<&'a RawValue>; N], Unreadable> {
    let mut found = [None; N];
    for_each_member(object.as_ref(), |name, take| {
        if let Some(place) = names.iter().position(|wanted| *wanted == name) {
            let value = take()?;
            if found[place].replace(value).is_some() {
                return Err(format!("`{}` occurs twice", names[place]));
            }
        }
        Ok(())
    })?;
    Ok(found)
}

/// The value at each of these paths of member names. An empty path means the whole JSON.
pub fn select<'a, P: AsRef<[String]>>(json: &'a [u8], paths: &[P]) -> Result<Vec<Option<&'a RawValue>>, Unreadable> {
    refuse_deep_nesting(json)?;
    let mut found = vec![None; paths.len()];
    let wanted: Vec<_> = paths.iter().map(AsRef::as_ref).enumerate().collect();
    descend(json, &wanted, &mut found)?;
    Ok(found)
}

fn descend<'a>(
    json: &'a [u8],
    wanted: &[(usize, &[String])],
    found: &mut [Option<&'a RawValue>],
) -> Result<(), Unreadable> {
    for (index, _) in wanted.iter().filter(|(_, path)| path.is_empty()) {
        found[*index] = Some(parse(json)?);
    }
    let deeper = wanted.iter().any(|(_, path)| !path.is_empty());
    // A path through a value that is not an object finds nothing.
    if !deeper || !begins_with(json, b'{') {
        return Ok(());
    }
    let mut seen = Vec::new();
    visit_members(json, |name, take| {
        let below: Vec<_> = wanted
            .iter()
            .filter_map(|(index, path)| {
                path.split_first().filter(|(first, _)| *first == name).map(|(_, rest)| (*index, rest))
            })
            .collect();
        if below.is_empty() {
            return Ok(());
        }
        // All paths in `below` begin with this name, so the index of the first one stands for the name.
        if seen.contains(&below[0].0) {
            return Err(format!("`{}` occurs twice", name.escape_debug()));
        }
        seen.push(below[0].0);
        descend(take()?.get().as_bytes(), &below, found).map_err(|problem| problem.0)
    })
}

/// The elements of an array, with their original bytes. There may be up to [`EVENTS_MAX`].
pub fn elements(array: &[u8]) -> Result<Vec<&RawValue>, Unreadable> {
    refuse_deep_nesting(array)?;
    struct Elements;
    impl<'de> Visitor<'de> for Elements {
        type Value = Vec<&'de RawValue>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an array")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> Result<Self::Value, A::Error> {
            let mut elements = Vec::new();
            while let Some(element) = array.next_element()? {
                if elements.len() == EVENTS_MAX {
                    return Err(serde::de::Error::custom("too many elements"));
                }
                elements.push(element);
            }
            Ok(elements)
        }
    }
    if !begins_with(array, b'[') {
        return Err(Unreadable("an array was expected".into()));
    }
    let mut deserializer = serde_json::Deserializer::from_slice(array);
    let elements = deserializer.deserialize_seq(Elements).and_then(|elements| deserializer.end().map(|()| elements));
    elements.map_err(|error| unreadable("this is not a valid array, or it has too many elements", &error))
}

/// Checks the first byte. The parser would read a string of megabytes to its end only to report that it is no object.
fn begins_with(json: &[u8], mark: u8) -> bool {
    json.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&mark)
}

/// Calls `visit` for each member in order, with its name and a way to read its value. Values that `visit` does not read
/// are skipped.
pub fn for_each_member<'a>(
    object: &'a [u8],
    visit: impl FnMut(&str, &mut dyn FnMut() -> Result<&'a RawValue, String>) -> Result<(), String>,
) -> Result<(), Unreadable> {
    refuse_deep_nesting(object)?;
    visit_members(object, visit)
}

/// Like [`for_each_member`], for JSON whose depth was already checked.
fn visit_members<'a>(
    object: &'a [u8],
    mut visit: impl FnMut(&str, &mut dyn FnMut() -> Result<&'a RawValue, String>) -> Result<(), String>,
) -> Result<(), Unreadable> {
    if !begins_with(object, b'{') {
        return Err(Unreadable("the body is not a JSON object".into()));
    }
    let mut problem = None;
    let mut deserializer = serde_json::Deserializer::from_slice(object);
    let members = Members { visit: &mut visit, problem: &mut problem };
    let result = members.deserialize(&mut deserializer).and_then(|()| deserializer.end());
    match (problem, result) {
        (Some(problem), _) => Err(Unreadable(problem)),
        (None, Err(error)) => Err(unreadable("the body is not a JSON object", &error)),
        (None, Ok(())) => Ok(()),
    }
}

type Visit<'v, 'a> = dyn FnMut(&str, &mut dyn FnMut() -> Result<&'a RawValue, String>) -> Result<(), String> + 'v;

struct Members<'v, 'a> {
    visit: &'v mut Visit<'v, 'a>,
    problem: &'v mut Option<String>,
}

impl<'de> DeserializeSeed<'de> for Members<'_, 'de> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Members<'_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(name) = map.next_key_seed(Name)? {
            let mut failed = None;
            let mut taken = false;
            let mut take = || {
                taken = true;
                map.next_value::<&'de RawValue>().map_err(|error| {
                    failed = Some(error);
                    String::new()
                })
            };
            let visited = (self.visit)(&name, &mut take);
            if let Some(error) = failed {
                return Err(error);
            }
            if let Err(problem) = visited {
                *self.problem = Some(problem);
                return Err(serde::de::Error::custom("stopped"));
            }
            if !taken {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
}

/// Reads a name, and borrows it if it has no escapes.
struct Name;

impl<'de> DeserializeSeed<'de> for Name {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Name {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_borrowed_str<E>(self, name: &'de str) -> Result<Self::Value, E> {
        Ok(name.into())
    }

    fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
        Ok(name.to_owned().into())
    }
}

/// The text of a string.
pub fn text(value: Option<&RawValue>) -> Option<String> {
    serde_json::from_str(value?.get()).ok()
}

/// The text of a string or a number, because providers sometimes send one in place of the other. `None` for an empty
/// string.
pub fn scalar(value: Option<&RawValue>) -> Option<String> {
    let raw = value?.get();
    match raw.as_bytes().first()? {
        b'"' => serde_json::from_str(raw).ok().filter(|text: &String| !text.is_empty()),
        b'-' | b'0'..=b'9' => Some(raw.into()),
        _ => None,
    }
}

/// A value's bytes as a slice of the body that contains it, without copying them.
pub fn slice_of(body: &Bytes, value: &RawValue) -> Bytes {
    body.slice_ref(value.get().as_bytes())
}

/// Names the place of the error. The parser's own message is left out, because it quotes the payload.
fn unreadable(problem: &str, error: &serde_json::Error) -> Unreadable {
    Unreadable(format!("{problem} (line {}, column {})", error.line(), error.column()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> Vec<String> {
        text.split('.').map(str::to_owned).collect()
    }

    #[test]
    fn paths_lead_through_objects_only() {
        let json = br#" {"a":{"b":{"c":1}},"x":[{"b":2}],"n":null,"d":"e"} "#;
        let found = select(json, &[path("a.b.c"), path("a.b"), path("x.b"), path("n.b"), path("d")]).expect("JSON");
        let found: Vec<_> = found.into_iter().map(|value| value.map(RawValue::get)).collect();
        assert_eq!(found, [Some("1"), Some(r#"{"c":1}"#), None, None, Some("\"e\"")]);
        assert!(select(b"[1]", &[path("a")]).expect("no path leads into an array")[0].is_none());
    }

    #[test]
    fn a_doubled_member_is_an_error_only_where_it_is_asked_for() {
        let json = br#"{"a":1,"a":2,"b":3,"\u0062":4}"#;
        assert!(members(json, ["a"]).is_err() && members(json, ["b"]).is_err());
        assert!(members(json, ["c"]).is_ok());
        assert!(select(json, &[path("a")]).is_err());
        for doubled in [r#"{"a":{"b":1},"a":{"b":1}}"#, r#"{"a":{"b":1},"a":{}}"#, r#"{"a":null,"a":{"b":1}}"#] {
            assert!(select(doubled.as_bytes(), &[path("a.b")]).is_err(), "{doubled}");
        }
    }

    #[test]
    fn what_follows_the_end_is_an_error() {
        assert!(members(b"{} x", ["a"]).is_err() && elements(b"[] ]").is_err() && parse(b"1 2").is_err());
        assert_eq!(elements(b" [1, {\"a\":[]} ] ").expect("an array").len(), 2);
    }

    #[test]
    fn deep_nesting_is_skipped_and_taken_without_recursion() {
        let deep = format!(r#"{{"skip":{0},"take":{0}}}"#, "[".repeat(200_000) + &"]".repeat(200_000));
        let [taken] = members(&deep, ["take"]).expect("JSON");
        assert_eq!(taken.map(|value| value.get().len()), Some(400_000));
    }

    #[test]
    fn large_json_must_not_be_nested_deeply() {
        let nested = |levels: usize, text: usize| {
            format!(r#"{{"text":"{}","deep":{}1{}}}"#, "[\\\"{".repeat(text), "[".repeat(levels), "]".repeat(levels))
        };
        let large = NESTED_FREELY_BYTES / 3;
        assert!(members(&nested(DEPTH_MAX - 1, large), ["deep"]).is_ok(), "brackets in a string do not count");
        assert!(members(&nested(DEPTH_MAX, large), ["deep"]).is_err());
        assert!(members(&nested(DEPTH_MAX * 10, 1), ["deep"]).is_ok(), "it is not large");
        assert!(parse("[".repeat(2 * NESTED_FREELY_BYTES).as_bytes()).is_err());
    }

    #[test]
    fn there_is_an_end_to_the_number_of_elements() {
        let array = |count: usize| format!("[{}0]", "0,".repeat(count - 1));
        assert_eq!(elements(array(EVENTS_MAX).as_bytes()).map(|all| all.len()), Ok(EVENTS_MAX));
        assert!(elements(array(EVENTS_MAX + 1).as_bytes()).is_err());
    }

    #[test]
    fn scalars_are_text_or_numbers() {
        let scalar = |json: &str| scalar(parse(json.as_bytes()).ok());
        assert_eq!(scalar("\"a\\/b\""), Some("a/b".into()));
        assert_eq!(scalar("16200000000001"), Some("16200000000001".into()));
        for none in ["\"\"", "null", "true", "{}", "[]"] {
            assert_eq!(scalar(none), None, "{none}");
        }
    }
}
