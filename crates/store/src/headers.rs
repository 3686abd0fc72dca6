//! Headers as they are stored: lines of `name: value`, in order and with repeats, values byte for byte.

use http::HeaderMap;

/// Stored headers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredHeaders(pub(crate) Vec<u8>);

/// Appends the stored form of `headers` to `out`. A value cannot hold a line break: the HTTP parser refuses it.
pub(crate) fn write(headers: &HeaderMap, out: &mut Vec<u8>) {
    for (name, value) in headers {
        out.extend_from_slice(name.as_str().as_bytes());
        out.extend_from_slice(b": ");
        out.extend_from_slice(value.as_bytes());
        out.push(b'\n');
    }
}

impl StoredHeaders {
    /// The headers as pairs, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.0.split(|byte| *byte == b'\n').filter_map(|line| {
            let colon = line.windows(2).position(|pair| pair == b": ")?;
            Some((str::from_utf8(&line[..colon]).ok()?, &line[colon + 2..]))
        })
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn order_repeats_and_odd_bytes_survive() {
        let mut headers = HeaderMap::new();
        headers.append("b", HeaderValue::from_static("1: 2"));
        headers.append("a", HeaderValue::from_bytes(b"\xff\x80").expect("opaque bytes are legal"));
        headers.append("a", HeaderValue::from_static(""));
        let mut out = Vec::new();
        write(&headers, &mut out);
        let stored = StoredHeaders(out);
        let pairs: Vec<_> = stored.iter().collect();
        assert_eq!(pairs, [("b", &b"1: 2"[..]), ("a", b"\xff\x80"), ("a", b"")]);
    }
}
