//! Requests as Meta sends them: non-ASCII text and slashes are escaped, and the escaped text is signed.

use hookfast_webhook::{Request, SampleOrder, Secret};
use http::{HeaderMap, Method};

pub(crate) const CHALLENGE: &str = "challenge";
pub(crate) const KINDS: [&str; 5] = ["message", "status", "batch", "account_update", CHALLENGE];

const ACCOUNT: &str = "102290129340398";

pub(crate) fn body(kind: &str, order: &SampleOrder<'_>) -> String {
    let (now, serial) = (order.now.unix_timestamp(), order.serial);
    let entries = match kind {
        "status" => entry("", &[change("", "statuses", &[status(serial, "delivered", now)])]),
        "batch" => {
            let statuses = change("", "statuses", &[status(serial, "sent", now), status(serial, "delivered", now)]);
            let changes = [statuses, change(CONTACTS, "messages", &[message(serial, now)])];
            format!("{},{}", entry("", &changes), account_update(serial, now))
        }
        "account_update" => account_update(serial, now),
        _ => entry("", &[change(CONTACTS, "messages", &[message(serial, now)])]),
    };
    format!(r#"{{"object":"whatsapp_business_account","entry":[{entries}]}}"#)
}

const CONTACTS: &str = r#""contacts":[{"profile":{"name":"Sara"},"wa_id":"966500000001"}],"#;

fn message(serial: u64, now: i64) -> String {
    format!(
        r#"{{"from":"966500000001","id":"wamid.SAMPLE{serial}","timestamp":"{now}","type":"text","text":{{"body":"\u0645\u0631\u062d\u0628\u0627 https:\/\/shop.example\/{serial}"}}}}"#
    )
}

fn status(serial: u64, status: &str, now: i64) -> String {
    format!(
        r#"{{"id":"wamid.SAMPLEOUT{serial}","status":"{status}","timestamp":"{now}","recipient_id":"966500000001"}}"#
    )
}

fn change(contacts: &str, list: &str, items: &[String]) -> String {
    let items = items.join(",");
    format!(
        r#"{{"field":"messages","value":{{"messaging_product":"whatsapp","metadata":{{"display_phone_number":"15550001234","phone_number_id":"106540352242922"}},{contacts}"{list}":[{items}]}}}}"#
    )
}

fn account_update(serial: u64, now: i64) -> String {
    let change = format!(
        r#"{{"field":"account_update","value":{{"phone_number":"1555{serial:07}","event":"VERIFIED_ACCOUNT"}}}}"#
    );
    entry(&format!(r#""time":{now},"#), &[change])
}

fn entry(time: &str, changes: &[String]) -> String {
    format!(r#"{{"id":"{ACCOUNT}",{time}"changes":[{}]}}"#, changes.join(","))
}

pub(crate) fn challenge(order: &SampleOrder<'_>, token: &Secret) -> Request {
    let query = form_urlencoded::Serializer::new(String::new())
        .append_pair("hub.mode", "subscribe")
        .append_pair("hub.challenge", &order.serial.to_string())
        .append_pair("hub.verify_token", token.expose())
        .finish();
    let separator = if order.url.contains('?') { '&' } else { '?' };
    let url = format!("{}{separator}{query}", order.url);
    Request { method: Method::GET, url, headers: HeaderMap::new(), body: Default::default() }
}
