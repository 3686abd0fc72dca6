//! Every package says the same about itself.

use toml::{Table, Value};

use crate::{files, read};

/// One `Cargo.toml`.
pub(crate) struct Manifest {
    /// The package's folder, such as `crates/store`.
    pub(crate) folder: String,
    table: Table,
}

/// The manifests of all packages.
pub(crate) fn packages() -> Vec<Manifest> {
    let manifests = files("Cargo.toml").into_iter().map(|path| Manifest {
        folder: path.parent().unwrap().display().to_string(),
        table: read(&path).parse().unwrap(),
    });
    manifests.filter(|manifest| manifest.table.contains_key("package")).collect()
}

impl Manifest {
    /// What the package is built from, without what only its tests need.
    pub(crate) fn dependencies(&self) -> Vec<String> {
        self.dependency_tables(&["dependencies", "build-dependencies"])
            .flat_map(|table| table.keys().cloned())
            .collect()
    }

    /// What the package or its tests are built from.
    pub(crate) fn all_dependencies(&self) -> Vec<String> {
        let all = ["dependencies", "build-dependencies", "dev-dependencies"];
        self.dependency_tables(&all).flat_map(|table| table.keys().cloned()).collect()
    }

    /// The folders with sources of the package: its own, and those of tests that stand elsewhere.
    pub(crate) fn source_folders(&self) -> Vec<String> {
        let tests = self.table.get("test").and_then(Value::as_array).into_iter().flatten();
        let elsewhere = tests.filter_map(|test| test.get("path")?.as_str()?.strip_prefix("../"));
        let folder = |path: &str| {
            let path = path.rsplit_once('/').unwrap_or_default().0;
            path.strip_prefix("../").map_or_else(|| format!("tests/{path}"), str::to_owned)
        };
        std::iter::once(self.folder.clone()).chain(elsewhere.map(folder)).collect()
    }

    /// The tables of these names, for every platform and for some.
    fn dependency_tables<'a>(&'a self, names: &'a [&str]) -> impl Iterator<Item = &'a Table> {
        let platforms = self.table.get("target").and_then(Value::as_table).into_iter().flat_map(Table::values);
        let tables = std::iter::once(&self.table).chain(platforms.filter_map(Value::as_table));
        tables.flat_map(move |table| names.iter().filter_map(|name| table.get(*name)?.as_table()))
    }

    /// What is not as in all other packages.
    fn oddities(&self) -> Vec<String> {
        let mut oddities = Vec::new();
        for key in ["version", "edition", "rust-version", "license", "publish"] {
            if !is_inherited(self.table["package"].get(key)) {
                oddities.push(format!("{}: write `{key}.workspace = true`", self.folder));
            }
        }
        if !is_inherited(self.table.get("lints")) {
            oddities.push(format!("{}: write `workspace = true` in `[lints]`", self.folder));
        }
        let all = ["dependencies", "build-dependencies", "dev-dependencies"];
        for (name, value) in self.dependency_tables(&all).flatten() {
            if !is_inherited(Some(value)) {
                oddities.push(format!("{}: write `{name}.workspace = true`, the version is at the top", self.folder));
            }
        }
        oddities
    }
}

fn is_inherited(value: Option<&Value>) -> bool {
    value.and_then(|value| value.get("workspace")).and_then(Value::as_bool) == Some(true)
}

#[test]
fn versions_lints_and_licence_are_those_of_the_workspace() {
    let oddities: Vec<_> = packages().iter().flat_map(Manifest::oddities).collect();
    assert!(oddities.is_empty(), "{oddities:#?}");
    let top: Table = read("Cargo.toml").parse().unwrap();
    assert_eq!(top["workspace"]["package"]["license"].as_str(), Some("MIT OR Apache-2.0"));
}

#[test]
fn no_dependency_hides_behind_another_name() {
    let top: Table = read("Cargo.toml").parse().unwrap();
    let dependencies = top["workspace"]["dependencies"].as_table().unwrap();
    let renamed: Vec<_> = dependencies.iter().filter(|(_, value)| value.get("package").is_some()).collect();
    assert!(renamed.is_empty(), "{renamed:?}");
}

#[test]
fn a_package_that_goes_its_own_way_is_noticed() {
    let text = r#"
        [package]
        version.workspace = true
        edition = "2021"
        rust-version.workspace = true
        license = "MIT"
        publish.workspace = true
        [lints.rust]
        unsafe_code = "allow"
        [dependencies]
        bytes.workspace = true
        [dev-dependencies]
        time = "0.3"
        [target.'cfg(unix)'.dependencies]
        rlimit = { version = "1" }
    "#;
    let manifest = Manifest { folder: "crates/odd".into(), table: text.parse().unwrap() };
    let oddities = manifest.oddities().join("\n");
    for part in ["`edition.", "`license.", "`[lints]`", "`time.", "`rlimit."] {
        assert!(oddities.contains(part), "{part} in {oddities}");
    }
    assert_eq!(oddities.lines().count(), 5, "{oddities}");
    assert_eq!(manifest.dependencies(), ["bytes", "rlimit"]);
}
