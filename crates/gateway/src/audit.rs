//! `hookfast audit`, and who an act is noted for.

use std::env;
use std::fs;
use std::os::unix::fs::MetadataExt;

use hookfast_store::{Action, Audit};
use serde_json::{Value, json};

use crate::cli::AuditListArguments;
use crate::config::OperatorConfig;
use crate::events::{open_existing, plain, rfc3339, to_the_second};
use crate::exit::Exit;

pub(crate) async fn list(config: OperatorConfig, arguments: &AuditListArguments) -> Result<(), Exit> {
    let store = open_existing(&config).await?;
    let audits = store.latest_audits(arguments.limit).await?;
    store.close().await;
    if arguments.json {
        audits.iter().for_each(|audit| outln!("{}", audit_json(audit)));
    } else if audits.is_empty() {
        outln!("Nothing was replayed, resolved or moved yet.");
    } else {
        print_table(&audits);
    }
    Ok(())
}

fn print_table(audits: &[Audit]) {
    outln!("{:36}  {:20}  {:20}  {:7}  {:>8}  {:8}  WHAT AND WHY", "ID", "BEGAN", "WHO", "ACTION", "JOBS", "STATE");
    for audit in audits {
        let Audit { id, action, jobs, .. } = audit;
        let (began, who, state) = (to_the_second(audit.at), plain(&audit.who), state(audit));
        let why = audit.why.as_deref().map(|why| format!("  ({})", plain(why))).unwrap_or_default();
        outln!("{id}  {began:20}  {who:20}  {action:7}  {jobs:>8}  {state:8}  {}{why}", plain(&audit.filter));
    }
    let unfinished = |action: Action| audits.iter().any(|audit| !audit.is_done && audit.action == action);
    if unfinished(Action::Replay) {
        outln!("\n`hookfast replay --resume ID` goes on with a replay that was not finished.");
    }
    if unfinished(Action::Move) {
        outln!("\n`hookfast jobs resume ID` goes on with a move that was not finished.");
    }
}

fn state(audit: &Audit) -> &'static str {
    if audit.is_done { "done" } else { "not done" }
}

fn audit_json(audit: &Audit) -> Value {
    json!({
        "id": audit.id.to_string(),
        "at": rfc3339(audit.at),
        "who": audit.who,
        "action": audit.action.as_str(),
        "why": audit.why,
        "filter": serde_json::from_str::<Value>(&audit.filter).unwrap_or_else(|_| audit.filter.clone().into()),
        "jobs": audit.jobs,
        "next_after": audit.next_after.map(|event| event.to_string()),
        "done": audit.is_done,
    })
}

/// Who an act is noted for: as said, or the user at this machine, behind `sudo` too.
pub(crate) fn who(said: Option<&str>) -> String {
    let variable = |name| env::var(name).ok();
    said.map_or_else(|| user_at_machine(variable, user_id(), machine()), Into::into)
}

fn user_at_machine(
    variable: impl Fn(&'static str) -> Option<String>,
    user_id: Option<u32>,
    machine: Option<String>,
) -> String {
    let named = ["SUDO_USER", "USER"].into_iter().find_map(|name| variable(name).filter(|user| !user.is_empty()));
    let user = named.or(user_id.map(|id| format!("uid {id}"))).unwrap_or_else(|| "unknown".into());
    let machine = machine.or_else(|| variable("HOSTNAME")).filter(|machine| !machine.is_empty());
    machine.map_or_else(|| user.clone(), |machine| format!("{user}@{machine}"))
}

/// Linux says it without a system call of our own, which would be unsafe code.
fn user_id() -> Option<u32> {
    fs::metadata("/proc/self").ok().map(|process| process.uid())
}

fn machine() -> Option<String> {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").or_else(|_| fs::read_to_string("/etc/hostname"));
    name.ok().map(|name| name.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_act_is_noted_for_the_person_behind_it() {
        let machine = || Some("desk".to_owned());
        let of = |variables: &'static [(&str, &str)], machine| {
            let variable =
                |name| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
            user_at_machine(variable, Some(1000), machine)
        };
        assert_eq!(of(&[("SUDO_USER", "ann"), ("USER", "root")], machine()), "ann@desk");
        assert_eq!(of(&[("SUDO_USER", ""), ("USER", "ben")], machine()), "ben@desk");
        assert_eq!(of(&[("USER", "ben"), ("HOSTNAME", "shell")], None), "ben@shell");
        assert_eq!(of(&[], machine()), "uid 1000@desk");
        assert_eq!(of(&[], None), "uid 1000");
        assert_eq!(who(Some("release robot")), "release robot");
    }
}
