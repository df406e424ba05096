use std::collections::BTreeMap;
use std::time::Duration;

use gleaner::json::{object, Value};
use gleaner::{
    testing, Decision, DeleteIntent, DependentDecision, Error, EventIntent, EventType, GroupKind, Hook, HttpIntent, Intent, ListIntent,
    Operation, PatchIntent, PatchType, Propagation, Request, Target, Verdict,
};

fn intents() -> Vec<Intent> {
    let target = Target::new("v1", "Secret", "shop", "s");
    let all = vec![
        Operation::Get(target.clone()),
        Operation::List(ListIntent {
            api_version: "v1".into(),
            kind: "Pod".into(),
            label_selector: "a=b".into(),
            limit: 5,
            continue_token: "next".into(),
            ..ListIntent::default()
        }),
        Operation::Create(object([("kind", "Pod".into())])),
        Operation::Delete(DeleteIntent {
            target: target.clone(),
            uid: "u".into(),
            propagation: Some(Propagation::Orphan),
            grace_period_seconds: Some(0),
            ..DeleteIntent::default()
        }),
        Operation::Patch(PatchIntent { target, patch_type: PatchType::Merge, patch: object([]) }),
        Operation::Http(HttpIntent { headers: BTreeMap::from([("A".into(), "b".into())]), ..HttpIntent::new("GET", "https://example.com") }),
        Operation::Event(EventIntent { event_type: EventType::Normal, reason: "R".into(), message: "m".into() }),
    ];
    all.into_iter().enumerate().map(|(i, operation)| Intent { id: format!("i{i}"), operation }).collect()
}

#[test]
fn verdicts_are_written_as_the_host_reads_them() {
    for (verdict, want) in [
        (Verdict::new(Decision::Abstain), r#"{"decision":"Abstain"}"#),
        (
            Verdict {
                propagation: Some(Propagation::Foreground),
                grace_period_seconds: Some(0),
                delay: Some(Duration::from_secs(5400)),
                ..Verdict::new(Decision::Delete).because("r")
            },
            r#"{"decision":"Delete","delay":"5400s","gracePeriodSeconds":0,"propagation":"Foreground","reason":"r"}"#,
        ),
        (
            Verdict {
                dependents: vec![DependentDecision { group: "apps".into(), kind: "ReplicaSet".into(), decision: Decision::Orphan }],
                order: vec![vec![GroupKind { group: String::new(), kind: "Pod".into() }], vec![]],
                inherit_grace_period: true,
                ..Verdict::new(Decision::Foreground)
            },
            r#"{"decision":"Foreground","dependents":[{"decision":"Orphan","group":"apps","kind":"ReplicaSet"}],"inheritGracePeriod":true,"order":[[{"kind":"Pod"}],[]]}"#,
        ),
        (
            Verdict { after: Some(Duration::from_millis(1500)), state: Some(Value::from("s")), ..Verdict::new(Decision::Wait) },
            r#"{"after":"1500000000ns","decision":"Wait","state":"s"}"#,
        ),
    ] {
        assert_eq!(verdict.to_json(), want);
    }
    let verdict = Verdict { intents: intents(), ..Verdict::new(Decision::Act) };
    let want = concat!(
        r#"{"decision":"Act","intents":[{"get":{"apiVersion":"v1","kind":"Secret","name":"s","namespace":"shop"},"id":"i0"},"#,
        r#"{"id":"i1","list":{"apiVersion":"v1","continue":"next","kind":"Pod","labelSelector":"a=b","limit":5}},"#,
        r#"{"create":{"object":{"kind":"Pod"}},"id":"i2"},"#,
        r#"{"delete":{"apiVersion":"v1","gracePeriodSeconds":0,"kind":"Secret","name":"s","namespace":"shop","propagation":"Orphan","uid":"u"},"id":"i3"},"#,
        r#"{"id":"i4","patch":{"apiVersion":"v1","kind":"Secret","name":"s","namespace":"shop","patch":{},"type":"merge"}},"#,
        r#"{"http":{"headers":{"A":"b"},"method":"GET","url":"https://example.com"},"id":"i5"},"#,
        r#"{"event":{"message":"m","reason":"R","type":"Normal"},"id":"i6"}]}"#
    );
    assert_eq!(verdict.to_json(), want);
    assert_eq!(verdict.check(Hook::Finalize), Ok(()));
}

#[test]
fn verdicts_that_the_host_refuses_are_errors_in_tests() {
    let act = |intents: Vec<Intent>| Verdict { intents, ..Verdict::new(Decision::Act) };
    let get = |id: &str| Intent { id: id.to_string(), operation: Operation::Get(Target::default()) };
    for (verdict, want) in [
        (Verdict::new(Decision::Done), "decide one of Delete, Orphan, Wait, Act, Abstain"),
        (Verdict { after: Some(Duration::from_secs(1)), ..Verdict::new(Decision::Orphan) }, "after is not allowed with Orphan of collect"),
        (Verdict { after: Some(Duration::from_secs(721 * 3600)), ..Verdict::new(Decision::Wait) }, "at most 720h"),
        (Verdict { after: Some(Duration::ZERO), ..Verdict::new(Decision::Wait) }, "greater than 0"),
        (Verdict { state: Some(Value::Null), ..Verdict::new(Decision::Wait) }, "the state is null"),
        (Verdict { state: Some("x".repeat(4096).into()), ..Verdict::new(Decision::Wait) }, "bytes of state"),
        (Verdict::new(Decision::Abstain).because("x".repeat(1025)), "bytes of reason"),
        (act(vec![get("a"), get("a")]), "two intents have id a"),
        (act(vec![get("a b")]), "is invalid"),
        (act(vec![get("")]), "is invalid"),
        (act((0..65).map(|i| get(&i.to_string())).collect()), "65 intents"),
    ] {
        let err = testing::call(|_: &Request| Ok::<_, Error>(verdict.clone()), &testing::request(Hook::Collect)).unwrap_err().to_string();
        assert!(err.contains(want), "{err}\nwant {want}");
    }
}

#[test]
fn a_verdict_must_depend_on_the_request_only() {
    let count = std::cell::Cell::new(0);
    let changing = |_: &Request| {
        count.set(count.get() + 1);
        Ok::<_, Error>(Verdict::new(Decision::Abstain).because(count.get().to_string()))
    };
    let err = testing::call(changing, &testing::request(Hook::Collect)).unwrap_err().to_string();
    assert!(err.contains("two verdicts"), "{err}");
}

#[test]
fn lines_of_the_log_are_returned() {
    let logging = |r: &Request| {
        gleaner::debug!("asked about {}", r.object.metadata.name);
        gleaner::info!("i");
        gleaner::warn!("w");
        gleaner::error!("e");
        Ok::<_, Error>(Verdict::new(Decision::Abstain))
    };
    let got = testing::call(logging, &testing::request(Hook::Collect)).unwrap();
    let lines: Vec<&str> = got.log.iter().map(|(_, message)| message.as_str()).collect();
    assert_eq!(lines, ["asked about object", "i", "w", "e"]);
    assert!(got.log.windows(2).all(|pair| pair[0].0 < pair[1].0));
}

/// The decisions and fields are those of the ABI document, which is not there in a copy of the SDK.
#[test]
fn decisions_are_those_of_the_abi_document() {
    let document = match std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/abi.md")) {
        Ok(document) => document,
        Err(_) => return,
    };
    let mut want = Vec::new();
    for hook in Hook::ALL {
        for (decision, fields) in Decision::allowed(hook) {
            let fields: Vec<String> = fields.iter().map(|name| format!("`{name}`")).collect();
            want.push(format!("| `{}` | `{}` | {} |", hook.name(), decision.name(), fields.join(", ")));
        }
    }
    let rows = document.lines().skip_while(|line| !line.starts_with("| hook |")).skip(2).take_while(|line| line.starts_with('|'));
    assert_eq!(rows.collect::<Vec<_>>(), want);
}
