//! Checks that a request has one Host, and that it is the same as in its URL.

use http::request::Parts;
use http::uri::Authority;
use http::{Version, header};

use crate::rejection::Rejection;

/// hyper accepts requests with no Host or with two. With two, a proxy in front of us might have used the other one.
pub(crate) fn check_host(head: &Parts) -> Result<(), Rejection> {
    let mut hosts = head.headers.get_all(header::HOST).iter();
    let host = hosts.next();
    if hosts.next().is_some() {
        return Err(Rejection::BadRequest("There is more than one Host."));
    }
    let Some(host) = host else {
        let optional = head.version == Version::HTTP_10;
        return if optional { Ok(()) } else { Err(Rejection::BadRequest("There is no Host.")) };
    };
    let not_a_host = Rejection::BadRequest("The Host is not a host.");
    // An authority may also name a user, which a host must not.
    let Some(host) = Authority::try_from(host.as_bytes()).ok().filter(|host| !host.as_str().contains('@')) else {
        return Err(not_a_host);
    };
    match head.uri.authority() {
        Some(other) if *other != host => Err(Rejection::BadRequest("The Host is not the one in the URL.")),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn check(uri: &str, version: Version, hosts: &[&str]) -> bool {
        let mut request = Request::builder().uri(uri).version(version);
        for host in hosts {
            request = request.header(header::HOST, *host);
        }
        check_host(&request.body(()).expect("a request").into_parts().0).is_ok()
    }

    #[test]
    fn there_must_be_one_host_and_no_other_in_the_url() {
        assert!(check("/x", Version::HTTP_11, &["a.example"]));
        assert!(check("http://a.example/x", Version::HTTP_11, &["A.example"]));
        assert!(check("/x", Version::HTTP_10, &[]));
        assert!(!check("/x", Version::HTTP_11, &[]));
        assert!(!check("/x", Version::HTTP_11, &["a.example", "a.example"]));
        assert!(!check("/x", Version::HTTP_11, &[""]));
        assert!(!check("/x", Version::HTTP_11, &["a.example/path"]));
        assert!(!check("/x", Version::HTTP_11, &["a.example@b.example"]));
        assert!(!check("http://b.example/x", Version::HTTP_11, &["a.example"]));
    }
}
