//! Writing into the operator's log and terminal.

use std::io::{BufRead, BufReader, PipeReader, PipeWriter, Write, pipe};
use std::time::Instant;

use hookfast_harness::{Gateway, Signal, eventually, post, sample};
use hookfast_webhook::Request;
use serde_json::json;

use super::{
    assert_serves, assert_unharmed, gateway, printed, raw, run, setup, signed_bytes, to_path, unproved, with_header,
};

/// Far below what one line of this program needs, and far below what an attacker would like.
const MAX_LINE_BYTES: usize = 2_048;

/// Forged lines, colours, a cleared screen, a turned direction of writing, a line separator, what is not seen, a tag.
pub(crate) const NASTY: [&str; 10] = [
    "a\r\n{\"level\":\"INFO\",\"message\":\"forged\"}",
    "\u{1b}[2J\u{1b}[31mred",
    "\u{9b}31m\u{85}",
    "\u{202e}\u{2066}drow",
    "\u{200e}\u{200f}\u{61c}",
    "\u{2028}\u{2029}",
    "\0\u{7f}\u{8}",
    "\u{200b}\u{200d}\u{feff}\u{ad}\u{2060}\u{e0041}",
    "${jndi:ldap://evil.example/a}",
    "<script>alert(1)</script>",
];

/// Characters that make a log or a terminal show what is not there.
pub(crate) fn deceives(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}')
        || matches!(character, '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{e0000}'..='\u{e0fff}')
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
    let mut outputs = Vec::new();
    for form in [&[][..], &["--json"]] {
        outputs.push(run(gateway.folder(), &[&["events", "list", "--limit", "1000"], form].concat(), &[]));
        for event in gateway.events() {
            outputs.push(run(gateway.folder(), &[&["events", "show", &event.id.to_string()], form].concat(), &[]));
        }
    }
    assert!(outputs.len() > NASTY.len());
    for output in outputs {
        let text = printed(&output);
        assert!(output.status.success(), "{text}");
        assert!(!text.chars().any(|character| character != '\n' && deceives(character)), "{text:?}");
    }
    assert_serves(&gateway);
}

/// How many refusals the log tells of: a line each, and those that the line says were left out.
fn refusals_told(gateway: &Gateway) -> (usize, u64) {
    let log = gateway.log();
    let lines = log.lines().filter(|line| line.contains("refused: ")).map(|line| serde_json::from_str(line).unwrap());
    let told: Vec<u64> = lines.map(|line: serde_json::Value| 1 + line["left_out"].as_u64().unwrap_or(0)).collect();
    (told.len(), told.iter().sum())
}

#[test]
fn case_76_a_flood_of_refusals_is_a_line_a_second_with_a_count() {
    let gateway = gateway();
    let (start, mut client, mut sent) = (Instant::now(), gateway.client(), 0);
    let mut send = |times: u64| {
        for _ in 0..times {
            assert_eq!(client.send(&unproved("t=1,v1=00", b"{}")).unwrap().status, 401);
        }
        sent += times;
        sent
    };
    send(300);
    eventually("the log tells of every refusal", || send(1) == refusals_told(&gateway).1);
    let (lines, seconds) = (refusals_told(&gateway).0, start.elapsed().as_secs());
    assert!(lines as u64 <= seconds + 1, "{lines} lines in {seconds} s");
    assert_serves(&gateway);
}

#[test]
fn case_75_a_token_for_a_misspelt_source_is_not_logged() {
    let gateway = gateway();
    for path in ["/webhooks/strip/canary-token", "/webhook/stripe/canary-token/x", "/stripe/canary-token"] {
        assert_eq!(gateway.client().send(&to_path(path, sample(1))).unwrap().status, 404);
    }
    let log = gateway.log();
    assert!(log.contains("rejected: /webhooks/strip/..."), "{log}");
    assert!(!log.contains("canary-token"), "{log}");
    assert_unharmed(&gateway);
}

/// A gateway that does its jobs and logs into a pipe.
fn logging_into(pipe: PipeWriter) -> Gateway {
    setup().handlers("[handlers.ledger]\nrun = \"log\"").log_into(pipe).start()
}

/// A pipe that takes only some lines more before it is full.
fn nearly_full_pipe() -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = pipe().unwrap();
    writer.write_all(&[b'\n'; 50_000]).unwrap();
    (reader, writer)
}

/// A genuine event with a long type, which stands on each line about it.
fn wordy_event(number: u64) -> Request {
    signed_bytes(json!({"id": format!("evt_{number}"), "type": "x".repeat(250)}).to_string().as_bytes())
}

/// Bad requests are refused, good ones accepted, and the jobs of these end, as if there were a log.
fn assert_works_without_its_log(gateway: &Gateway, good: u64) {
    for _ in 0..300 {
        assert_eq!(gateway.client().send(&unproved("t=1,v1=00", b"{}")).unwrap().status, 401);
    }
    let mut client = gateway.client();
    for number in 0..good {
        assert_eq!(client.send(&wordy_event(number)).unwrap().status, 200);
    }
    let done = || gateway.query("SELECT count(*) FROM jobs WHERE state = 'succeeded'");
    eventually("the jobs are done", || done() == [[good.to_string()]]);
}

fn assert_ends_well(gateway: &mut Gateway) {
    gateway.signal(Signal::Term);
    assert_eq!(gateway.wait().code(), Some(0), "an orderly end");
}

#[test]
fn case_76_a_log_that_is_not_read_holds_up_nothing() {
    let (_unread, writer) = nearly_full_pipe();
    let mut gateway = logging_into(writer);
    assert_works_without_its_log(&gateway, 100);
    assert!(gateway.metric("hookfast_log_lines_waiting") > 1.0, "the pipe is full");
    assert_ends_well(&mut gateway);
}

#[test]
fn case_76_lines_that_the_log_has_no_room_for_are_counted() {
    let (unread, writer) = nearly_full_pipe();
    let gateway = logging_into(writer);
    assert_works_without_its_log(&gateway, 1_500);
    assert!(gateway.metric("hookfast_log_lines_dropped_total") > 0.0);

    let mut lines = BufReader::new(unread).lines().map(Result::unwrap).filter(|line| !line.is_empty());
    let said = lines.find(|line| line.contains("log lines were left out")).expect("it says that lines are missing");
    let said: serde_json::Value = serde_json::from_str(&said).expect("a line like any other");
    assert_eq!(said["lines"].as_f64().unwrap(), gateway.metric("hookfast_log_lines_dropped_total"));
}

#[test]
fn case_76_a_log_whose_reader_is_gone_changes_nothing() {
    let (reader, writer) = pipe().unwrap();
    let mut gateway = logging_into(writer);
    drop(reader);
    assert_works_without_its_log(&gateway, 40);
    assert!(gateway.metric("hookfast_log_lines_dropped_total") >= 40.0);
    assert_ends_well(&mut gateway);
}
