//! Finds the endpoint that a request is for. Webhooks take the path in `stages`.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{Method, Request, StatusCode};
use hyper::body::Body;

use super::connection::Activity;
use super::host::check_host;
use super::path::{Target, target};
use super::response::{HttpResponse, accepted, plain, problem, rejected};
use crate::health::{Readiness, Ready, may_see_details};
use crate::observe::log_misdirected;
use crate::rejection::Rejection;
use crate::shared::Caller;
use crate::stages::Visit;
use crate::{Ingest, Source, Table};

/// The endpoints of the ingest listener.
pub(crate) struct Service {
    pub(crate) ingest: Ingest,
    pub(crate) readiness: Readiness,
}

/// The endpoint that a request is for.
enum Found {
    Source(Arc<Source>),
    Live,
    Ready,
}

impl Service {
    /// Answers any request.
    pub(crate) async fn answer<B: Body<Data = Bytes> + Unpin>(
        &self,
        request: Request<B>,
        peer: IpAddr,
        activity: &Activity,
    ) -> HttpResponse {
        let (head, body) = request.into_parts();
        let caller = self.ingest.caller(&head.headers, peer, activity);
        let table = self.ingest.table.get();
        let outcome = match self.find(&table, &head) {
            Ok(Found::Source(source)) => {
                let visit = Visit { ingest: &self.ingest, table: &table, source: &source, caller: &caller };
                visit.run(head, body).await
            }
            Ok(Found::Live) => return plain("live\n"),
            Ok(Found::Ready) => return self.ready(&caller, head.uri.query()).await,
            Err(rejection) => {
                log_misdirected(&rejection, &caller, head.uri.path());
                Err(rejection)
            }
        };
        match outcome {
            Ok(answer) => accepted(answer, caller.request_id),
            Err(rejection) => rejected(&rejection, caller.request_id),
        }
    }

    fn find(&self, table: &Table, head: &Parts) -> Result<Found, Rejection> {
        check_host(head)?;
        let target = target(head.uri.path()).ok_or(Rejection::NotFound)?;
        let read_only = [Method::GET, Method::HEAD].contains(&head.method);
        match target {
            Target::Webhook(name) => {
                let source = table.sources.get(name).or(self.ingest.decoy.as_ref());
                source.map(|source| Found::Source(Arc::clone(source))).ok_or(Rejection::NotFound)
            }
            _ if !read_only => Err(Rejection::MethodNotAllowed(vec![Method::GET, Method::HEAD])),
            Target::Live => Ok(Found::Live),
            Target::Ready => Ok(Found::Ready),
        }
    }

    async fn ready(&self, caller: &Caller<'_>, query: Option<&str>) -> HttpResponse {
        let verdict = self.readiness.check().await;
        if query == Some("verbose") && may_see_details(caller.address) {
            let mut response = plain(self.readiness.report(verdict).await);
            *response.status_mut() = if verdict.is_ok() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
            return response;
        }
        match verdict {
            Ok(Ready::Yes) => plain("ready\n"),
            Ok(Ready::Degraded(why)) => plain(format!("degraded: {why}\n")),
            Err(why) => problem(StatusCode::SERVICE_UNAVAILABLE, why, caller.request_id),
        }
    }
}
