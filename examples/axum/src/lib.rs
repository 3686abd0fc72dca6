//! Nothing but the examples in documents: they are compiled and run as tests here, because `hookfast-webhook`, which they
//! are about, knows no provider.

#[cfg(doctest)]
#[doc = include_str!("../../../crates/webhook/README.md")]
struct Readme;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/providers.md")]
struct Providers;
