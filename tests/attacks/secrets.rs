//! Finding secrets, and getting others in: output, files, configuration.

use std::fs::{self, OpenOptions, Permissions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, chown, symlink};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Output, Stdio};

use hookfast_harness::{Answer, Gateway, SECRET, Signal, eventually, hookfast, sample};
use hookfast_store::StoreUrl;
use hookfast_webhook::{Secret, Secrets};

use super::{BINARY, assert_serves, printed, run, setup, to_path, unproved, with_header};

const FILE_CANARY: &str = "whsec_canary_in_a_file";
const PASSWORD: &str = "canary-password";
const LISTEN: [(&str, &str); 2] =
    [("HOOKFAST_INGEST__LISTEN", "127.0.0.1:0"), ("HOOKFAST_ADMIN__LISTEN", "127.0.0.1:0")];

fn assert_no_canary(what: &str, text: &str) {
    for canary in [SECRET, FILE_CANARY, PASSWORD] {
        assert!(!text.contains(canary), "{what} shows {canary}: {text}");
    }
}

fn gateway_with_canaries() -> Gateway {
    let setup = setup().sections("[sources.filed]\nprovider = \"stripe\"\nsecrets = [\"file:canary\"]");
    fs::write(setup.folder().join("canary"), format!("{FILE_CANARY}\n")).unwrap();
    setup.start()
}

/// One request of every kind: accepted, resent, unreadable, refused for each reason, lost on the way.
fn provoke(gateway: &Gateway) -> Vec<Answer> {
    let filed = |request| to_path("/webhooks/filed", request);
    let requests = [
        sample(1),
        sample(1),
        super::signed_bytes(b"no JSON"),
        super::signed_at(1, b"{}"),
        unproved("", b"{}"),
        unproved("v1=00", b"{}"),
        unproved("t=1,v1=00", b"{}"),
        filed(sample(1)),
        to_path("/webhooks/nobody", sample(1)),
        to_path("/nowhere", sample(1)),
        with_header(sample(1), "content-encoding", b"gzip"),
    ];
    requests.iter().map(|request| gateway.client().send(request).unwrap()).collect()
}

#[test]
fn case_75_no_secret_is_in_any_answer_log_metric_or_command() {
    let gateway = gateway_with_canaries();
    for answer in provoke(&gateway) {
        assert_no_canary("an answer", &format!("{answer:?}{}", answer.text()));
    }
    let log = gateway.log();
    assert!(log.contains("DEBUG") && log.contains("wrong_signature"), "the log says all it can");
    assert_no_canary("the log", &log);
    assert_no_canary("the metrics", &gateway.metrics());
    let id = gateway.events()[0].id.to_string();
    for arguments in [
        &["config", "check"][..],
        &["config", "check", "--json"],
        &["events", "list"],
        &["events", "list", "--json"],
        &["events", "show", &id],
        &["events", "show", &id, "--json"],
    ] {
        let output = run(gateway.folder(), &[&["--log", "trace"], arguments].concat(), &[]);
        assert!(output.status.success(), "{arguments:?}: {}", printed(&output));
        assert_no_canary(&format!("{arguments:?}"), &printed(&output));
    }
    assert_serves(&gateway);
}

#[test]
fn case_75_a_token_in_any_header_and_spelling_is_not_stored() {
    let token = "canary/token";
    let source = format!("[sources.gitlab]\nprovider = \"gitlab\"\nsecrets = [\"{token}\"]");
    let gateway = setup().sections(&source).start();
    let mut request =
        b"POST /webhooks/gitlab?copy=canary%2Ftoken HTTP/1.1\r\nhost: h\r\ncontent-length: 2\r\n".to_vec();
    for line in ["x-gitlab-token: canary/token", "x-gitlab-event: Push Hook", "x-gitlab-event-uuid: 1"] {
        request.extend_from_slice(format!("{line}\r\n").as_bytes());
    }
    request.extend_from_slice(b"x-copy: \xffcanary/token\xff\r\nx-spelled: %63anary%252ftoken\r\n\r\n{}");
    assert_eq!(gateway.client().raw(&request).unwrap().status, 200);
    let stored = gateway.event(gateway.events()[0].id);
    assert!(stored.url.ends_with("?copy=REDACTED"), "{}", stored.url);
    let value = |name: &str| stored.headers.iter().find(|(found, _)| *found == name).map(|(_, value)| value.to_vec());
    assert_eq!(value("x-gitlab-token").as_deref(), Some(&b"REDACTED"[..]));
    assert_eq!(value("x-copy").as_deref(), Some(&b"\xffREDACTED\xff"[..]));
    assert_eq!(value("x-spelled").as_deref(), Some(&b"REDACTED"[..]));
    assert_serves(&gateway);
}

#[test]
fn case_75_no_secret_is_in_the_verdict_on_a_request() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("body"), "{}").unwrap();
    fs::write(folder.path().join("canary"), FILE_CANARY).unwrap();
    for secret in [SECRET, "file:canary"] {
        for form in [&[][..], &["--json"]] {
            let request = ["--header", "stripe-signature: t=1,v1=00", "--body-file", "body"];
            let arguments =
                [&["--log", "trace", "verify", "--provider", "stripe", "--secret", secret], &request[..], form];
            let output = run(folder.path(), &arguments.concat(), &[]);
            assert_eq!(output.status.code(), Some(1), "{}", printed(&output));
            assert_no_canary("verify", &printed(&output));
        }
    }
}

#[test]
fn case_75_debug_shows_no_secret() {
    let secret = Secret::new(SECRET).unwrap();
    assert_no_canary("a secret", &format!("{secret:?} {:?}", Secrets::new(vec![secret.clone()])));
    for url in [format!("postgres://u:{PASSWORD}@h/d"), format!("postgres://u@h/d?password={PASSWORD}")] {
        let url: StoreUrl = url.parse().unwrap();
        assert_no_canary("a store's URL", &format!("{url:?}"));
        let config = hookfast_store::Config::new(url);
        assert_no_canary("a store's configuration", &format!("{config:#?}"));
    }
}

/// Runs a command with this configuration file.
fn run_with(config: &str, arguments: &[&str]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("hookfast.toml"), config).unwrap();
    run(folder.path(), &[&["--log", "trace"], arguments].concat(), &LISTEN)
}

#[test]
fn case_75_the_stores_password_is_not_shown_when_it_cannot_be_reached() {
    let url = unreachable_store();
    let config = format!("[store]\nurl = \"{url}\"\nspool = false\n");
    for arguments in [&["serve"][..], &["migrate"], &["events", "list"]] {
        let output = run_with(&config, arguments);
        assert_eq!(output.status.code(), Some(5), "{arguments:?}: {}", printed(&output));
        assert_no_canary(&format!("{arguments:?}"), &printed(&output));
    }
    assert!(run_with(&config, &["config", "check"]).status.success());
    assert_no_canary("config check", &printed(&run_with(&config, &["config", "check", "--json"])));
}

#[test]
fn case_75_the_stores_password_is_not_shown_while_the_gateway_waits_for_it() {
    let gateway = setup().store(&unreachable_store()).spool("").start();
    assert_eq!(gateway.client().send(&sample(1)).unwrap().status, 200, "it is in the spool");
    eventually("the store was tried", || gateway.log().contains("the spool cannot be drained"));
    assert_no_canary("the log", &gateway.log());
    assert_no_canary("the greeting", &gateway.printed());
    let spool = gateway.command(&["spool", "--json"]);
    assert_no_canary("the command", &format!("{spool:?}"));
}

/// No program listens on port 1.
fn unreachable_store() -> String {
    format!("postgres://hookfast:{PASSWORD}@127.0.0.1:1/hookfast")
}

/// A mistyped line with a secret in it must not bring the secret into the log of the failed start.
#[test]
fn case_75_a_broken_configuration_is_reported_without_its_secrets() {
    let source = |line: &str| format!("[sources.stripe]\nprovider = \"stripe\"\n{line}\n");
    for config in [
        source(&format!("secrets = \"{SECRET}\"")),
        source(&format!("secrets = [\"{SECRET}\"")),
        source(&format!("secrets = [\"{SECRET}]")),
        source(&format!("secrets = [{SECRET}]")),
        source(&format!("secrets = [[\"{SECRET}\"]]")),
        source(&format!("secrets = [\"{SECRET}\", \"\"]")),
        source(&format!("secret = \"{SECRET}\"")),
        source(&format!("secrets = [\"{SECRET}\"]\nsecrets = [\"{SECRET}\"]")),
        format!("[store]\nurl = \"postgres//u:{PASSWORD}@h/d\"\n"),
        format!("[store]\nurl = \"postgres://u:{PASSWORD}@h:port/d\"\n"),
        format!("[store]\nurl = \"postgres://u:{PASSWORD}@[h/d\"\n"),
        format!("[store]\nurl = \"postgres://u:{PASSWORD}@h/d?sslmode=nonsense\"\n"),
        format!("[store]\nurl = \"postgres://u:{PASSWORD}@h/d?port=x\"\n"),
        format!("[store]\nurl = [\"postgres://u:{PASSWORD}@h/d\"]\n"),
        format!("store = \"postgres://u:{PASSWORD}@h/d\"\n"),
    ] {
        for arguments in [&["serve"][..], &["config", "check"], &["config", "check", "--json"]] {
            let output = run_with(&config, arguments);
            assert_eq!(output.status.code(), Some(2), "{config}: {}", printed(&output));
            assert_no_canary(&config, &printed(&output));
        }
    }
}

/// A gateway without a configuration; it is killed when dropped.
struct Development {
    process: Child,
    greeting: String,
}

impl Development {
    fn start(folder: &Path) -> Self {
        let log = fs::File::create(folder.join("log")).unwrap();
        let mut command = hookfast(BINARY, folder);
        let mut process = command.arg("serve").envs(LISTEN).stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines().map_while(Result::ok);
        // The last line of the greeting. A gateway that refuses to start says nothing and ends.
        let mut greeting = String::new();
        for line in lines {
            greeting += &format!("{line}\n");
            if line.starts_with("Then look:") {
                break;
            }
        }
        Self { process, greeting }
    }
}

impl Drop for Development {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn case_75_a_development_secret_is_only_in_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Development::start(folder.path());
    let kept = fs::read_to_string(folder.path().join("hookfast.dev-secrets.toml")).unwrap();
    let secret = kept.lines().find_map(|line| line.strip_prefix("stripe = ")).unwrap().trim_matches('"');
    assert!(secret.starts_with("whsec_") && gateway.greeting.contains("curl"), "{}", gateway.greeting);
    assert!(!gateway.greeting.contains(secret), "the greeting shows it");
    assert!(!fs::read_to_string(folder.path().join("log")).unwrap().contains(secret), "the log shows it");
}

/// The permissions of a file.
fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap_or_else(|error| panic!("{}: {error}", path.display())).permissions().mode() & 0o777
}

#[test]
fn case_79_only_the_owner_can_read_the_database() {
    // The loosest mask there is: what others may read is then up to the program alone.
    let gateway = setup().under(&["sh", "-c", "umask 0; exec \"$@\"", "sh"]).start();
    assert_eq!(gateway.client().send(&sample(1)).unwrap().status, 200);
    for name in ["hookfast.db", "hookfast.db-wal", "hookfast.db-shm"] {
        assert_eq!(mode(&gateway.folder().join(name)), 0o600, "{name}");
    }
    assert_serves(&gateway);
}

#[test]
fn case_79_only_the_owner_can_read_development_secrets() {
    let folder = tempfile::tempdir().unwrap();
    let _gateway = Development::start(folder.path());
    for name in ["hookfast.dev-secrets.toml", "hookfast.db"] {
        assert_eq!(mode(&folder.path().join(name)), 0o600, "{name}");
    }
}

/// Whoever can put a link where we expect a file could have us write into, or read from, a file of their choice.
#[test]
fn case_79_a_link_in_the_place_of_a_file_is_refused() {
    for link in ["hookfast.db", "hookfast.dev-secrets.toml"] {
        for target in ["target", "missing"] {
            let folder = tempfile::tempdir().unwrap();
            fs::write(folder.path().join("target"), "").unwrap();
            symlink(folder.path().join(target), folder.path().join(link)).unwrap();
            let output = run(folder.path(), &["serve"], &LISTEN);
            let said = printed(&output);
            assert!(matches!(output.status.code(), Some(1 | 2)), "{link}: {said}");
            assert!(said.contains(link), "{said}");
            assert_eq!(fs::read(folder.path().join("target")).unwrap(), b"", "{link}: nothing was written through it");
            assert!(!folder.path().join("missing").exists(), "{link}: nothing was created through it");
        }
    }
}

/// What another user can write is not what we wrote.
#[test]
fn case_79_a_file_of_somebody_else_is_refused() {
    const NOBODY: u32 = 65_534;
    for name in ["hookfast.db", "hookfast.db-wal", "hookfast.dev-secrets.toml"] {
        for remedy in ["chmod o= ", "chown "] {
            let folder = tempfile::tempdir().unwrap();
            drop(Development::start(folder.path()));
            let path = folder.path().join(name);
            if !path.exists() {
                OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).unwrap();
            }
            match remedy {
                "chown " => chown(&path, Some(NOBODY), None).unwrap(),
                _ => fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap(),
            }
            let output = run(folder.path(), &["serve"], &LISTEN);
            let said = printed(&output);
            assert!(matches!(output.status.code(), Some(1 | 2)), "{name}: {said}");
            assert!(said.contains(remedy) && said.contains(name), "{said}");
        }
    }
}

/// An operator who is root asks beside a gateway with a user of its own, and leaves its files as they are.
#[test]
fn case_79_root_may_look_into_the_database_of_another_user() {
    const NOBODY: u32 = 65_534;
    let folder = tempfile::tempdir().unwrap();
    drop(Development::start(folder.path()));
    let path = folder.path().join("hookfast.db");
    chown(&path, Some(NOBODY), None).unwrap();
    let output = run(folder.path(), &["events", "list"], &[]);
    assert!(output.status.success(), "{}", printed(&output));
    assert_eq!(fs::metadata(&path).unwrap().uid(), NOBODY);
}

#[test]
fn case_80_unknown_keys_are_refused_with_file_line_and_what_is_allowed() {
    for (config, line, key, allowed) in [
        ("[ingest]\nlistn = \"127.0.0.1:0\"\n", 2, "ingest.listn", "connections_per_address"),
        ("[admin]\n\ntoken = \"x\"\n", 3, "admin.token", "listen"),
        ("[store]\npath = \"x\"\n", 2, "store.path", "parallel_batches"),
        ("[sources.s]\nprovider = \"stripe\"\nsecrets = [\"x\"]\nsecret = \"x\"\n", 4, "sources.s.secret", "secrets"),
        (
            "[sources.s]\nprovider = \"stripe\"\nsecrets = [\"x\"]\nverify = false\n",
            4,
            "sources.s.verify",
            "allow_from",
        ),
        ("[handlers.h]\nrun = \"log\"\ntype = \"a\"\n", 3, "handlers.h.type", "types"),
        ("[ingress]\n", 1, "ingress", "ingest"),
        ("insecure = true\n", 1, "insecure", "sources"),
    ] {
        for command in [&["serve"][..], &["config", "check"]] {
            let output = run_with(config, command);
            let said = printed(&output);
            assert_eq!(output.status.code(), Some(2), "{config}: {said}");
            assert!(said.contains(&format!("hookfast.toml:{line}: `{key}`")), "{said}");
            let (_, problem) = said.split_once(key).unwrap();
            assert!(problem.contains(allowed), "{said}");
        }
    }
}

#[test]
fn case_80_unknown_variables_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["HOOKFAST_INGEST__LISTN", "HOOKFAST_LISTEN", "HOOKFAST_SOURCES__STRIPE__VERIFY", "HOOKFAST_"] {
        let output = run(folder.path(), &["config", "check"], &[(name, "x")]);
        let said = printed(&output);
        assert_eq!(output.status.code(), Some(2), "{name}: {said}");
        assert!(said.contains(&format!("the variable {name}: ")), "{said}");
    }
}

/// A core file holds the whole memory of the process, and with it every secret.
#[test]
fn case_75_a_crash_leaves_no_core_file() {
    let mut gateway = setup().under(&["prlimit", "--core=unlimited"]).start();
    gateway.signal(Signal::Abort);
    let ended = gateway.wait();
    assert_eq!((ended.signal(), ended.core_dumped()), (Some(6), false));
    let files = fs::read_dir(gateway.folder()).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
    let cores: Vec<_> = files.filter(|name| name.contains("core")).collect();
    assert!(cores.is_empty(), "{cores:?}");
}
