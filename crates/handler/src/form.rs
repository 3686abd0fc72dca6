//! Payloads of forms (`application/x-www-form-urlencoded`), as Twilio and Slack send them.

use std::borrow::Cow;
use std::fmt::Display;
use std::str::FromStr;

use serde::de::value::{Error, MapDeserializer};
use serde::de::{DeserializeOwned, Deserializer, Error as _, IntoDeserializer, Visitor};
use serde::forward_to_deserialize_any;

/// Reads the fields of a form into a payload. Each field is a text; numbers and booleans are read from their texts.
pub(crate) fn read<P: DeserializeOwned>(body: &[u8]) -> Result<P, Error> {
    let fields = form_urlencoded::parse(body).map(|(name, value)| (name, Field(value)));
    P::deserialize(MapDeserializer::new(fields))
}

struct Field<'a>(Cow<'a, str>);

impl Field<'_> {
    fn parse<T: FromStr<Err: Display>>(&self) -> Result<T, Error> {
        self.0.parse().map_err(|error| Error::custom(format!("`{}`: {error}", self.0.escape_debug())))
    }
}

impl<'de> IntoDeserializer<'de> for Field<'de> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

macro_rules! parsed {
    ($($method:ident $visit:ident)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            visitor.$visit(self.parse()?)
        })*
    };
}

impl<'de> Deserializer<'de> for Field<'de> {
    type Error = Error;

    parsed! {
        deserialize_bool visit_bool
        deserialize_i8 visit_i8
        deserialize_i16 visit_i16
        deserialize_i32 visit_i32
        deserialize_i64 visit_i64
        deserialize_u8 visit_u8
        deserialize_u16 visit_u16
        deserialize_u32 visit_u32
        deserialize_u64 visit_u64
        deserialize_f32 visit_f32
        deserialize_f64 visit_f64
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_string(self.0.into_owned())
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_enum(self.0.into_owned().into_deserializer())
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    forward_to_deserialize_any! {
        char str string bytes byte_buf unit unit_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    /// A part of what Twilio sends for a text message.
    const MESSAGE: &[u8] =
        b"ToCountry=US&SmsMessageSid=SM1&NumMedia=2&FromCity=&Body=caf%C3%A9+%26+cake&From=%2B15017122661";

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Message {
        sms_message_sid: String,
        from: String,
        body: String,
        num_media: u32,
        from_city: Option<String>,
        from_zip: Option<String>,
    }

    #[test]
    fn the_fields_of_a_message_of_twilio_are_read() {
        let message: Message = read(MESSAGE).expect("it fits");
        let expected = Message {
            sms_message_sid: "SM1".into(),
            from: "+15017122661".into(),
            body: "café & cake".into(),
            num_media: 2,
            from_city: Some(String::new()),
            from_zip: None,
        };
        assert_eq!(message, expected);
    }

    #[test]
    fn a_field_that_does_not_fit_is_said() {
        let error = read::<Message>(b"SmsMessageSid=SM1&From=x&Body=x&NumMedia=many").expect_err("no number");
        assert!(error.to_string().contains("`many`"), "{error}");
    }
}
