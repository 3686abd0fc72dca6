//! The requests to send, in their order.

use bytes::Bytes;
use hookfast_webhook::{Provider, Request, SampleOrder, Secret};

use super::SimulateArguments;
use super::sender_clock;

/// Requests that are next to each other are exchanged within windows of this length.
const DISORDER: usize = 8;

/// What is to be sent.
pub(super) struct Traffic {
    /// Everything to send, in its order.
    pub(super) requests: Vec<Request>,
    /// How many different events are in it.
    pub(super) events: usize,
    /// How many requests in it were there before.
    pub(super) duplicates: usize,
}

impl Traffic {
    pub(super) fn make(
        provider: &dyn Provider,
        arguments: &SimulateArguments,
        key: Option<&Secret>,
        url: &str,
    ) -> Result<Self, String> {
        let now = sender_clock(arguments);
        let first = arguments.first.unwrap_or_else(|| u64::try_from(now.unix_timestamp_nanos() / 1000).unwrap_or(1));
        let mut requests = Vec::new();
        let mut events = 0;
        for serial in (0..arguments.count).map(|number| first.wrapping_add(number)) {
            let order = SampleOrder { kind: arguments.event.as_deref(), url, key, now, serial };
            let request = provider.sample(&order).map_err(|problem| problem.to_string())?;
            // A handshake has no events, and cannot be read as if it had.
            events += provider.read(&request).map_or(0, |readings| readings.len());
            requests.push(request);
        }
        let distinct = requests.len();
        add_duplicates(&mut requests, arguments.duplicates);
        if arguments.out_of_order {
            requests.chunks_mut(DISORDER).for_each(<[_]>::reverse);
        }
        if arguments.tamper {
            requests.iter_mut().for_each(tamper);
        }
        let duplicates = requests.len() - distinct;
        Ok(Self { requests, events, duplicates })
    }
}

/// Lets a share of the requests come a second time, a little later.
fn add_duplicates(requests: &mut Vec<Request>, share: f64) {
    let wanted = (requests.len() as f64 * share).round() as usize;
    let Some(step) = requests.len().checked_div(wanted) else { return };
    let mut again = requests.iter().step_by(step.max(1)).take(wanted).cloned().collect::<Vec<_>>().into_iter();
    let mut mixed = Vec::with_capacity(requests.len() + wanted);
    for (index, request) in requests.drain(..).enumerate() {
        mixed.push(request);
        if index % step == step - 1 {
            mixed.extend(again.next());
        }
    }
    mixed.extend(again);
    *requests = mixed;
}

/// Changes one digit or letter in the middle of the body, or, where there is none, at the end of the URL.
fn tamper(request: &mut Request) {
    let mut body = request.body.to_vec();
    let middle = body.len() / 2;
    match body.iter_mut().skip(middle).find(|byte| byte.is_ascii_alphanumeric()) {
        Some(byte) => *byte = if *byte == b'0' { b'1' } else { b'0' },
        None => request.url.push('x'),
    }
    request.body = Bytes::from(body);
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, Method};

    use super::*;

    fn requests(count: usize) -> Vec<Request> {
        let request = |number: usize| Request {
            method: Method::POST,
            url: number.to_string(),
            headers: HeaderMap::new(),
            body: Bytes::new(),
        };
        (0..count).map(request).collect()
    }

    #[test]
    fn a_share_of_the_requests_comes_twice() {
        for (count, share, expected) in [(100, 0.1, 110), (10, 0.0, 10), (3, 1.0, 6), (1, 0.5, 2), (7, 0.5, 11)] {
            let mut mixed = requests(count);
            add_duplicates(&mut mixed, share);
            assert_eq!(mixed.len(), expected, "{count} with {share}");
            let mut urls: Vec<_> = mixed.iter().map(|request| request.url.clone()).collect();
            urls.sort();
            urls.dedup();
            assert_eq!(urls.len(), count, "nothing got lost");
        }
    }

    #[test]
    fn a_tampered_body_differs_in_one_byte() {
        let mut request = requests(1).remove(0);
        request.body = Bytes::from_static(b"{\"a\":\"000\"}");
        let before = request.body.clone();
        tamper(&mut request);
        let differing = before.iter().zip(&request.body).filter(|(before, after)| before != after).count();
        assert_eq!((differing, before.len()), (1, request.body.len()));
    }
}
