//! `[admin]`: where operators look.

use super::parse;
use super::section::Section;

pub(super) fn read(mut section: Section<'_>) -> hookfast_admin::Config {
    let default = hookfast_admin::Config::default();
    let config = hookfast_admin::Config {
        listen: section.value("listen", parse::loopback_address, default.listen),
        hosts: section.value("hosts", parse::list, default.hosts),
    };
    section.finish();
    config
}
