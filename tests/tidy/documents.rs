//! Documents and what they speak of.

use crate::{files, read, root};

#[test]
fn the_page_about_configuration_holds_the_reference_as_it_is() {
    let page = read("docs/configuration.md");
    let (_, block) = page.split_once("```toml\n").expect("there is a block of TOML");
    let (block, _) = block.split_once("```").expect("the block has an end");
    assert!(block == read("deploy/hookfast.toml"), "copy deploy/hookfast.toml into docs/configuration.md");
}

#[test]
fn every_link_to_a_file_leads_somewhere() {
    let mut broken = Vec::new();
    for page in files(".md") {
        let folder = root().join(page.parent().unwrap());
        let dead = file_links(&read(&page)).into_iter().filter(|link| !folder.join(link).exists());
        broken.extend(dead.map(|link| format!("{}: {link}", page.display())));
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

/// The targets of `[text](target)` that are files, without the place within the file. Blocks of code hold no links.
fn file_links(page: &str) -> Vec<String> {
    let prose = page.split("```").step_by(2);
    let targets = prose.flat_map(|text| text.split("](").skip(1).filter_map(|rest| rest.split(')').next()));
    let files = targets.map(|target| target.split('#').next().unwrap_or_default());
    files.filter(|file| !file.is_empty() && !file.contains(':')).map(str::to_owned).collect()
}

#[test]
fn links_are_found_where_they_are() {
    let page = "[a](a.md) and [b](../b.rs#L7), [c](https://c.example/x), [d](#here)\n```\nx[0](e.md)\n```\n[f](f/)";
    assert_eq!(file_links(page), ["a.md", "../b.rs", "f/"]);
}
