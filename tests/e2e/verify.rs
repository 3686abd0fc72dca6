//! `hookfast verify`, which needs neither a configuration nor a database.

use std::fs;

use hookfast_harness::{Ended, SECRET, hookfast, sample};
use tempfile::TempDir;

use crate::BINARY;

const VECTORS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../providers/stripe/fixtures/vectors.json");

/// Verifies a sample with these secrets and further arguments.
fn verify(secrets: &[&str], more: &[&str]) -> Ended {
    let folder = TempDir::new().unwrap();
    let request = sample(1);
    fs::write(folder.path().join("body"), &request.body).unwrap();
    let signature = format!("Stripe-Signature: {}", request.headers["stripe-signature"].to_str().unwrap());
    let mut command = hookfast(BINARY, folder.path());
    command.args(["verify", "--provider", "stripe", "--header", &signature, "--body-file", "body"]).args(more);
    for secret in secrets {
        command.args(["--secret", secret]);
    }
    Ended::of(&mut command)
}

fn vectors(text: &str, more: &[&str]) -> Ended {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("vectors.json"), text).unwrap();
    Ended::of(hookfast(BINARY, folder.path()).args(["verify", "--vectors", "vectors.json"]).args(more))
}

/// Within limits on memory and time, so that one which reads on fails and does not take the machine with it.
#[test]
fn an_input_without_an_end_is_refused() {
    let folder = TempDir::new().unwrap();
    for (input, code) in [("--provider stripe --secret s --body-file /dev/zero", 2), ("--vectors /dev/zero", 1)] {
        let script = format!("ulimit -v 4000000; exec timeout 60 {BINARY} verify {input}");
        let ended = Ended::of(hookfast("sh", folder.path()).args(["-c", &script]));
        assert_eq!(ended.code, code, "{input}: {ended:?}");
        assert!(ended.errors.contains("/dev/zero cannot be read: it has more than 256 MiB"), "{input}: {ended:?}");
    }
}

#[test]
fn a_genuine_request_is_called_so_with_what_was_read() {
    let ended = verify(&["whsec_old", SECRET], &[]);
    assert_eq!(ended.code, 0, "{}", ended.errors);
    assert!(ended.output.starts_with("genuine: signed with secret number 2\n"), "{}", ended.output);
    assert!(ended.output.contains("evt_sample_1") && ended.output.contains("invoice.paid"), "{}", ended.output);

    let json = verify(&[SECRET], &["--json"]).json();
    assert_eq!((json["genuine"].as_bool(), json["secret"].as_u64()), (Some(true), Some(1)));
    assert_eq!(json["events"][0]["dedupe_key"], "evt_sample_1");
}

#[test]
fn a_refusal_is_explained() {
    let ended = verify(&["whsec_other"], &[]);
    assert_eq!(ended.code, 1);
    assert!(ended.output.starts_with("refused: no secret of this source gives this signature"), "{}", ended.output);

    let ended = verify(&[SECRET], &["--json", "--now", "4000000000"]);
    assert_eq!(ended.code, 1);
    let json = ended.json();
    assert_eq!((json["genuine"].as_bool(), json["reason"].as_str()), (Some(false), Some("stale")));
    assert_eq!(verify(&[SECRET], &["--now", "4000000000", "--set", "tolerance_seconds=4000000000"]).code, 0);
}

/// Verifies the sample for a source of a configuration.
fn verify_for(source: &str, more: &[&str]) -> Ended {
    let folder = TempDir::new().unwrap();
    let request = sample(1);
    fs::write(folder.path().join("body"), &request.body).unwrap();
    let secrets = format!("provider = \"stripe\"\nsecrets = [\"whsec_old\", \"{SECRET}\"]");
    let config = format!(
        "[sources.shop]\n{secrets}\n[sources.patient]\n{secrets}\ntolerance_seconds = 4000000000\n\
         [sources.other]\nprovider = \"stripe\"\nsecrets = [\"whsec_other\"]\n"
    );
    fs::write(folder.path().join("hookfast.toml"), config).unwrap();
    let signature = format!("Stripe-Signature: {}", request.headers["stripe-signature"].to_str().unwrap());
    let mut command = hookfast(BINARY, folder.path());
    command.args(["verify", "--source", source, "--header", &signature, "--body-file", "body"]).args(more);
    Ended::of(&mut command)
}

#[test]
fn provider_secrets_and_settings_can_come_from_a_source_of_the_configuration() {
    let ended = verify_for("shop", &[]);
    assert!(ended.code == 0 && ended.output.starts_with("genuine: signed with secret number 2\n"), "{ended:?}");
    assert_eq!(verify_for("shop", &["--now", "4000000000"]).code, 1, "it is too old");
    assert_eq!(verify_for("patient", &["--now", "4000000000"]).code, 0, "this source has another tolerance");

    let ended = verify_for("other", &[]);
    assert_eq!(ended.code, 1, "{ended:?}");
    assert!(ended.output.contains("probably: it is signed for the source `patient`"), "{ended:?}");
}

#[test]
fn a_source_that_is_not_configured_or_is_said_twice_is_refused() {
    let ended = verify_for("shopp", &[]);
    assert_eq!(ended.code, 2, "{ended:?}");
    assert!(
        ended.errors.contains("`--source`: there is no source `shopp`; there is: other, patient, shop"),
        "{ended:?}"
    );
    for [flag, value] in [["--provider", "stripe"], ["--secret", SECRET], ["--set", "tolerance_seconds=1"]] {
        let ended = verify_for("shop", &[flag, value]);
        assert_eq!(ended.code, 2, "{ended:?}");
        assert!(ended.errors.contains(&format!("'--source <NAME>' cannot be used with '{flag}")), "{ended:?}");
        assert!(!ended.errors.contains(SECRET), "{ended:?}");
    }
}

#[test]
fn wrong_arguments_are_named_and_secrets_are_not_repeated() {
    for (secret, more, part) in [
        (SECRET, ["--set", "tolerance=1"], "`--set`"),
        (SECRET, ["--header", "no colon"], "`--header`"),
        (SECRET, ["--now", "99999999999999"], "`--now`"),
        ("env:HOOKFAST_E2E_UNSET", ["--method", "POST"], "the variable HOOKFAST_E2E_UNSET is not set"),
        (" ", ["--method", "POST"], "is blank"),
    ] {
        let ended = verify(&[secret], &more);
        assert_eq!(ended.code, 2, "{more:?}");
        assert!(ended.errors.contains(part) && !ended.errors.contains(SECRET), "{}", ended.errors);
    }
}

#[test]
fn stripes_vectors_all_agree() {
    let ended = Ended::of(hookfast(BINARY, std::path::Path::new("/")).args(["verify", "--vectors", VECTORS]));
    assert_eq!(ended.code, 0, "{}", ended.output);
    assert!(ended.output.ends_with(" 0 disagree\n") && !ended.output.contains("DISAGREES"), "{}", ended.output);
}

#[test]
fn a_vector_that_expects_something_else_disagrees() {
    let text = fs::read_to_string(VECTORS).unwrap();
    for (from, to) in [
        (r#""expect": "valid""#, r#""expect": "invalid""#),
        (r#""expect": "invalid""#, r#""expect": "valid""#),
        (r#""event_id": "evt_"#, r#""event_id": "evt_other_"#),
        (r#""event_type": "invoice.paid""#, r#""event_type": "invoice.unpaid""#),
        (r#""occurred_at": 1759999996"#, r#""occurred_at": 1759999997"#),
    ] {
        let tampered = text.replacen(from, to, 1);
        assert_ne!(tampered, text, "{from}");
        let ended = vectors(&tampered, &[]);
        assert_eq!(ended.code, 1, "{from}");
        assert!(ended.output.contains("DISAGREES") && ended.output.ends_with(" 1 disagree\n"), "{}", ended.output);
        assert_eq!(vectors(&tampered, &["--json"]).json()["disagree"], 1);
    }
}

#[test]
fn a_file_without_vectors_is_refused() {
    let ended = vectors("{}", &[]);
    assert_eq!(ended.code, 1);
    assert!(ended.errors.contains("vectors.json is not a file of vectors"), "{}", ended.errors);
}
