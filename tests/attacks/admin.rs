//! Getting at what is for operators.

use hookfast_harness::{Client, Gateway};

use super::{assert_serves, assert_unharmed, gateway, printed, raw, run, setup};

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

fn ask_for_metrics(gateway: &Gateway, host: &str) -> (u16, bool) {
    let request = format!("GET /metrics HTTP/1.1\r\n{host}\r\n\r\n");
    let answer = Client::connect(gateway.admin).raw(request.as_bytes()).unwrap();
    (answer.status, answer.text().contains("hookfast_"))
}

#[test]
fn case_67_the_metrics_answer_to_names_of_this_machine_only() {
    let gateway = setup().variable("HOOKFAST_ADMIN__HOSTS", "[\"metrics.internal\"]").start();
    for host in ["evil.example", "evil.example:8081", "localhost.evil.example", "192.0.2.1", ""] {
        assert_eq!(ask_for_metrics(&gateway, &format!("host: {host}")), (421, false), "{host}");
    }
    assert_eq!(ask_for_metrics(&gateway, "host: localhost\r\nhost: evil.example"), (421, false));
    let address = gateway.admin.to_string();
    for host in ["localhost", "localhost:8081", "127.0.0.1", &address, "[::1]:8081", "metrics.internal:80"] {
        assert_eq!(ask_for_metrics(&gateway, &format!("host: {host}")), (200, true), "{host}");
    }
    assert_serves(&gateway);
}

#[test]
fn case_67_silent_connections_do_not_keep_operators_out() {
    let gateway = gateway();
    let mut silent: Vec<_> = (0..40).map(|_| Client::connect(gateway.admin)).collect();
    assert!(silent[0].is_closed(), "a connection without a request ends");
    assert!(gateway.metrics().contains("hookfast_connections"), "others are served");
    assert_unharmed(&gateway);
}
