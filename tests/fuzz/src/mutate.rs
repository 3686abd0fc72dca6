//! Spoiling requests, a little or a lot.

use fastrand::Rng;
use hookfast_webhook::Request;
use http::{HeaderName, HeaderValue, Method};

/// Long inputs are for `hostile`: here many short ones find more.
const BODY_MAX_BYTES: usize = 32 * 1024;

/// Pieces that parsers stumble over.
const TOKENS: [&[u8]; 77] = [
    b"{",
    b"}",
    b"[",
    b"]",
    b"\"",
    b",",
    b":",
    b";",
    b"=",
    b".",
    b"&",
    b"+",
    b"%",
    b"#",
    b"?",
    b"/",
    b"\\",
    b" ",
    b"\n",
    b"\r\n",
    b"\0",
    b"\x7f",
    b"{}",
    b"[]",
    b"\"\"",
    b"null",
    b"true",
    b"false",
    b"0",
    b"-0",
    b"-1",
    b"1e999",
    b"-1e-999",
    b"0.1e+5",
    b"01",
    b"NaN",
    b"Infinity",
    b"1e11",
    b"99999999999",
    b"100000000000",
    b"253402300799",
    b"253402300800",
    b"-377705116800",
    b"-377705116801",
    b"9223372036854775807",
    b"-9223372036854775808",
    b"18446744073709551616",
    b"99999999999999999999999999999999999999999",
    b"\\u0000",
    b"\\ud800",
    b"\\udc00\\ud800",
    b"\\u00e9",
    b"\\\"",
    b"\\x",
    b"\xff",
    b"\xc3\x28",
    b"\xed\xa0\x80",
    b"\xf4\x90\x80\x80",
    b"\xef\xbb\xbf",
    "\u{202e}".as_bytes(),
    "é".as_bytes(),
    "😀".as_bytes(),
    b"%00",
    b"%ff",
    b"%2",
    b"%zz",
    b"%26",
    b"%3D",
    b"bodySHA256=",
    b"hub.mode=subscribe",
    b"v1=",
    b"t=",
    b"sha256=",
    b"9999-12-31T23:59:59.999999999-23:59",
    b"0000-01-01T00:00:00+23:59",
    b"://",
    b"a:443",
];

/// What begins and ends a level of nesting.
const BRACKETS: [(&[u8], &[u8]); 3] = [(b"[", b"]"), (b"{\"a\":", b"}"), (b"[{\"a\":[", b"]}]")];

const METHODS: [Method; 6] = [Method::GET, Method::POST, Method::PUT, Method::HEAD, Method::OPTIONS, Method::DELETE];

/// Changes one to four things. `donor` is another request, from which pieces are taken.
pub(crate) fn request(rng: &mut Rng, request: &mut Request, donor: &Request, proof_headers: &[HeaderName]) {
    for _ in 0..rng.u8(1..5) {
        match rng.u8(0..12) {
            0..5 => body(rng, request, donor),
            5..8 => header(rng, request, donor, proof_headers),
            8 => request.url = text(rng, &request.url, donor.url.as_bytes()),
            9 => request.method = METHODS[rng.usize(..METHODS.len())].clone(),
            10 => move_border(rng, request, proof_headers),
            _ => request.body = donor.body.clone(),
        }
    }
}

/// Changes the body only.
pub(crate) fn body(rng: &mut Rng, request: &mut Request, donor: &Request) {
    let mut changed = request.body.to_vec();
    bytes(rng, &mut changed, &donor.body);
    changed.truncate(BODY_MAX_BYTES);
    request.body = changed.into();
}

fn text(rng: &mut Rng, text: &str, donor: &[u8]) -> String {
    let mut changed = text.as_bytes().to_vec();
    bytes(rng, &mut changed, donor);
    String::from_utf8_lossy(&changed).into_owned()
}

fn bytes(rng: &mut Rng, bytes: &mut Vec<u8>, donor: &[u8]) {
    let range = range(rng, bytes.len());
    let place = range.start;
    match rng.u8(0..12) {
        0 | 1 if place < bytes.len() => bytes[place] ^= 1 << rng.u8(..8),
        2 if place < bytes.len() => bytes[place] = rng.u8(..),
        3 => drop(bytes.drain(range)),
        4 => bytes.truncate(place),
        5 => {
            let again = bytes[range.clone()].to_vec();
            bytes.splice(range.end..range.end, again);
        }
        6 => {
            let taken = self::range(rng, donor.len());
            bytes.splice(range, donor[taken].iter().copied());
        }
        7 => {
            let (open, close) = BRACKETS[rng.usize(..BRACKETS.len())];
            let depth = 1 << rng.u8(..12);
            let inner = bytes[range.clone()].to_vec();
            bytes.splice(range, [open.repeat(depth), inner, close.repeat(depth)].concat());
        }
        8 | 9 => {
            let value = value(rng, bytes);
            bytes.splice(value, token(rng).iter().copied());
        }
        _ => drop(bytes.splice(place..place, token(rng).iter().copied())),
    }
}

fn token(rng: &mut Rng) -> &'static [u8] {
    TOKENS[rng.usize(..TOKENS.len())]
}

/// A short piece, or any.
fn range(rng: &mut Rng, length: usize) -> std::ops::Range<usize> {
    let start = rng.usize(..=length);
    let most = if rng.bool() { 8.min(length - start) } else { length - start };
    start..start + rng.usize(..=most)
}

/// What stands between a mark such as `:` and the next such as `,`.
fn value(rng: &mut Rng, bytes: &[u8]) -> std::ops::Range<usize> {
    let from = rng.usize(..=bytes.len());
    let find =
        |from: usize, marks: &[u8]| bytes[from..].iter().position(|byte| marks.contains(byte)).map(|at| from + at);
    let start = find(from, b":=,[").map_or(from, |mark| mark + 1);
    start..find(start, b",}]&;").unwrap_or(bytes.len())
}

fn header(rng: &mut Rng, request: &mut Request, donor: &Request, proof_headers: &[HeaderName]) {
    let Some(name) = header_name(rng, request, proof_headers) else { return };
    let value = request.headers.get(&name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    let of_donor = donor.headers.get(&name).or_else(|| donor.headers.values().next()).cloned();
    let of_donor = of_donor.unwrap_or_else(|| HeaderValue::from_static("1"));
    let changed = text(rng, &value.unwrap_or_default(), of_donor.as_bytes());
    match (rng.u8(0..8), HeaderValue::from_bytes(changed.as_bytes())) {
        (0, _) => drop(request.headers.remove(name)),
        (1, _) => drop(request.headers.insert(name, of_donor)),
        (2, Ok(changed)) => drop(request.headers.append(name, changed)),
        (_, Ok(changed)) => drop(request.headers.insert(name, changed)),
        (_, Err(_)) => {}
    }
}

/// Most often one that matters.
fn header_name(rng: &mut Rng, request: &Request, proof_headers: &[HeaderName]) -> Option<HeaderName> {
    match (rng.u8(..4), proof_headers, request.headers.keys_len()) {
        (0, _, count @ 1..) | (_, [], count @ 1..) => request.headers.keys().nth(rng.usize(..count)).cloned(),
        (_, [], 0) => None,
        (_, proof_headers, _) => Some(proof_headers[rng.usize(..proof_headers.len())].clone()),
    }
}

/// Moves the beginning of the body to where something ends that may be signed before it, or back. If nothing stands
/// between the two in the signed text, the signature stays good.
fn move_border(rng: &mut Rng, request: &mut Request, proof_headers: &[HeaderName]) {
    let name = header_name(rng, request, proof_headers).filter(|_| rng.u8(..4) > 0);
    let before = match &name {
        Some(name) => request.headers.get(name).map(|value| value.as_bytes().to_vec()).unwrap_or_default(),
        None => request.url.clone().into_bytes(),
    };
    let whole = [&before[..], &request.body].concat();
    let border = (before.len() + rng.usize(..9)).saturating_sub(4).min(whole.len());
    let (before, body) = whole.split_at(border);
    match (name, HeaderValue::from_bytes(before), std::str::from_utf8(before)) {
        (Some(name), Ok(value), Ok(_)) => drop(request.headers.insert(name, value)),
        (None, _, Ok(url)) => request.url = url.to_owned(),
        _ => return,
    }
    request.body = body.to_vec().into();
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;

    use super::*;

    fn plain() -> Request {
        let headers = HeaderMap::from_iter([(SIGNATURE, HeaderValue::from_static("t=1,v1=00"))]);
        Request { method: Method::POST, url: "https://a.example/x?y=1".into(), headers, body: "{\"a\":[1,2]}".into() }
    }

    const SIGNATURE: HeaderName = HeaderName::from_static("signature");

    fn mutated(seed: u64) -> Request {
        let mut changed = plain();
        let donor = Request { body: "name=value&x=%41".into(), ..plain() };
        request(&mut Rng::with_seed(seed), &mut changed, &donor, &[SIGNATURE]);
        changed
    }

    #[test]
    fn a_seed_always_gives_the_same_request() {
        for seed in 0..1000 {
            let [one, other] = [mutated(seed), mutated(seed)];
            assert_eq!(
                (&one.method, &one.url, &one.headers, &one.body),
                (&other.method, &other.url, &other.headers, &other.body)
            );
        }
    }

    #[test]
    fn every_part_is_changed_at_times_and_stays_short_and_writable() {
        let plain = plain();
        let mut changed = [0; 4];
        for seed in 0..1000 {
            let request = mutated(seed);
            changed[0] += usize::from(request.method != plain.method);
            changed[1] += usize::from(request.url != plain.url);
            changed[2] += usize::from(request.headers != plain.headers);
            changed[3] += usize::from(request.body != plain.body);
            assert!(request.body.len() <= BODY_MAX_BYTES + 8);
            assert!(request.headers.values().all(|value| std::str::from_utf8(value.as_bytes()).is_ok()), "{request:?}");
        }
        assert!(changed.iter().all(|count| (50..950).contains(count)), "{changed:?}");
    }

    #[test]
    fn a_border_moves_and_nothing_is_lost() {
        for seed in 0..100 {
            let mut request = plain();
            move_border(&mut Rng::with_seed(seed), &mut request, &[SIGNATURE]);
            let parts = [request.headers[SIGNATURE].as_bytes(), request.url.as_bytes(), &request.body];
            assert_eq!(parts.concat().len(), 9 + plain().url.len() + plain().body.len());
        }
    }
}
