//! `[ingest]`: where and how webhooks are received.

use super::parse;
use super::section::Section;

pub(super) fn read(mut section: Section<'_>) -> hookfast_ingest::Config {
    let default = hookfast_ingest::Config::default();
    let config = hookfast_ingest::Config {
        listen: section.value("listen", parse::address, default.listen),
        public_url: section.optional("public_url", parse::public_url),
        forwarded_url: section.value("forwarded_url", parse::flag, default.forwarded_url),
        answer_deadline: section.value("answer_deadline", parse::duration, default.answer_deadline),
        queue_requests: section.value("queue_requests", parse::count, default.queue_requests),
        batch_events: section.value("batch_events", parse::count, default.batch_events),
        batch_bytes: section.value("batch_bytes", parse::size, default.batch_bytes),
        body_memory: section.value("body_memory", parse::size, default.body_memory),
        connections: section.value("connections", parse::count, default.connections),
        connections_per_address: section.value(
            "connections_per_address",
            parse::count,
            default.connections_per_address,
        ),
        header_timeout: section.value("header_timeout", parse::duration, default.header_timeout),
        body_timeout: section.value("body_timeout", parse::duration, default.body_timeout),
        stall_timeout: section.value("stall_timeout", parse::duration, default.stall_timeout),
        idle_timeout: section.value("idle_timeout", parse::duration, default.idle_timeout),
        connection_lifetime: section.value("connection_lifetime", parse::duration, default.connection_lifetime),
        shutdown_timeout: section.value("shutdown_timeout", parse::duration, default.shutdown_timeout),
        trusted_proxies: section.value("trusted_proxies", parse::list, default.trusted_proxies),
        rate_per_address: section.optional("rate_per_address", parse::text),
        refusals_per_address: section.value("refusals_per_address", parse::text, default.refusals_per_address),
        conceal_sources: section.value("conceal_sources", parse::flag, default.conceal_sources),
    };
    section.finish();
    config
}
