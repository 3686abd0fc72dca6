//! A private Postgres: own folder, free port, own user if we are root, gone when dropped.

use std::fs::{self, File};
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::process::{children, try_signal};
use crate::{Signal, signal};

/// The shared private server that `tests/run` starts, as a URL without a database.
const SERVER_VARIABLE: &str = "TEST_POSTGRES_URL";

/// A running server.
#[derive(Debug)]
pub struct PrivatePostgres {
    server: Child,
    port: u16,
    _folder: TempDir,
}

impl PrivatePostgres {
    /// Starts a server with `settings` such as `fsync=off` on top of the usual ones.
    pub fn start(settings: &[&str]) -> Self {
        let folder = tempfile::Builder::new().prefix("hookfast-postgres-").tempdir().expect("a temporary folder");
        let owner = Owner::choose(folder.path());
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
        owner.give(folder.path());
        let data = folder.path().join("data");
        initialise(&owner, &data);
        // Between asking for a free port and using it, somebody else may have taken it.
        let started = (0..5).find_map(|_| try_start(&owner, folder.path(), settings));
        let (server, port) = started.unwrap_or_else(|| panic!("postgres does not start: {}", log(folder.path())));
        Self { server, port, _folder: folder }
    }

    /// The server's URL, without a database.
    pub fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}", self.port)
    }

    /// The URL of a new, empty database on this server.
    pub fn database(&self) -> String {
        new_database(&self.url())
    }

    /// Makes the server and all its processes stand still until the guard is dropped: connections stay
    /// open, and nothing answers.
    pub fn freeze(&self) -> Frozen {
        let mut processes = vec![self.server.id()];
        // The parent first, so that it starts no more of them. Some may end of themselves in this moment.
        signal(&self.server, Signal::Stop);
        processes.extend(children(self.server.id()).into_iter().filter(|child| try_signal(*child, Signal::Stop)));
        Frozen { processes }
    }
}

/// A server that stands still.
#[derive(Debug)]
pub struct Frozen {
    processes: Vec<u32>,
}

impl Drop for Frozen {
    fn drop(&mut self) {
        for process in &self.processes {
            try_signal(*process, Signal::Continue);
        }
    }
}

impl Drop for PrivatePostgres {
    fn drop(&mut self) {
        // Interrupt is Postgres' fast shutdown.
        signal(&self.server, Signal::Interrupt);
        let _ = self.server.wait();
    }
}

fn try_start(owner: &Owner, folder: &Path, settings: &[&str]) -> Option<(Child, u16)> {
    let (port, data) = (free_port(), folder.join("data"));
    let mut command = owner.command("postgres");
    command.arg("-D").arg(&data).args(["-p", &port.to_string(), "-h", "127.0.0.1", "-k"]).arg(&data);
    for setting in settings {
        command.args(["-c", setting]);
    }
    let log = File::options().create(true).append(true).open(folder.join("log")).unwrap();
    let mut server = command.stdout(Stdio::null()).stderr(log).spawn().expect("postgres can be run");
    let url = format!("postgres://postgres@127.0.0.1:{port}");
    let start = Instant::now();
    while let Ok(None) = server.try_wait() {
        let Err(problem) = psql(&url, "SELECT 1") else { return Some((server, port)) };
        if start.elapsed() > Duration::from_secs(20) {
            eprintln!("the private Postgres does not answer: {problem}");
            signal(&server, Signal::Kill);
            let _ = server.wait();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    None
}

fn log(folder: &Path) -> String {
    fs::read_to_string(folder.join("log")).unwrap_or_default()
}

/// The URL of a new, empty database on the shared server.
pub fn fresh_database() -> String {
    let server = std::env::var(SERVER_VARIABLE).unwrap_or_else(|_| {
        panic!("{SERVER_VARIABLE} is not set: run the tests with `tests/run`, which starts a private Postgres")
    });
    new_database(&server)
}

/// Lets the shared server write until it uses its WAL files again, as one does that has run for a while. Making a new one
/// costs 16 MB of zeros and an fsync, for which all commits wait.
pub fn warm_up_shared_server() {
    let server = std::env::var(SERVER_VARIABLE).expect("there is a shared server");
    for _ in 0..2 {
        let rows = "SELECT number, repeat('x', 1000) FROM generate_series(1, 600000) AS number";
        for statement in [&format!("CREATE TABLE warm_up AS {rows}"), "DROP TABLE warm_up", "CHECKPOINT"] {
            psql(&server, statement).expect("the server works");
        }
    }
}

fn new_database(server: &str) -> String {
    let name = format!("t_{}", uuid::Uuid::now_v7().simple());
    psql(server, &format!("CREATE DATABASE {name}")).expect("a database is created");
    format!("{server}/{name}")
}

fn psql(server: &str, sql: &str) -> Result<(), String> {
    let output = Command::new(program("psql"))
        .env("PGCONNECT_TIMEOUT", "2")
        .args(["--no-psqlrc", "--quiet", "--dbname"])
        .arg(format!("{server}/postgres"))
        .args(["--command", sql])
        .output()
        .map_err(|error| error.to_string())?;
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

fn initialise(owner: &Owner, data: &Path) {
    let output = owner
        .command("initdb")
        .args(["--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync", "-D"])
        .arg(data)
        .output()
        .expect("initdb runs");
    assert!(output.status.success(), "initdb: {}", String::from_utf8_lossy(&output.stderr));
}

/// Debian keeps the server's programs off the PATH; `tests/run` says where they are.
pub(crate) fn program(name: &str) -> PathBuf {
    if let Some(folder) = std::env::var_os("PG_BINDIR") {
        return Path::new(&folder).join(name);
    }
    let output = Command::new("pg_config").arg("--bindir").output();
    let output = output.expect("PostgreSQL is not found: use `tests/run`, or set PG_BINDIR to the folder of initdb");
    let folder = String::from_utf8(output.stdout).expect("a path");
    Path::new(folder.trim()).join(name)
}

/// Below the ports that the system gives to clients: one of those could be taken by whoever asks whether the server is
/// there yet, and be connected to itself.
pub(crate) fn free_port() -> u16 {
    let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    let random = uuid::Uuid::now_v7().as_u128() as u16 % 12_000;
    (0..12_000).map(|step| 20_000 + (random + step) % 12_000).find(is_free).expect("a free port")
}

/// Who runs the server: Postgres refuses to be root.
enum Owner {
    Ourselves,
    Other { uid: u32, gid: u32 },
}

impl Owner {
    fn choose(ours: &Path) -> Self {
        if fs::metadata(ours).unwrap().uid() != 0 {
            return Self::Ourselves;
        }
        let id = |flag| {
            let output = Command::new("id").args([flag, "postgres"]).output().expect("`id` runs");
            String::from_utf8_lossy(&output.stdout).trim().parse().expect("there is a user postgres")
        };
        Self::Other { uid: id("-u"), gid: id("-g") }
    }

    fn give(&self, path: &Path) {
        if let Self::Other { uid, gid } = self {
            chown(path, Some(*uid), Some(*gid)).expect("root may give folders away");
        }
    }

    fn command(&self, name: &str) -> Command {
        let mut command = Command::new(program(name));
        if let Self::Other { uid, gid } = self {
            command.uid(*uid).gid(*gid);
        }
        command.current_dir("/");
        command
    }
}
