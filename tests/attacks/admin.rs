//! Getting at what is for operators.

use super::{assert_unharmed, gateway, printed, raw, run};

#[test]
fn case_62_nothing_for_operators_is_on_the_ingest_listener() {
    let gateway = gateway();
    for path in ["/", "/metrics", "/openapi.json", "/api/v1/events", "/debug/pprof", "/admin", "/webhooks/../metrics"] {
        let answer = raw(&gateway, format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n").as_bytes());
        assert_eq!(answer.status, 404, "{path}");
        assert!(!answer.text().contains("hookfast_"), "{path}: {}", answer.text());
    }
    assert!(gateway.metrics().contains("hookfast_connections"), "they are on the other one");
    assert_unharmed(&gateway);
}

#[test]
fn case_63_the_admin_listener_is_not_opened_to_the_outside() {
    let folder = tempfile::tempdir().unwrap();
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0", "[::ffff:0.0.0.0]:0"] {
        let output = run(folder.path(), &["serve"], &[("HOOKFAST_ADMIN__LISTEN", address)]);
        let said = printed(&output);
        assert_eq!(output.status.code(), Some(2), "{address}: {said}");
        assert!(said.contains("`admin.listen`") && said.contains("loopback"), "{address}: {said}");
    }
}
