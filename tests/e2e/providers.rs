//! Providers beyond Stripe: what they send becomes events, and what they want to hear is answered.

use std::fs;
use std::path::{Path, PathBuf};

use hookfast_harness::{Answer, Database, Ended, Gateway, hookfast};
use tempfile::TempDir;

use crate::{BINARY, patient, setup};

on_both! {
    garmin_records_become_events_and_updates_are_not_duplicates
}

fn vector_files() -> Vec<PathBuf> {
    let providers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../providers");
    let folders = fs::read_dir(providers).unwrap().map(|entry| entry.unwrap().path().join("fixtures"));
    let files = folders.filter_map(|folder| fs::read_dir(folder).ok()).flatten().map(|entry| entry.unwrap().path());
    files.filter(|file| file.extension().is_some_and(|extension| extension == "json")).collect()
}

fn post(gateway: &Gateway, path: &str, headers: &str, body: &str) -> Answer {
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: hooks.example.com\r\n{headers}content-length: {}\r\n\r\n{body}",
        body.len()
    );
    gateway.client().raw(request.as_bytes()).unwrap()
}

#[test]
fn every_vector_of_every_provider_agrees() {
    let files = vector_files();
    assert!(files.len() >= 18, "{files:?}");
    let ended = Ended::of(hookfast(BINARY, Path::new("/")).args(["verify", "--vectors"]).args(&files));
    assert_eq!(ended.code, 0, "{}", ended.output);
    let count: usize = ended.output.lines().last().unwrap().split(' ').next().unwrap().parse().unwrap();
    assert!(count >= 188 && ended.output.ends_with(" 0 disagree\n"), "{}", ended.output);
}

fn garmin_records_become_events_and_updates_are_not_duplicates(database: Database) {
    let token = "7f3c9a54e1d84b06";
    let section = format!("[sources.garmin]\nprovider = \"garmin\"\nsecrets = [\"{token}\"]\nclient_id = \"c-1\"");
    let gateway = patient(database).sections(&section).start();
    let path = format!("/webhooks/garmin/{token}");
    let client_id = "garmin-client-id: c-1\r\n";
    let sleep = r#"{"userId":"u1","summaryId":"s1","startTimeInSeconds":1759968000,"durationInSeconds":10}"#;
    let longer = sleep.replace(":10}", ":20}");
    let batch = format!(r#"{{"sleeps":[{sleep} , {longer}],"dailies":[{{"userId":"u2","summaryId":"d1"}}]}}"#);

    for (path, headers) in [("/webhooks/garmin", client_id), ("/webhooks/garmin/guess", client_id), (&path, "")] {
        assert_eq!(post(&gateway, path, headers, &batch).status, 401, "{path} {headers}");
    }
    for path in [path.clone(), format!("{path}/sleeps")] {
        let answer = post(&gateway, &path, client_id, &batch);
        assert_eq!((answer.status, answer.body.len()), (200, 0));
    }
    let mut events = gateway.events();
    events.reverse();
    let seen: Vec<_> = events.iter().map(|event| (event.event_type.as_str(), event.account.as_deref())).collect();
    assert_eq!(seen, [("sleeps", Some("u1")), ("sleeps", Some("u1")), ("dailies", Some("u2"))]);
    assert!(events.iter().all(|event| event.resends == 1), "the second POST was an exact repeat");
    let bodies: Vec<_> = events.iter().take(2).map(|event| gateway.event(event.id).body).collect();
    assert_eq!(bodies, [sleep.as_bytes(), longer.as_bytes()]);
    assert_eq!(post(&gateway, &path, client_id, r#"{"dailies":[]}"#).status, 200);
    assert_eq!(gateway.events().len(), 3);
    assert!(!gateway.log().contains(token), "the token is a secret");
    assert!(events.iter().all(|event| gateway.event(event.id).url.ends_with("/webhooks/garmin/REDACTED")));
}

/// Many records in a body as large as Garmin sends: each is an event of its own, and the body is not copied for them.
#[test]
fn a_large_body_of_garmin_takes_less_memory_than_three_of_it() {
    let section = "[sources.garmin]\nprovider = \"garmin\"\nclient_id = \"c-1\"\nbody_limit = \"100MiB\"\nanswer_deadline = \"60s\"";
    let gateway = setup(Database::Sqlite).sections(section).start();
    let sample = r#"{"startTimeInSeconds":1760000000,"heartRate":121,"speedMetersPerSecond":3.21}"#;
    let samples = vec![sample; 10_000].join(",");
    let record =
        |number: usize| format!(r#"{{"userId":"u{number}","summaryId":"s{number}-detail","samples":[{samples}]}}"#);
    let body = format!(r#"{{"activityDetails":[{}]}}"#, (0..80).map(record).collect::<Vec<_>>().join(","));
    assert_eq!(post(&gateway, "/webhooks/garmin", "garmin-client-id: c-1\r\n", &body).status, 200);
    assert_eq!(gateway.events().len(), 80);
    let peak = gateway.peak_memory_bytes();
    assert!(peak < 3 * body.len(), "{peak} bytes for a body of {}", body.len());
}

#[test]
fn garmin_needs_at_least_one_thing_to_tell_friend_from_foe() {
    let garmin =
        |lines: &str| setup(Database::Sqlite).sections(&format!("[sources.garmin]\nprovider = \"garmin\"\n{lines}"));
    let ended = garmin("").command(&["config", "check"]);
    assert_eq!(ended.code, 2);
    assert!(ended.errors.contains("`sources.garmin`: nothing that comes here is proved"), "{ended:?}");
    for enough in ["secrets = [\"7f3c9a54e1d84b06\"]", "client_id = \"c-1\"", "allow_from = [\"204.77.163.0/24\"]"] {
        assert_eq!(garmin(enough).command(&["config", "check"]).code, 0, "{enough}");
    }
}

#[test]
fn salla_must_say_how_it_proves_itself() {
    let salla = |lines: &str| {
        let section = format!("[sources.salla]\nprovider = \"salla\"\nsecrets = [\"s\"]\n{lines}");
        setup(Database::Sqlite).sections(&section).command(&["config", "check"])
    };
    let ended = salla("");
    assert!(ended.code == 2 && ended.errors.contains("strategy"), "{ended:?}");
    let ended = salla("strategy = \"trust\"");
    assert!(ended.code == 2 && ended.errors.contains("sources.salla.strategy"), "{ended:?}");
    assert_eq!(salla("strategy = \"token\"").code, 0);
}

#[test]
fn a_setting_can_stand_in_a_variable_as_a_secret_can() {
    let section = "[sources.whatsapp]\nprovider = \"whatsapp\"\nsecrets = [\"s\"]\nverify_token = \"env:VERIFY_TOKEN\"";
    let setup = patient(Database::Sqlite).sections(section);
    let ended = setup.command(&["config", "check"]);
    assert!(ended.code == 2 && ended.errors.contains("the variable VERIFY_TOKEN is not set"), "{ended:?}");
    let gateway = setup.variable("VERIFY_TOKEN", "ours").start();
    let ask = |token: &str| {
        let query = format!("hub.mode=subscribe&hub.challenge=42&hub.verify_token={token}");
        let request = format!("GET /webhooks/whatsapp?{query} HTTP/1.1\r\nhost: x\r\n\r\n");
        gateway.client().raw(request.as_bytes()).unwrap()
    };
    let answer = ask("ours");
    assert_eq!((answer.status, answer.text().as_str()), (200, "42"));
    assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
    assert_eq!(ask("s").status, 403, "the app's secret is no verify token where there is one");
    assert!(!gateway.log().contains("ours"));
}

#[test]
fn a_proxy_that_is_trusted_says_what_url_twilio_called() {
    let section = "[sources.twilio]\nprovider = \"twilio\"\nsecrets = [\"0123456789abcdef0123456789vector1\"]";
    let gateway = patient(Database::Sqlite)
        .ingest("forwarded_url = true\ntrusted_proxies = [\"127.0.0.0/8\"]")
        .sections(section)
        .start();
    let url = "https://hooks.example.com/webhooks/twilio?MessageSid=SM1&Body=hello%20there";
    let headers = format!(
        "x-forwarded-proto: https\r\nx-forwarded-host: hooks.example.com\r\nx-twilio-signature: {}\r\n",
        twilio_signature(url)
    );
    let request =
        format!("GET /webhooks/twilio?MessageSid=SM1&Body=hello%20there HTTP/1.1\r\nhost: internal\r\n{headers}\r\n");
    let answer = gateway.client().raw(request.as_bytes()).unwrap();
    assert_eq!(answer.status, 200);
    assert!(answer.header("content-type").is_some_and(|kind| kind.starts_with("text/xml")), "{answer:?}");
    assert!(answer.text().contains("<Response/>"), "{answer:?}");
    let without = request.replace("x-forwarded-host", "x-other-host");
    assert_eq!(gateway.client().raw(without.as_bytes()).unwrap().status, 401);
}

fn twilio_signature(signed: &str) -> String {
    use hookfast_webhook::signature::{Algorithm, Encoding, KeyForm, Scheme};
    let scheme = Scheme { algorithm: Algorithm::HmacSha1, key: KeyForm::TEXT };
    let secret = hookfast_webhook::Secret::new("0123456789abcdef0123456789vector1").unwrap();
    Encoding::Base64.encode(&scheme.sign(&secret, &[signed.as_bytes()]).unwrap())
}

#[test]
fn the_log_leads_from_a_refusal_to_its_fix() {
    let gateway = patient(Database::Sqlite)
        .sections("[sources.stripe-eu]\nprovider = \"stripe\"\nsecrets = [\"whsec_eu\"]")
        .start();
    let mut request = hookfast_harness::sample(1);
    request.url = request.url.replace("/stripe", "/stripe-eu");
    assert_eq!(gateway.client().send(&request).unwrap().status, 401);
    assert!(gateway.log().contains("it is signed for the source `stripe` and its secret"), "{}", gateway.log());

    let headers = "webhook-id: m\r\nwebhook-timestamp: 1\r\nwebhook-signature: v1,x\r\n";
    assert_eq!(post(&gateway, "/webhooks/stripe", headers, "{}").status, 401);
    let words = "it has the headers of `standardwebhooks`, but this source is of `stripe`";
    assert!(gateway.log().contains(words), "{}", gateway.log());
}

/// A folder with a configuration that has a file of its own in the catalog.
fn with_own_provider(description: &str, sections: &str) -> TempDir {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("acme.toml"), description).unwrap();
    let config = format!(
        "[ingest]\nlisten = \"127.0.0.1:0\"\n[admin]\nlisten = \"127.0.0.1:0\"\n[catalog]\nfiles = [\"acme.toml\"]\n{sections}"
    );
    fs::write(folder.path().join("hookfast.toml"), config).unwrap();
    folder
}

const ACME: &str = include_str!("fixtures/acme.toml");

#[test]
fn a_provider_of_ones_own_is_one_file() {
    let setup = patient(Database::Sqlite)
        .sections("[catalog]\nfiles = [\"acme.toml\"]\n[sources.acme]\nprovider = \"acme\"\nsecrets = [\"acme_YWNtZS1zZWNyZXQtMQ==\"]");
    fs::write(setup.folder().join("acme.toml"), ACME).unwrap();
    let gateway = setup.start();
    assert!(gateway.command(&["providers"]).output.lines().any(|line| line.starts_with("acme ")));
    assert!(gateway.command(&["providers", "show", "acme"]).output.contains("Set-up"));
    let url = format!("http://{}", gateway.ingest);
    let played = gateway.command(&["simulate", "acme", "--gateway", &url, "--count", "5", "--json"]);
    assert_eq!((played.code, &played.json()["accepted"]), (0, &5.into()), "{played:?}");
    let tampered = gateway.command(&["simulate", "acme", "--gateway", &url, "--tamper", "--json"]);
    assert_eq!(tampered.json()["refused"], 1, "{tampered:?}");
    assert_eq!(gateway.events().iter().filter(|event| event.source == "acme").count(), 5);
}

#[test]
fn a_broken_file_of_the_catalog_is_said_with_its_line() {
    for (from, to, words) in [
        ("name = \"acme\"", "name = \"acme\"\ncolour = 1", "unknown field `colour`"),
        ("name = \"acme\"", "name = \"stripe\"", "there is a provider `stripe` already"),
        ("algorithm = \"hmac-sha256\"", "algorithm = \"md5\"", "hmac-sha256"),
        ("{body}", "{boddy}", "`boddy` is not a place"),
    ] {
        assert!(ACME.contains(from), "{from}");
        let source = "[sources.acme]\nprovider = \"acme\"\nsecrets = [\"acme_YWNtZQ==\"]\n";
        let folder = with_own_provider(&ACME.replacen(from, to, 1), source);
        let ended = Ended::of(hookfast(BINARY, folder.path()).args(["config", "check"]));
        assert_eq!(ended.code, 2, "{from}");
        assert!(ended.errors.contains("acme.toml") && ended.errors.contains(words), "{ended:?}");
        assert_eq!(ended.errors.lines().count(), 1, "that there is no acme follows from it: {ended:?}");
    }
    let folder = with_own_provider(&format!("\n\n{ACME}\ncolour = 1\n"), "");
    let ended = Ended::of(hookfast(BINARY, folder.path()).args(["config", "check"]));
    assert!(ended.errors.contains("acme.toml: line "), "{ended:?}");
}

#[test]
fn each_provider_is_listed_and_shown_with_its_set_up() {
    let folder = TempDir::new().unwrap();
    let run = |arguments: &[&str]| Ended::of(hookfast(BINARY, folder.path()).args(arguments));
    let listed = run(&["providers", "--json"]);
    for line in listed.output.lines() {
        let provider: serde_json::Value = serde_json::from_str(line).unwrap();
        let name = provider["name"].as_str().unwrap();
        assert!(!provider["scheme"].as_str().unwrap().is_empty() && !provider["dedupe"].as_str().unwrap().is_empty());
        let shown = run(&["providers", "show", name]);
        assert!(shown.code == 0 && shown.output.to_lowercase().contains("set"), "{name}: {shown:?}");
    }
    assert_eq!(run(&["providers", "show", "nobody"]).code, 3);
}

#[test]
fn verify_says_what_probably_happened() {
    let folder = TempDir::new().unwrap();
    let request = hookfast_harness::sample(1);
    let signature = format!("Stripe-Signature: {}", request.headers["stripe-signature"].to_str().unwrap());
    let verify = |body: &[u8], more: &[&str]| {
        fs::write(folder.path().join("body"), body).unwrap();
        let secret = hookfast_harness::SECRET;
        let mut command = hookfast(BINARY, folder.path());
        command.args(["verify", "--provider", "stripe", "--secret", secret, "--body-file", "body"]).args(more);
        Ended::of(&mut command)
    };
    let spaced = String::from_utf8(request.body.to_vec()).unwrap().replace(":{", ": {");
    let ended = verify(spaced.as_bytes(), &["--header", &signature]);
    assert!(ended.output.contains("probably: the body was re-encoded on the way"), "{ended:?}");
    let ended = verify(&[&request.body[..], b"\n"].concat(), &["--header", &signature]);
    assert!(ended.output.contains("a line break were added at its end"), "{ended:?}");
    let ended = verify(&request.body, &["--header", "X-Hub-Signature-256: sha256=00"]);
    assert!(
        ended.output.contains("it has the headers of `github`") || ended.output.contains("of `whatsapp`"),
        "{ended:?}"
    );
    let ended = verify(&request.body, &["--header", &signature, "--now", "1"]);
    assert!(ended.code == 0, "only age counts for Stripe: {ended:?}");

    let square = |url: &str| {
        let signed = "http://hooks.example.com/webhooks/square{}";
        let secret = hookfast_webhook::Secret::new("s").unwrap();
        let scheme = hookfast_webhook::signature::Scheme::HMAC_SHA256;
        let signature = scheme.sign(&secret, &[signed.as_bytes()]).unwrap();
        let header = format!(
            "x-square-hmacsha256-signature: {}",
            hookfast_webhook::signature::Encoding::Base64.encode(&signature)
        );
        fs::write(folder.path().join("body"), "{}").unwrap();
        let mut command = hookfast(BINARY, folder.path());
        command.args(["verify", "--provider", "square", "--secret", "s", "--url", url, "--header", &header]);
        Ended::of(command.args(["--body-file", "body"]))
    };
    let ended = square("https://hooks.example.com/webhooks/square");
    assert!(ended.output.contains("it is signed for the URL http://hooks.example.com/webhooks/square"), "{ended:?}");
}
