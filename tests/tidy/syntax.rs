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

    /// The functions of types and traits, as `Type::function`, with or without a body.
    pub(crate) fn methods(&self) -> Vec<String> {
        let mut found = Methods(Vec::new());
        found.visit_file(&self.syntax);
        found.0
    }

    /// The types that are not private to their module, without those of tests.
    pub(crate) fn types(&self) -> Vec<NamedType> {
        let mut found = Types(Vec::new());
        found.visit_file(&self.without(&["test"]));
        found.0
    }

    /// Each identifier that is followed by `::` or stands in a `use`, such as `hookfast_store`, without those that are built
    /// under one of these conditions alone.
    pub(crate) fn path_names_without(&self, conditions: &[&str]) -> Vec<String> {
        let mut names = Vec::new();
        collect_path_names(self.without(conditions).into_token_stream(), false, &mut names);
        names.sort();
        names.dedup();
        names
    }

    fn without(&self, conditions: &[&str]) -> syn::File {
        let mut syntax = self.syntax.clone();
        Without(conditions).visit_file_mut(&mut syntax);
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

struct Methods(Vec<String>);

impl<'a> Visit<'a> for Methods {
    fn visit_item_impl(&mut self, block: &'a syn::ItemImpl) {
        if let syn::Type::Path(of) = &*block.self_ty
            && let Some(of) = of.path.segments.last()
        {
            let functions = block.items.iter().filter_map(|item| match item {
                syn::ImplItem::Fn(function) => Some(&function.sig.ident),
                _ => None,
            });
            self.0.extend(functions.map(|function| format!("{}::{function}", of.ident)));
        }
        visit::visit_item_impl(self, block);
    }

    fn visit_item_trait(&mut self, block: &'a syn::ItemTrait) {
        let functions = block.items.iter().filter_map(|item| match item {
            syn::TraitItem::Fn(function) => Some(&function.sig.ident),
            _ => None,
        });
        self.0.extend(functions.map(|function| format!("{}::{function}", block.ident)));
        visit::visit_item_trait(self, block);
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

/// Takes away every item that stands under a `#[cfg(…)]` with one of these conditions.
struct Without<'a>(&'a [&'a str]);

impl Without<'_> {
    fn keeps(&self, attributes: &[syn::Attribute]) -> bool {
        !attributes.iter().any(|attribute| match &attribute.meta {
            syn::Meta::List(list) => list.path.is_ident("cfg") && self.0.contains(&&*list.tokens.to_string()),
            _ => false,
        })
    }
}

impl VisitMut for Without<'_> {
    fn visit_file_mut(&mut self, file: &mut syn::File) {
        file.items.retain(|item| self.keeps(attributes(item)));
        visit_mut::visit_file_mut(self, file);
    }

    fn visit_item_mod_mut(&mut self, module: &mut syn::ItemMod) {
        if let Some((_, items)) = &mut module.content {
            items.retain(|item| self.keeps(attributes(item)));
        }
        visit_mut::visit_item_mod_mut(self, module);
    }

    fn visit_item_impl_mut(&mut self, block: &mut syn::ItemImpl) {
        block.items.retain(|item| !matches!(item, syn::ImplItem::Fn(function) if !self.keeps(&function.attrs)));
        visit_mut::visit_item_impl_mut(self, block);
    }
}

fn attributes(item: &syn::Item) -> &[syn::Attribute] {
    match item {
        syn::Item::Fn(item) => &item.attrs,
        syn::Item::Impl(item) => &item.attrs,
        syn::Item::Mod(item) => &item.attrs,
        syn::Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// `in_use`: the tokens stand in braces of a `use`.
fn collect_path_names(tokens: TokenStream, in_use: bool, names: &mut Vec<String>) {
    let tokens: Vec<_> = tokens.into_iter().collect();
    let is_sign = |index: usize, sign: char| matches!(tokens.get(index), Some(TokenTree::Punct(punct)) if punct.as_char() == sign);
    let mut is_used = in_use;
    for (index, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Group(group) => collect_path_names(group.stream(), is_used, names),
            // `use<'a>` names lifetimes.
            TokenTree::Ident(name) if name == "use" => is_used = !is_sign(index + 1, '<'),
            TokenTree::Ident(name) if is_used || (is_sign(index + 1, ':') && is_sign(index + 2, ':')) => {
                names.push(name.to_string());
            }
            TokenTree::Punct(sign) if sign.as_char() == ';' => is_used = in_use,
            TokenTree::Ident(_) | TokenTree::Punct(_) | TokenTree::Literal(_) => {}
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
            #[cfg(unix)]
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
    let names = source.path_names_without(&["test"]);
    assert_eq!(names, ["PgRow", "Row", "as", "axum", "hookfast_store", "postgres", "sqlx", "store", "tokio"]);
    let without = source.path_names_without(&["test", "unix"]);
    assert!(names.contains(&"axum".to_owned()) && !without.contains(&"axum".to_owned()), "{without:?}");
    let types: Vec<_> = source.types().into_iter().map(|found| (found.name, found.is_public)).collect();
    assert_eq!(types, [("Writer".to_owned(), false), ("Outcome".to_owned(), true)]);
    let functions: Vec<_> = source.functions().into_iter().map(|found| (found.name, found.lines)).collect();
    assert_eq!(functions, [("write".to_owned(), 5)]);
    assert_eq!(source.methods(), ["Writer::write"]);
    assert!(!source.is_for_tests());
    assert!(Source::parse("crates/x/src/y/tests.rs".into(), String::new()).is_for_tests());
}
