//! Makes genuine events of test events, by way of a provider that reads whatever the test says.

use hookfast_webhook::signature::{Scheme, prove_token};
use hookfast_webhook::{
    Arrival, EventId, NoSample, Proof, ProofKind, Proved, Provider, Reading, Refusal, Request, RequestId, SampleOrder,
    Secret, Secrets, SourceName, Unreadable, verify,
};
use time::OffsetDateTime;

use super::TestEvent;

/// A provider whose events are whatever the test says.
struct TestProvider {
    reading: Reading,
    proof: ProofKind,
}

const SECRET: &str = "test";

impl Provider for TestProvider {
    fn name(&self) -> &'static str {
        "test"
    }

    fn proof_headers(&self) -> &[http::HeaderName] {
        &[]
    }

    fn prove(&self, request: &Request, secrets: &Secrets, _: OffsetDateTime) -> Result<Proved, Refusal> {
        let signed = || {
            let signature = Scheme::HMAC_SHA256.sign(&secret(), &[&request.body]);
            Scheme::HMAC_SHA256.prove(secrets, &[&request.body], &Vec::from_iter(signature))
        };
        let proof = match self.proof {
            ProofKind::Signature | ProofKind::SignatureWithoutType => signed()?,
            ProofKind::PartialSignature => signed()?.of_a_part(),
            ProofKind::Token => prove_token(secrets, SECRET.as_bytes())?,
            ProofKind::Unsigned => Proof::unsigned(),
        };
        Ok(proof.into())
    }

    fn read(&self, _: &Request) -> Result<Vec<Reading>, Unreadable> {
        Ok(vec![self.reading.clone()])
    }

    fn sample_kinds(&self) -> Vec<&str> {
        Vec::new()
    }

    fn sample(&self, _: &SampleOrder<'_>) -> Result<Request, NoSample> {
        unreachable!("the test kit sends no samples")
    }
}

fn secret() -> Secret {
    Secret::new(SECRET).expect("not blank")
}

pub(super) fn genuine(event: &TestEvent) -> hookfast_webhook::Event {
    let TestEvent { source, event_type, body, account, object_id, occurred_at, proof } = event.clone();
    let reading = Reading {
        account,
        object_id,
        occurred_at,
        type_is_signed: proof != ProofKind::SignatureWithoutType,
        ..Reading::new(EventId::new().to_string(), event_type, body.clone().into())
    };
    let now = OffsetDateTime::now_utc();
    let request = Request {
        method: http::Method::POST,
        url: format!("http://localhost/webhooks/{source}"),
        headers: http::HeaderMap::new(),
        body: body.into(),
    };
    let arrival = Arrival {
        request_id: RequestId::new(),
        source: SourceName::new(source).unwrap_or_else(|error| panic!("the source of a test event: {error}")),
        remote_address: std::net::Ipv4Addr::LOCALHOST.into(),
        received_at: now,
        trace_id: None,
    };
    let provider = TestProvider { reading, proof };
    let secrets = Secrets::new(vec![secret()]);
    let verified = verify(&provider, request, &secrets, now).expect("the proof is right");
    verified.genuine().expect("no handshake").read(&provider, arrival).0.remove(0)
}
