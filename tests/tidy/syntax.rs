//! The Rust sources of the workspace, parsed.

use std::path::PathBuf;

use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use syn::visit::{self, Visit};
use syn::visit_mut::{self, VisitMut};

use crate::{files, read};

/// One file of Rust.
pub(crate) struct Source {
    /// From the top of the repository.
    pub(crate) path: PathBuf,
    pub(crate) text: String,
    syntax: syn::File,
}

/// A function with a body.
pub(crate) struct Function {
    pub(crate) name: String,
    /// From `fn` to the last brace, without comments before it.
    pub(crate) lines: usize,
}

/// A type that other modules can name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NamedType {
    pub(crate) name: String,
    /// Other crates can name it, too.
    pub(crate) is_public: bool,
}

/// All Rust files of the workspace.
pub(crate) fn sources() -> Vec<Source> {
    files(".rs").into_iter().map(|path| Source::parse(path.clone(), read(&path))).collect()
}

impl Source {
    pub(crate) fn parse(path: PathBuf, text: String) -> Self {
        let syntax = syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Self { path, text, syntax }
    }

    /// Whether only tests are built from it. `cfg(test)` stands at the `mod` of such a file, and not in the file itself.
    pub(crate) fn is_for_tests(&self) -> bool {
        let mut parts = self.path.iter().map(|part| part.to_string_lossy());
        parts.any(|part| ["tests", "tests.rs", "benches"].contains(&&*part))
    }

    pub(crate) fn functions(&self) -> Vec<Function> {
        let mut found = Functions(Vec::new());
        found.visit_file(&self.syntax);
        found.0
    }

    /// The types that are not private to their module, without those of tests.
    pub(crate) fn types(&self) -> Vec<NamedType> {
        let mut found = Types(Vec::new());
        found.visit_file(&self.without_tests());
        found.0
    }

    /// Each identifier that begins a path or is followed by `::`, such as `hookfast_store`, without those of tests.
    pub(crate) fn path_names(&self) -> Vec<String> {
        let mut names = Vec::new();
        collect_path_names(self.without_tests().into_token_stream(), &mut names);
        names.sort();
        names.dedup();
        names
    }

    fn without_tests(&self) -> syn::File {
        let mut syntax = self.syntax.clone();
        WithoutTests.visit_file_mut(&mut syntax);
        syntax
    }
}

struct Functions(Vec<Function>);

impl Functions {
    fn add(&mut self, signature: &syn::Signature, body: &syn::Block) {
        let first = signature.fn_token.span.start().line;
        let last = body.brace_token.span.close().end().line;
        self.0.push(Function { name: signature.ident.to_string(), lines: last - first + 1 });
    }
}

impl<'a> Visit<'a> for Functions {
    fn visit_item_fn(&mut self, function: &'a syn::ItemFn) {
        self.add(&function.sig, &function.block);
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'a syn::ImplItemFn) {
        self.add(&function.sig, &function.block);
        visit::visit_impl_item_fn(self, function);
    }

    fn visit_trait_item_fn(&mut self, function: &'a syn::TraitItemFn) {
        if let Some(body) = &function.default {
            self.add(&function.sig, body);
        }
        visit::visit_trait_item_fn(self, function);
    }
}

struct Types(Vec<NamedType>);

impl Types {
    fn add(&mut self, visibility: &syn::Visibility, name: &syn::Ident) {
        let is_public = matches!(visibility, syn::Visibility::Public(_));
        if is_public || matches!(visibility, syn::Visibility::Restricted(_)) {
            self.0.push(NamedType { name: name.to_string(), is_public });
        }
    }
}

impl<'a> Visit<'a> for Types {
    fn visit_item(&mut self, item: &'a syn::Item) {
        match item {
            syn::Item::Struct(item) => self.add(&item.vis, &item.ident),
            syn::Item::Enum(item) => self.add(&item.vis, &item.ident),
            syn::Item::Trait(item) => self.add(&item.vis, &item.ident),
            syn::Item::Type(item) => self.add(&item.vis, &item.ident),
            _ => visit::visit_item(self, item),
        }
    }
}

/// Takes away every item that stands under `#[cfg(test)]`.
struct WithoutTests;

impl VisitMut for WithoutTests {
    fn visit_file_mut(&mut self, file: &mut syn::File) {
        file.items.retain(|item| !is_test_only(item));
        visit_mut::visit_file_mut(self, file);
    }

    fn visit_item_mod_mut(&mut self, module: &mut syn::ItemMod) {
        if let Some((_, items)) = &mut module.content {
            items.retain(|item| !is_test_only(item));
        }
        visit_mut::visit_item_mod_mut(self, module);
    }
}

fn is_test_only(item: &syn::Item) -> bool {
    let attributes = match item {
        syn::Item::Fn(item) => &item.attrs,
        syn::Item::Impl(item) => &item.attrs,
        syn::Item::Mod(item) => &item.attrs,
        syn::Item::Use(item) => &item.attrs,
        _ => return false,
    };
    let is_cfg_test = |attribute: &syn::Attribute| match &attribute.meta {
        syn::Meta::List(list) => list.path.is_ident("cfg") && list.tokens.to_string() == "test",
        _ => false,
    };
    attributes.iter().any(is_cfg_test)
}

fn collect_path_names(tokens: TokenStream, names: &mut Vec<String>) {
    let tokens: Vec<_> = tokens.into_iter().collect();
    for (index, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Group(group) => collect_path_names(group.stream(), names),
            TokenTree::Ident(name) => {
                let is = |offset: usize, sign: char| matches!(tokens.get(index + offset), Some(TokenTree::Punct(punct)) if punct.as_char() == sign);
                let before = index.checked_sub(1).and_then(|before| tokens.get(before));
                let is_used = matches!(before, Some(TokenTree::Ident(word)) if word == "use");
                if is_used || (is(1, ':') && is(2, ':')) {
                    names.push(name.to_string());
                }
            }
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
}

#[test]
fn what_a_file_holds_is_found_without_what_is_for_its_tests() {
    let text = r#"
        use sqlx::{Row, postgres::PgRow};
        pub use hookfast_store as store;
        pub(crate) struct Writer;
        pub enum Outcome { Done }
        struct Private;
        impl Writer {
            /// A comment.
            fn write(
                &self,
            ) {
                tokio::select! { _ = axum::serve() => {} }
            }
        }
        #[cfg(test)]
        mod tests {
            use proptest::prelude;
            pub struct Hidden;
        }
        #[cfg(test)]
        use reqwest::Client;
    "#;
    let source = Source::parse("crates/x/src/lib.rs".into(), text.into());
    assert_eq!(source.path_names(), ["axum", "hookfast_store", "postgres", "sqlx", "tokio"]);
    let types: Vec<_> = source.types().into_iter().map(|found| (found.name, found.is_public)).collect();
    assert_eq!(types, [("Writer".to_owned(), false), ("Outcome".to_owned(), true)]);
    let functions: Vec<_> = source.functions().into_iter().map(|found| (found.name, found.lines)).collect();
    assert_eq!(functions, [("write".to_owned(), 5)]);
    assert!(!source.is_for_tests());
    assert!(Source::parse("crates/x/src/y/tests.rs".into(), String::new()).is_for_tests());
}
