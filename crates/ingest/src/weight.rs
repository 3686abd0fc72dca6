//! The weight of a request: the bytes that are kept for it, in memory and in the store.

use hookfast_store::{NewJob, Routed};
use hookfast_webhook::{Event, Request};

use crate::rejection::Rejection;

/// The bytes that an event and a job take besides their texts, in memory and in the store.
const EVENT_BYTES: usize = 704;
const JOB_BYTES: usize = 128;

/// The weight of a request may be at most this many times its size. Real requests stay far below that.
const TIMES_THE_REQUEST: u64 = 10;

/// Every request may weigh this much, however small it is.
const ALWAYS_TAKEN_BYTES: u64 = 1024 * 1024;

/// The weight of the events of one request. It is an error if the weight is out of proportion to the request's size.
/// For that comparison each event counts with one job, because the number of handlers is the operator's choice and not
/// the sender's.
pub(crate) fn weigh(events: &[Routed]) -> Result<u64, Rejection> {
    let Some(first) = events.first() else { return Ok(0) };
    let request = &first.event.delivery().request;
    let head = head_bytes(request);
    let kept = head + events.iter().map(|routed| event_bytes(&routed.event)).sum::<u64>();
    let size = head + request.body.len() as u64;
    let with_one_job = kept + (events.len() * JOB_BYTES) as u64;
    if with_one_job > ALWAYS_TAKEN_BYTES.max(size.saturating_mul(TIMES_THE_REQUEST)) {
        return Err(Rejection::TooManyEvents);
    }
    Ok(kept + events.iter().map(|routed| job_bytes(&routed.jobs)).sum::<u64>())
}

fn head_bytes(request: &Request) -> u64 {
    let headers = request.headers.iter().map(|(name, value)| name.as_str().len() + value.len());
    (request.url.len() + headers.sum::<usize>()) as u64
}

fn event_bytes(event: &Event) -> u64 {
    let labels = [event.account(), event.object_id()].into_iter().flatten().map(|label| label.as_str().len());
    let texts = event.dedupe_key().as_str().len() + event.event_type().as_str().len() + labels.sum::<usize>();
    (EVENT_BYTES + event.body().len() + texts) as u64
}

fn job_bytes(jobs: &[NewJob]) -> u64 {
    let jobs = jobs.iter().map(|job| JOB_BYTES + job.ordering_key.as_ref().map_or(0, String::len));
    jobs.sum::<usize>() as u64
}

#[cfg(test)]
mod tests {
    use hookfast_webhook::{HandlerName, Priority};

    use super::*;
    use crate::commit::tests::event;

    #[test]
    fn everything_that_is_kept_for_a_request_counts() {
        let one = event("evt_1");
        let weight = weigh(&one).expect("one event is not too many");
        let request = &one[0].event.delivery().request;
        let texts = request.url.len() + request.headers["stripe-signature"].len() + request.body.len();
        assert!(weight > (EVENT_BYTES + texts) as u64);

        let head = head_bytes(request);
        let many = vec![one[0].clone(); 100];
        assert_eq!(weigh(&many).expect("nor are a hundred"), head + 100 * (weight - head), "the head is kept once");
        let wanted = Routed { jobs: vec![job(Some("key")), job(None)], ..one[0].clone() };
        assert_eq!(weigh(&[wanted]).expect("it is one event"), weight + 2 * JOB_BYTES as u64 + 3);
    }

    fn job(ordering_key: Option<&str>) -> NewJob {
        let handler = HandlerName::new("ledger").expect("a name");
        NewJob { handler, priority: Priority::Normal, ordering_key: ordering_key.map(str::to_owned) }
    }

    #[test]
    fn a_request_may_weigh_ten_times_its_size() {
        let large = event(&"x".repeat(200_000)).remove(0);
        let many = |routed: &Routed, count: usize| weigh(&vec![routed.clone(); count]);
        assert!(many(&large, 9).is_ok());
        assert!(matches!(many(&large, 10), Err(Rejection::TooManyEvents)), "there is something beside the bodies");
        // Where all of it is little, the proportion does not matter, and the handlers are not the sender's choice.
        let small = Routed { jobs: vec![job(None); 100], ..event("evt_1").remove(0) };
        let each = usize::try_from(event_bytes(&small.event)).expect("a small number") + JOB_BYTES;
        let taken = usize::try_from(ALWAYS_TAKEN_BYTES).expect("a small number") / each;
        assert!(many(&small, taken - 1).is_ok());
        assert!(matches!(many(&small, taken + 1), Err(Rejection::TooManyEvents)));
    }
}
