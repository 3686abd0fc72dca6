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
use crate::{Disk, Ended, Proxy, Signal, eventually_within, signal};

/// The shared private server that `tests/run` starts, as a URL without a database.
const SERVER_VARIABLE: &str = "TEST_POSTGRES_URL";

/// A server, which may be down.
#[derive(Debug)]
pub struct PrivatePostgres {
    server: Option<Child>,
    port: u16,
    settings: Vec<String>,
    variables: Vec<(&'static str, String)>,
    owner: Owner,
    /// For its log, and for its data if they are not on a disk of their own.
    folder: TempDir,
    data: PathBuf,
}

impl PrivatePostgres {
    /// Starts a server with `settings` such as `fsync=off` on top of the usual ones.
    pub fn start(settings: &[&str]) -> Self {
        Self::start_with(settings, &[])
    }

    /// The same with variables of its environment.
    pub fn start_with(settings: &[&str], variables: &[(&'static str, String)]) -> Self {
        let mut server = Self::new(settings, None);
        server.variables = variables.to_vec();
        server.initialise();
        server.start_somewhere();
        server
    }

    /// The same with its data on a disk, where they are safe before this returns.
    pub fn start_on(disk: &Disk, settings: &[&str]) -> Self {
        let mut server = Self::new(settings, Some(disk));
        server.initialise();
        server.start_somewhere();
        disk.flush();
        server
    }

    /// The server's URL, without a database.
    pub fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}", self.port)
    }

    /// The URL of a new, empty database on this server.
    pub fn database(&self) -> String {
        new_database(&self.url())
    }

    /// Kills the server with all its processes; what it stored stays.
    pub fn kill(&mut self) {
        let frozen = self.freeze();
        for process in &frozen.processes {
            try_signal(*process, Signal::Kill);
        }
        drop(frozen);
        self.server.take().expect("the server runs").wait().unwrap();
    }

    /// Starts it with what it stored before, on the same port, after killing it if it runs.
    pub fn restart(&mut self) {
        if self.server.is_some() {
            self.kill();
        }
        // It refuses as long as one of its killed processes is not quite gone.
        eventually_within(Duration::from_secs(60), "postgres starts again", || self.launch());
    }

    /// A standby, which follows this server through a link.
    pub fn standby(&self, link: &Proxy) -> Self {
        let mut standby = Self::new(&[], None);
        let mut copy = standby.owner.command("pg_basebackup");
        copy.args(["--write-recovery-conf", "--checkpoint=fast", "--no-sync", "--dbname"]);
        copy.arg(link.through(&self.url())).arg("--pgdata").arg(&standby.data);
        let ended = Ended::of(&mut copy);
        assert!(ended.code == 0, "pg_basebackup: {}", ended.errors);
        standby.start_somewhere();
        standby
    }

    /// Takes the place of the server that it followed, which is dead: from now on it is found at its port.
    pub fn take_over_from(&mut self, dead: &Self) {
        assert!(dead.server.is_none(), "two servers would go on");
        self.sql("SELECT pg_promote()");
        self.port = dead.port;
        self.restart();
    }

    /// Runs SQL.
    pub fn sql(&self, statement: &str) {
        psql(&self.url(), statement).expect("the server does it");
    }

    /// Makes the server and all its processes stand still until the guard is dropped: connections stay
    /// open, and nothing answers.
    pub fn freeze(&self) -> Frozen {
        let server = self.server.as_ref().expect("the server runs");
        let mut processes = vec![server.id()];
        // The parent first, so that it starts no more of them. Some may end of themselves in this moment.
        signal(server, Signal::Stop);
        processes.extend(children(server.id()).into_iter().filter(|child| try_signal(*child, Signal::Stop)));
        Frozen { processes }
    }

    /// The ids of all its processes.
    pub fn processes(&self) -> Vec<u32> {
        let server = self.server.as_ref().expect("the server runs").id();
        [vec![server], children(server)].concat()
    }

    /// What the server logged so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    fn new(settings: &[&str], disk: Option<&Disk>) -> Self {
        let folder = tempfile::Builder::new().prefix("hookfast-postgres-").tempdir().expect("a temporary folder");
        let owner = Owner::choose(folder.path());
        owner.give(folder.path());
        let data = disk.map_or_else(|| folder.path().into(), Disk::path).join("data");
        fs::create_dir(&data).unwrap();
        fs::set_permissions(&data, fs::Permissions::from_mode(0o700)).unwrap();
        owner.give(&data);
        let settings = settings.iter().map(ToString::to_string).collect();
        Self { server: None, port: 0, settings, variables: vec![], owner, folder, data }
    }

    fn initialise(&self) {
        let mut initdb = self.owner.command("initdb");
        initdb.args(["--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync", "-D"]);
        let output = initdb.arg(&self.data).output().expect("initdb runs");
        assert!(output.status.success(), "initdb: {}", String::from_utf8_lossy(&output.stderr));
    }

    fn start_somewhere(&mut self) {
        // Between asking for a free port and using it, another process may have taken it.
        let started = (0..5).any(|_| {
            self.port = free_port();
            self.launch()
        });
        assert!(started, "postgres does not start: {}", self.log());
    }

    /// Starts the server and waits until it answers; says whether it does.
    fn launch(&mut self) -> bool {
        let mut command = self.owner.command("postgres");
        command.arg("-D").arg(&self.data).args(["-p", &self.port.to_string(), "-h", "127.0.0.1", "-k"]).arg(&self.data);
        command.envs(self.variables.iter().cloned());
        command.args(self.settings.iter().flat_map(|setting| ["-c", setting]));
        let log = File::options().create(true).append(true).open(self.folder.path().join("log")).unwrap();
        let mut server = command.stdout(Stdio::null()).stderr(log).spawn().expect("postgres can be run");
        let start = Instant::now();
        while let Ok(None) = server.try_wait() {
            let Err(problem) = psql(&self.url(), "SELECT 1") else {
                self.server = Some(server);
                return true;
            };
            if start.elapsed() > Duration::from_secs(20) {
                eprintln!("the private Postgres does not answer: {problem}");
                signal(&server, Signal::Kill);
                let _ = server.wait();
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        false
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
        if let Some(mut server) = self.server.take() {
            // Interrupt is Postgres' fast shutdown.
            signal(&server, Signal::Interrupt);
            let _ = server.wait();
        }
    }
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

/// Debian keeps the server's programs off the PATH; `tests/run` says where they are.
pub fn program(name: &str) -> PathBuf {
    if let Some(folder) = std::env::var_os("PG_BINDIR") {
        return Path::new(&folder).join(name);
    }
    let output = Command::new("pg_config").arg("--bindir").output();
    let output = output.expect("PostgreSQL is not found: use `tests/run`, or set PG_BINDIR to the folder of initdb");
    let folder = String::from_utf8(output.stdout).expect("a path");
    Path::new(folder.trim()).join(name)
}

/// Below the ports that the system gives to clients: one of those could be taken by a client that asks whether the server is
/// there yet, and be connected to itself.
pub(crate) fn free_port() -> u16 {
    let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    let random = uuid::Uuid::now_v7().as_u128() as u16 % 12_000;
    (0..12_000).map(|step| 20_000 + (random + step) % 12_000).find(is_free).expect("a free port")
}

/// Who runs the server: Postgres refuses to be root.
#[derive(Debug)]
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
