//! The parameters of a form or query as Twilio signs them: decoded and sorted, each pair once.
//!
//! Reading uses the same list as proving. The signature still matches when pairs are reordered or repeated, so a
//! request that was changed in this way must also be read the same.

use hookfast_webhook::form;

/// The most parameters. Twilio sends a few dozen. Sorting millions would take seconds, before anything is proved.
const PARAMETERS_MAX: usize = 10_000;

/// All pairs, in one allocation: a body of many tiny pairs must not take many times its size here.
#[derive(Debug)]
pub(crate) struct Parameters {
    text: String,
    places: Vec<Place>,
}

/// The position of a pair in the text.
#[derive(Debug, Clone, Copy)]
struct Place {
    start: usize,
    name_end: usize,
    end: usize,
}

impl Place {
    fn pair(self, text: &str) -> (&str, &str) {
        let part = |from: usize, to: usize| text.get(from..to).unwrap_or_default();
        (part(self.start, self.name_end), part(self.name_end, self.end))
    }
}

impl Parameters {
    /// The parameters, unless there are too many.
    pub(crate) fn parse(form: &[u8]) -> Option<Self> {
        let mut text = String::with_capacity(form.len());
        let mut places = Vec::new();
        for (name, value) in form::pairs(form) {
            if places.len() == PARAMETERS_MAX {
                return None;
            }
            let start = text.len();
            text.push_str(&name);
            let name_end = text.len();
            text.push_str(&value);
            places.push(Place { start, name_end, end: text.len() });
        }
        places.sort_unstable_by(|a, b| a.pair(&text).cmp(&b.pair(&text)));
        places.dedup_by(|a, b| a.pair(&text) == b.pair(&text));
        Some(Self { text, places })
    }

    pub(crate) fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.places.iter().map(|place| place.pair(&self.text))
    }

    /// The value of a name, if the name has exactly one value and that value is not empty.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let first = self.places.partition_point(|place| place.pair(&self.text).0 < name);
        let rest = self.places.get(first..).unwrap_or_default().iter().map(|place| place.pair(&self.text));
        let mut values = rest.take_while(|(found, _)| *found == name).map(|(_, value)| value);
        let value = values.next().filter(|value| !value.is_empty())?;
        values.next().is_none().then_some(value)
    }

    /// The text that is signed after the URL.
    pub(crate) fn signed_text(&self) -> String {
        let mut signed = String::with_capacity(self.text.len());
        self.pairs().for_each(|(name, value)| signed.extend([name, value]));
        signed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(form: &[u8]) -> Parameters {
        Parameters::parse(form).expect("few parameters")
    }

    #[test]
    fn pairs_are_decoded_sorted_and_unique() {
        let parameters = parse(b"b=2&a=%2B+x&b=1&&b=2&c&B=&a%3D=");
        assert_eq!(parameters.signed_text(), "Ba+ xa=b1b2c");
    }

    #[test]
    fn names_are_sorted_by_code_point() {
        let parameters = parse("𐀀=4&ﬀ=3&é=2&z=1".as_bytes());
        assert_eq!(parameters.signed_text(), "z1é2ﬀ3𐀀4");
    }

    #[test]
    fn a_value_must_be_the_only_one_and_not_empty() {
        let parameters = parse(b"a=1&a=1&b=1&b=2&c=&ab=3");
        assert_eq!(parameters.get("a"), Some("1"), "the same twice is the same");
        assert_eq!(parameters.get("ab"), Some("3"));
        for none in ["b", "c", "d", ""] {
            assert_eq!(parameters.get(none), None, "{none}");
        }
    }

    #[test]
    fn there_is_an_end_to_the_number_of_parameters() {
        let form = |count: usize| (0..count).rev().map(|number| format!("n{number}=&")).collect::<String>();
        assert_eq!(parse(form(PARAMETERS_MAX).as_bytes()).places.len(), PARAMETERS_MAX);
        assert!(Parameters::parse(form(PARAMETERS_MAX + 1).as_bytes()).is_none());
    }
}
