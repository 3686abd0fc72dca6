//! Rows in the binary format of Postgres' `COPY`, which costs the server half of what the same rows cost it as arrays.

use time::OffsetDateTime;
use time::macros::datetime;
use uuid::Uuid;

/// Postgres counts its microseconds from here.
const EPOCH: OffsetDateTime = datetime!(2000-01-01 00:00 UTC);

const SIGNATURE: &[u8] = b"PGCOPY\n\xff\r\n\0";

/// No flags, and no bytes that extend the header.
const HEADER: [u8; 8] = [0; 8];

/// Where a row would say how many fields it has.
const NO_MORE_ROWS: i16 = -1;

/// Where a field would say how long it is.
const NULL: i32 = -1;

/// Rows, one after the other, each with all its fields in order.
pub(super) struct Rows {
    bytes: Vec<u8>,
    fields: i16,
}

impl Rows {
    /// Rows with so many fields each, of about so many bytes together.
    pub(super) fn new(fields: i16, about_bytes: usize) -> Self {
        let mut bytes = Vec::with_capacity(about_bytes);
        bytes.extend_from_slice(SIGNATURE);
        bytes.extend_from_slice(&HEADER);
        Self { bytes, fields }
    }

    pub(super) fn begin_row(&mut self) -> &mut Self {
        self.bytes.extend_from_slice(&self.fields.to_be_bytes());
        self
    }

    pub(super) fn uuid(&mut self, id: Uuid) -> &mut Self {
        self.bytes(id.as_bytes())
    }

    pub(super) fn text(&mut self, text: &str) -> &mut Self {
        self.bytes(text.as_bytes())
    }

    pub(super) fn optional_text(&mut self, text: Option<&str>) -> &mut Self {
        match text {
            Some(text) => self.text(text),
            None => self.null(),
        }
    }

    pub(super) fn time(&mut self, time: OffsetDateTime) -> &mut Self {
        let micros = (time - EPOCH).whole_microseconds();
        self.bytes(&i64::try_from(micros).unwrap_or(i64::MAX).to_be_bytes())
    }

    pub(super) fn optional_time(&mut self, time: Option<OffsetDateTime>) -> &mut Self {
        match time {
            Some(time) => self.time(time),
            None => self.null(),
        }
    }

    pub(super) fn bytes(&mut self, value: &[u8]) -> &mut Self {
        self.written(|out| out.extend_from_slice(value))
    }

    /// A field that is written in its place.
    pub(super) fn written(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> &mut Self {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&NULL.to_be_bytes());
        let value = self.bytes.len();
        write(&mut self.bytes);
        let length = i32::try_from(self.bytes.len() - value).expect("what a request brings is far below 2 GiB");
        self.bytes[start..value].copy_from_slice(&length.to_be_bytes());
        self
    }

    fn null(&mut self) -> &mut Self {
        self.bytes.extend_from_slice(&NULL.to_be_bytes());
        self
    }

    /// All of it, with its end.
    pub(super) fn end(mut self) -> Vec<u8> {
        self.bytes.extend_from_slice(&NO_MORE_ROWS.to_be_bytes());
        self.bytes
    }
}
