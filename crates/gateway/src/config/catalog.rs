//! `[catalog]`: files that describe further providers.

use std::path::PathBuf;

use super::document::Document;
use super::parse;
use super::section::Section;
use crate::providers::Providers;

pub(super) fn read(document: &mut Document) -> Providers {
    let mut section = Section::top(document, "catalog");
    let mut providers = Providers::embedded();
    let files: Vec<PathBuf> = section.value("files", parse::list, Vec::new());
    for file in files {
        if let Err(problem) = providers.add_file(&file) {
            section.problem("files", problem);
        }
    }
    section.finish();
    providers
}
