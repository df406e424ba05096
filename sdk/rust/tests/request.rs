use gleaner::{ErrorReason, Hook, OwnerStatus, Request, RequestedPropagation, Time};

/// A request with every field, as the host writes it.
const FULL: &str = r#"{
  "apiVersion": "abi.gleaner.dev/v1", "hook": "finalize",
  "policy": {"name": "p", "namespace": "shop", "settings": {"url": "https://example.com"}},
  "object": {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {
    "name": "web", "namespace": "shop", "uid": "u", "resourceVersion": "7", "generation": 3,
    "creationTimestamp": "2026-01-01T00:00:00Z", "deletionTimestamp": "2026-01-02T00:00:00Z",
    "labels": {"app": "web"}, "annotations": {"note": "a\nb"}, "finalizers": ["example.com/f"],
    "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "ou", "controller": true, "blockOwnerDeletion": false}],
    "managedFields": [{"manager": "kubectl", "fieldsV1": {"f:spec": {}}}]}, "spec": {"replicas": 2}},
  "owners": [
    {"reference": {"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "ou"}, "status": "Absent"},
    {"reference": {"apiVersion": "v1", "kind": "ConfigMap", "name": "p", "uid": "pu"}, "status": "SomethingNew"}],
  "dependents": {"count": 2, "byKind": [{"group": "apps", "kind": "ReplicaSet", "count": 2}]},
  "requestedPropagation": "Orphan",
  "userInfo": {"username": "jane", "groups": ["system:authenticated"]},
  "retention": {"policy": "r", "namespace": "shop", "limit": "MaxAge"},
  "image": {"id": "sha256:1", "names": ["a:1"], "labels": {"x": "y"}, "sizeBytes": 5000000000, "firstSeen": "2026-01-01T00:00:00Z",
    "workloads": [{"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "shop", "name": "web"}]},
  "ownersAbsentSince": "2026-01-01T12:00:00Z", "time": "2026-01-02T12:00:00Z", "namespaceTerminating": true,
  "serviceAccountMissing": true, "deadline": "2026-01-03T00:00:00Z", "attempt": 4, "round": 2, "idempotencyKey": "k",
  "state": {"own": 1},
  "results": {
    "a": {"object": {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "uid": "su", "resourceVersion": "1"}}},
    "b": {"list": {"items": [{"kind": "Pod"}], "continue": "next"}},
    "c": {"http": {"status": 200, "headers": {"Content-Type": "text/plain"}, "body": "ok", "truncated": true}},
    "d": {"error": {"reason": "NotFound", "message": "no"}},
    "e": {"error": {"reason": "Later", "message": ""}}},
  "withheld": ["object"], "later": {"a": [1, {"b": "]}"}]}
}"#;

#[test]
fn all_fields_are_read() {
    let r = Request::parse(FULL).unwrap();
    assert_eq!((r.hook, r.policy.name.as_str(), r.policy.namespace.as_str()), (Hook::Finalize, "p", "shop"));
    assert_eq!(r.settings().unwrap().text("url").unwrap().as_deref(), Some("https://example.com"));
    let m = &r.object.metadata;
    assert!(r.object.is("apps", "Deployment") && r.object.group() == "apps" && !r.object.is("", "Deployment"));
    assert_eq!((m.name.as_str(), m.generation, m.label("app"), m.label("x"), m.annotation("note")), ("web", 3, "web", "", "a\nb"));
    assert_eq!(m.deletion_timestamp, Some(Time::parse("2026-01-02T00:00:00Z").unwrap()));
    assert_eq!((m.owner_references[0].controller, m.owner_references[0].block_owner_deletion), (Some(true), Some(false)));
    assert_eq!(r.object.value().unwrap().at("/spec/replicas").and_then(|v| v.as_i64()), Some(2));
    assert_eq!((r.owners[0].status, r.owners[1].status), (OwnerStatus::Absent, OwnerStatus::Unknown));
    assert_eq!((r.dependents.count, r.dependents.by_kind[0].group.as_str()), (2, "apps"));
    assert_eq!(r.requested_propagation, RequestedPropagation::Orphan);
    assert_eq!(r.user_info.unwrap().groups, ["system:authenticated"]);
    assert_eq!(r.retention.unwrap().limit, "MaxAge");
    let image = r.image.unwrap();
    assert_eq!((image.size_bytes, image.last_used, image.workloads[0].name.as_str()), (5_000_000_000, None, "web"));
    assert!(r.namespace_terminating && r.service_account_missing && r.owners_absent_since.is_some());
    assert_eq!((r.attempt, r.round, r.idempotency_key.as_str()), (4, 2, "k"));
    assert_eq!(r.state.unwrap().to_string(), r#"{"own":1}"#);
    assert_eq!(r.results["a"].object.as_ref().unwrap().metadata.uid, "su");
    assert_eq!(r.results["b"].list.as_ref().unwrap().continue_token, "next");
    assert!(r.results["c"].http.as_ref().unwrap().truncated);
    assert_eq!(r.results["d"].error.as_ref().unwrap().reason, ErrorReason::NotFound);
    assert_eq!(r.results["e"].error.as_ref().unwrap().reason, ErrorReason::Other("Later".to_string()));
    assert_eq!(r.withheld, ["object"]);
}

#[test]
fn what_is_not_a_request_is_an_error() {
    for (text, want) in [
        ("", "'{' is expected"),
        ("[]", "'{' is expected"),
        ("{}", "it has no hook"),
        (r#"{"hook": "destroy"}"#, r#"there is no hook "destroy""#),
        (r#"{"hook": "collect", "time": "now"}"#, "is not a time"),
        (r#"{"hook": "collect", "attempt": "1"}"#, "an integer is expected"),
        (r#"{"hook": "collect"} {}"#, "nothing more is expected"),
    ] {
        let err = Request::parse(text).unwrap_err().to_string();
        assert!(err.starts_with("decode request: ") && err.contains(want), "{text}: {err}");
    }
}

#[test]
fn deep_objects_are_read_and_only_refused_as_values() {
    let deep = "[".repeat(100_000) + &"]".repeat(100_000);
    let r = Request::parse(&format!(r#"{{"hook": "collect", "object": {{"kind": "Deep", "spec": {deep}}}}}"#)).unwrap();
    assert_eq!(r.object.kind, "Deep");
    assert!(r.object.value().unwrap_err().to_string().contains("levels deep"));
}

#[test]
fn settings_report_what_is_wrong() {
    let settings = |text: &str| {
        let mut r = Request::default();
        r.policy.settings = text.to_string();
        r.settings()
    };
    let mut s = settings(r#"{"a": "x", "b": true, "n": 3, "d": "90s", "nothing": null}"#).unwrap();
    assert_eq!(s.text("a"), Ok(Some("x".to_string())));
    assert_eq!(s.bool("b"), Ok(Some(true)));
    assert_eq!(s.integer("n"), Ok(Some(3)));
    assert_eq!(s.duration("d"), Ok(Some(std::time::Duration::from_secs(90))));
    assert_eq!(s.text("nothing"), Ok(None));
    assert_eq!(s.text("absent"), Ok(None));
    assert_eq!(s.finish(), Ok(()));
    for (text, want) in [("[]", "an object is expected"), ("{", "decode settings: invalid JSON")] {
        assert!(settings(text).unwrap_err().to_string().contains(want), "{text}");
    }
    let mut s = settings(r#"{"a": 1, "b": "x", "n": 1.5, "d": "1 day"}"#).unwrap();
    assert_eq!(s.text("a").unwrap_err().to_string(), "decode settings: a must be a string");
    assert_eq!(s.bool("b").unwrap_err().to_string(), "decode settings: b must be true or false");
    assert_eq!(s.integer("n").unwrap_err().to_string(), "decode settings: n must be an integer");
    assert!(s.duration("d").unwrap_err().to_string().starts_with("decode settings: d: \"1 day\" is not a duration"));
}
