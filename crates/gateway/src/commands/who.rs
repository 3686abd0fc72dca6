//! Who an act is noted for.

use std::env;
use std::fs;
use std::os::unix::fs::MetadataExt;

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
