//! A gateway that is yet to start, in a folder of its own.

use std::fs;
use std::io::{BufRead, BufReader, PipeWriter, Write};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use tempfile::TempDir;

use crate::{Ended, Gateway, SECRET, fresh_database};

/// Which database a test runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Database {
    /// A file beside the gateway.
    Sqlite,
    /// A new database on the private Postgres.
    Postgres,
}

/// A gateway that is yet to start.
#[derive(Debug)]
pub struct Setup {
    binary: PathBuf,
    pub(crate) folder: TempDir,
    pub(crate) store_url: String,
    ingest: String,
    source: String,
    /// Lines of the section `[store]`.
    spool: String,
    /// The section `[queue]`.
    queue: String,
    handlers: String,
    rest: String,
    has_config: bool,
    role: String,
    arguments: Vec<String>,
    variables: Vec<(String, String)>,
    pub(crate) wrapper: Vec<String>,
    /// Where it logs if not into its file.
    log_pipe: Option<PipeWriter>,
}

impl Setup {
    /// A gateway with the source `stripe` and the handler `ledger`, whose jobs wait. `binary` is
    /// `env!("CARGO_BIN_EXE_hookfast")`.
    pub fn new(binary: &str, database: Database) -> Self {
        let folder = tempfile::Builder::new().prefix("hookfast-test-").tempdir().expect("a temporary folder");
        let store_url = match database {
            Database::Sqlite => format!("sqlite:{}", folder.path().join("hookfast.db").display()),
            Database::Postgres => fresh_database(),
        };
        Self {
            binary: binary.into(),
            folder,
            store_url,
            ingest: String::new(),
            source: String::new(),
            spool: "spool = false\n".into(),
            queue: String::new(),
            handlers: "[handlers.ledger]\nrun = \"log\"\npaused = true\n".into(),
            rest: String::new(),
            has_config: true,
            role: "serve".into(),
            arguments: vec!["--migrate".into()],
            variables: vec![],
            wrapper: vec![],
            log_pipe: None,
        }
    }

    /// Writes a file into its folder that no other user can read, as the gateway wants its own files to be.
    pub fn write_private(&self, name: &str, content: &str) {
        let mut options = fs::OpenOptions::new();
        let file = options.write(true).create(true).truncate(true).mode(0o600).open(self.folder().join(name));
        file.and_then(|mut file| file.write_all(content.as_bytes())).unwrap();
    }

    /// Adds lines to the section `[ingest]`.
    pub fn ingest(mut self, lines: &str) -> Self {
        self.ingest += lines;
        self.ingest += "\n";
        self
    }

    /// Adds lines to the section `[sources.stripe]`.
    pub fn source(mut self, lines: &str) -> Self {
        self.source += lines;
        self.source += "\n";
        self
    }

    /// Has a spool before Postgres, with further lines of the section `[store]`. Without this there is none, so that what
    /// was promised is in the database at once.
    pub fn spool(mut self, lines: &str) -> Self {
        self.spool = format!("{lines}\n");
        self
    }

    /// Has these sections of handlers and not the one of `ledger`.
    pub fn handlers(mut self, sections: &str) -> Self {
        self.handlers = format!("{sections}\n");
        self
    }

    pub(crate) fn change_handlers(&mut self, sections: &str) {
        self.handlers = format!("{sections}\n");
        self.write_config();
    }

    /// Tells workers through NATS.
    pub fn queue(mut self, url: &str) -> Self {
        self.queue = format!("[queue]\nurl = \"{url}\"\n");
        self
    }

    /// Starts only this half: `receive`, or `work` with further arguments.
    pub fn role(mut self, role: &str, arguments: &[&str]) -> Self {
        self.role = role.into();
        self.arguments.extend(arguments.iter().map(ToString::to_string));
        self
    }

    /// Adds whole sections.
    pub fn sections(mut self, lines: &str) -> Self {
        self.rest += lines;
        self.rest += "\n";
        self
    }

    /// Uses a database that is there already.
    pub fn store(mut self, url: &str) -> Self {
        self.store_url = url.into();
        self
    }

    /// Sets a variable of its environment.
    pub fn variable(mut self, name: &str, value: &str) -> Self {
        self.set_variable(name, value);
        self
    }

    pub(crate) fn set_variable(&mut self, name: &str, value: &str) {
        self.variables.retain(|(set, _)| set != name);
        self.variables.push((name.into(), value.into()));
    }

    /// Starts it as a newcomer does: without a configuration file, on a SQLite file in its folder.
    pub fn without_config(mut self) -> Self {
        self.has_config = false;
        self.variable("HOOKFAST_INGEST__LISTEN", "127.0.0.1:0").variable("HOOKFAST_ADMIN__LISTEN", "127.0.0.1:0")
    }

    /// Starts it without leave to migrate Postgres.
    pub fn without_migrate(mut self) -> Self {
        self.arguments.clear();
        self
    }

    /// Runs the binary under another program, such as `strace`.
    pub fn under(mut self, wrapper: &[&str]) -> Self {
        self.wrapper = wrapper.iter().map(ToString::to_string).collect();
        self
    }

    /// Has it log into this pipe. Its log cannot be asked for then.
    pub fn log_into(mut self, pipe: PipeWriter) -> Self {
        self.log_pipe = Some(pipe);
        self
    }

    /// The folder the gateway runs in.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Starts it and waits until it is ready.
    pub fn start(self) -> Gateway {
        self.write_config();
        let started = self.spawn();
        Gateway::new(self, started)
    }

    /// Starts it where that must fail, and waits for its end.
    pub fn start_in_vain(&self) -> Ended {
        self.write_config();
        Ended::of(&mut self.serve())
    }

    /// Runs another command, such as `["events", "list"]`, in its folder.
    pub fn command(&self, arguments: &[&str]) -> Ended {
        self.write_config();
        Ended::of(self.hookfast(Command::new(&self.binary)).args(arguments))
    }

    fn write_config(&self) {
        if !self.has_config {
            return;
        }
        let spool = if self.store_url.starts_with("sqlite") { "" } else { &self.spool };
        let config = format!(
            "[ingest]\nlisten = \"127.0.0.1:0\"\n{}\n[admin]\nlisten = \"127.0.0.1:0\"\n[store]\nurl = \"{}\"\n{}\
             [sources.stripe]\nprovider = \"stripe\"\nsecrets = [\"{SECRET}\"]\n{}\n{}{}{}\n",
            self.ingest, self.store_url, spool, self.source, self.queue, self.handlers, self.rest
        );
        fs::write(self.folder.path().join("hookfast.toml"), config).unwrap();
    }

    fn hookfast(&self, mut command: Command) -> Command {
        command.current_dir(self.folder.path()).envs(self.variables.iter().cloned());
        command
    }

    fn serve(&self) -> Command {
        let mut words = self.wrapper.clone();
        words.push(self.binary.display().to_string());
        let mut command = self.hookfast(Command::new(&words[0]));
        command.args(&words[1..]).arg(&self.role).args(&self.arguments).args(["--log-format", "json"]);
        command.env("HOOKFAST_LOG", "debug,sqlx=info");
        command
    }

    pub(crate) fn spawn(&self) -> Started {
        self.try_spawn().unwrap_or_else(|| {
            panic!("hookfast did not start: {}", fs::read_to_string(self.log()).unwrap_or_default());
        })
    }

    /// None if it ends, or is not ready for too long.
    pub(crate) fn try_spawn(&self) -> Option<Started> {
        let log = self.log();
        let mut process =
            self.serve().stdout(Stdio::piped()).stderr(self.log_output()).spawn().expect("hookfast starts");
        let printed = Arc::default();
        let Ok((ingest, admin)) = addresses(&mut process, &printed, self.role != "work") else {
            let _ = (process.kill(), process.wait());
            return None;
        };
        Some(Started { process, ingest, admin, log, printed })
    }

    fn log_output(&self) -> Stdio {
        match &self.log_pipe {
            Some(pipe) => pipe.try_clone().unwrap().into(),
            None => fs::OpenOptions::new().create(true).append(true).open(self.log()).unwrap().into(),
        }
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("log.jsonl")
    }
}

/// A process that is ready.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) process: Child,
    pub(crate) ingest: SocketAddr,
    pub(crate) admin: SocketAddr,
    pub(crate) log: PathBuf,
    pub(crate) printed: Arc<Mutex<String>>,
}

/// Reads the addresses that a gateway prints once it is ready. One that only works has no ingest.
fn addresses(
    process: &mut Child,
    printed: &Arc<Mutex<String>>,
    receives: bool,
) -> Result<(SocketAddr, SocketAddr), mpsc::RecvTimeoutError> {
    let (sender, receiver) = mpsc::channel();
    let output = process.stdout.take().expect("piped");
    let printed = Arc::clone(printed);
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            let address = line.split("http://").nth(1).and_then(|rest| rest.split('/').next()?.parse().ok());
            *printed.lock().unwrap() += &format!("{line}\n");
            if let Some(address) = address {
                let _ = sender.send(address);
            }
        }
    });
    let next = || receiver.recv_timeout(Duration::from_secs(30));
    let first = next()?;
    Ok(if receives { (first, next()?) } else { (first, first) })
}
