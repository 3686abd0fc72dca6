//! What `tests/run` promises about itself, with programs that only seem to do something.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::{read, root};

fn write_program(path: &Path, script: &str) {
    fs::write(path, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// A machine without a NATS server, on which everything that is installed or built talks.
#[test]
fn bench_with_json_prints_only_its_results_also_when_it_installs_something() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    for name in ["bin", "target/dist", "target/release"] {
        fs::create_dir_all(path(name)).unwrap();
    }
    write_program(&path("bin/python3"), "echo talking python");
    write_program(&path("bin/cargo"), "echo talking cargo");
    for server in ["initdb", "postgres", "psql"] {
        write_program(&path("bin").join(server), "echo talking server");
    }
    for profile in ["dist", "release"] {
        let result = format!("shift; echo \"{{\\\"profile\\\":\\\"{profile}\\\",\\\"arguments\\\":\\\"$*\\\"}}\"");
        write_program(&path(&format!("target/{profile}/with-postgres")), &result);
    }
    let bench = |arguments: &[&str]| {
        let mut command = Command::new("bash");
        command.arg(root().join("tests/run")).arg("bench").args(arguments);
        let search = format!("{}:{}", path("bin").display(), std::env::var("PATH").unwrap());
        command
            .env("PATH", search)
            .env("PG_BINDIR", path("bin"))
            .env("TEST_NATS_SERVER", path("none"))
            .env("TEST_NATS_SERVER_OLD", "/bin/true")
            .env("CARGO_TARGET_DIR", path("target"));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let (results, errors) = bench(&["neighbours", "--json"]);
    assert_eq!(results, "{\"profile\":\"dist\",\"arguments\":\"neighbours --json\"}\n");
    for talk in ["Installing nats-server", "talking python", "talking cargo"] {
        assert!(errors.contains(talk), "{talk}: {errors}");
    }
    let (results, _) = bench(&["--profile", "release", "neighbours", "--json"]);
    assert_eq!(results, "{\"profile\":\"release\",\"arguments\":\"neighbours --json\"}\n");
}

#[test]
fn the_page_about_testing_lists_every_part() {
    let (page, script) = (read("docs/testing.md"), read("tests/run"));
    let list = |name: &str| {
        let (_, rest) = script.split_once(&format!("\n{name}=(")).unwrap();
        rest.split(')').next().unwrap().split(' ').map(str::to_owned).collect::<Vec<_>>()
    };
    let rows: String = page.lines().filter(|line| line.starts_with("| `")).collect();
    let missing: Vec<_> = [list("ALL"), list("OTHERS")].concat();
    let missing: Vec<_> = missing.iter().filter(|part| !rows.contains(&format!("`{part}`"))).collect();
    assert!(missing.is_empty(), "add them to docs/testing.md: {missing:?}");
}
