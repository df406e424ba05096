use std::cell::Cell;
use std::collections::BTreeMap;
use std::time::Duration;

use gleaner::finalize::{run, Step, Steps};
use gleaner::json::{object as json, Value};
use gleaner::testing::{self, error_result, respond_with, FakeCluster, FinalizeResult};
use gleaner::{
    Decision, Error, ErrorReason, Hook, HttpIntent, HttpResult, Intent, IntentResult, ListIntent, Object, Operation, PatchIntent,
    PatchType, Request, Target,
};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

fn settings() -> Target {
    Target::new("v1", "ConfigMap", "shop", "settings")
}

fn object(name: &str) -> Object {
    testing::object("v1", "ConfigMap", "shop", name)
}

fn request() -> Request {
    testing::request(Hook::Finalize)
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// Goes through an attempt, which has to be one that Gleaner takes.
fn attempt(f: impl Fn(&mut Steps) -> Step<()>, r: &Request, world: impl FnMut(&Intent) -> IntentResult) -> FinalizeResult {
    testing::finalize(|r: &Request| run(r, |s| f(s)), r, world).unwrap()
}

/// Is a world in which nothing is carried out, for one reason.
fn errors(reason: ErrorReason) -> impl Fn(&Intent) -> IntentResult {
    move |_| error_result(reason.clone(), "oh")
}

fn ids(got: &FinalizeResult) -> String {
    got.intents.iter().map(|i| i.id.as_str()).collect::<Vec<_>>().join(" ")
}

type Named = (&'static str, fn(&mut Steps) -> Step<()>);

/// One step of each sort.
const ALL_STEPS: [Named; 8] = [
    ("get", |s| s.get("a", settings()).map(drop)),
    ("list", |s| s.list("a", list_of("v1", "ConfigMap", "")).map(drop)),
    ("create", |s| {
        let metadata = json([("name", "copy".into()), ("namespace", "shop".into())]);
        s.create("a", json([("apiVersion", "v1".into()), ("kind", "ConfigMap".into()), ("metadata", metadata)])).map(drop)
    }),
    ("delete", |s| s.delete("a", &object("settings"))),
    ("patch", |s| s.patch("a", PatchIntent { target: settings(), patch_type: PatchType::Merge, patch: json([]) }).map(drop)),
    ("http", |s| s.call("a", HttpIntent::new("PUT", "https://example.com/a?token=secret")).map(drop)),
    ("each", |s| s.each("a", list_of("apps/v1", "Deployment", "shop"), |_, _| Ok(()))),
    ("gone", |s| s.wait_gone("a", &object("settings"), SECOND)),
];

fn list_of(api_version: &str, kind: &str, namespace: &str) -> ListIntent {
    ListIntent { api_version: api_version.into(), kind: kind.into(), namespace: namespace.into(), ..ListIntent::default() }
}

fn step(name: &str) -> fn(&mut Steps) -> Step<()> {
    ALL_STEPS.iter().find(|(other, _)| *other == name).unwrap().1
}

#[test]
fn steps_are_requested_in_order() {
    let mut world = FakeCluster::default();
    world.add(object("settings"));
    let got = attempt(
        |s| {
            if let Some(o) = s.get("read", settings())? {
                s.delete("delete", &o)?;
            }
            s.create("copy", object("copy").value()?)?;
            Ok(())
        },
        &request(),
        |i| world.execute(i),
    );
    assert_eq!((got.verdict.decision, ids(&got).as_str(), got.rounds), (Decision::Done, "read delete copy", 4));
    assert_eq!(world.objects().map(|o| o.metadata.name.as_str()).collect::<Vec<_>>(), ["copy"]);
}

#[test]
fn no_steps_are_done() {
    let got = attempt(|_| Ok(()), &request(), errors(ErrorReason::Unavailable));
    assert_eq!((got.verdict.decision, got.rounds), (Decision::Done, 1));
}

#[test]
fn temporary_errors_wait_longer_each_time() {
    for (name, f) in ALL_STEPS {
        for reason in [ErrorReason::Unavailable, ErrorReason::Conflict, ErrorReason::Expired, ErrorReason::Other("New".into())] {
            for (number, want) in [(1, 1), (2, 2), (5, 16), (12, 300), (i64::MAX - 1, 300)] {
                let restarts = name == "each" && reason == ErrorReason::Expired;
                let want = if restarts { SECOND } else { seconds(want) };
                let r = Request { attempt: number, ..request() };
                let got = attempt(f, &r, errors(reason.clone()));
                assert_eq!((got.verdict.decision, got.verdict.wait_for()), (Decision::Wait, want), "{name}, {reason:?}, attempt {number}");
                assert!(!got.verdict.reason.is_empty(), "{name}");
            }
        }
    }
}

#[test]
fn permanent_errors_fail_with_advice() {
    for (name, reason, want) in [
        ("get", ErrorReason::NotGranted, r#"read: [{apiGroups: [""], resources: [the plural of ConfigMap], namespaces: [shop]}]"#),
        ("list", ErrorReason::Forbidden, "allow it to list this resource"),
        (
            "create",
            ErrorReason::NotGranted,
            r#"write: [{apiGroups: [""], resources: [the plural of ConfigMap], verbs: [create], namespaces: [shop]}]"#,
        ),
        ("delete", ErrorReason::Forbidden, "delete ConfigMap shop/settings: Forbidden: oh"),
        ("patch", ErrorReason::Invalid, "patch ConfigMap shop/settings: Invalid: oh"),
        ("http", ErrorReason::NotGranted, r#"http: [{url: "https://example.com/a", methods: [PUT]}]"#),
        ("each", ErrorReason::NotGranted, r#"read: [{apiGroups: ["apps"], resources: [the plural of Deployment], namespaces: [shop]}]"#),
        ("gone", ErrorReason::Forbidden, "get ConfigMap shop/settings"),
    ] {
        let got = attempt(step(name), &request(), errors(reason));
        assert_eq!(got.verdict.decision, Decision::Fail, "{name}");
        assert!(got.verdict.reason.contains(want), "{name}: {}\nwant {want}", got.verdict.reason);
        assert!(!got.verdict.reason.contains("secret"), "{name}: {}", got.verdict.reason);
    }
}

#[test]
fn advice_names_what_was_deleted_before() {
    let missing = Request { service_account_missing: true, ..request() };
    let terminating = Request { namespace_terminating: true, ..request() };
    for (name, r, want) in [
        ("get", &missing, "service account of the finalizer does not exist"),
        ("create", &terminating, "nothing can be created in it"),
        ("get", &terminating, "permissions may already be deleted"),
    ] {
        let got = attempt(step(name), r, errors(ErrorReason::Forbidden));
        assert_eq!(got.verdict.decision, Decision::Fail);
        assert!(got.verdict.reason.contains(want), "{}", got.verdict.reason);
    }
}

#[test]
fn not_found_is_a_result_where_it_can_be_one() {
    for name in ["get", "delete", "patch", "gone"] {
        assert_eq!(attempt(step(name), &request(), errors(ErrorReason::NotFound)).verdict.decision, Decision::Done, "{name}");
    }
    for name in ["list", "create", "each"] {
        // It shows nothing about what is in the list.
        assert_eq!(attempt(step(name), &request(), errors(ErrorReason::NotFound)).verdict.decision, Decision::Wait, "{name}");
    }
    assert_eq!(attempt(step("create"), &request(), errors(ErrorReason::AlreadyExists)).verdict.decision, Decision::Done);
}

#[test]
fn a_conflict_of_a_delete_is_looked_into() {
    let mut other = object("settings");
    other.metadata.uid = "another".into();
    for (there, want) in [(other, Decision::Done), (object("settings"), Decision::Wait)] {
        let got = attempt(step("delete"), &request(), |i| match i.operation {
            Operation::Delete(_) => error_result(ErrorReason::Conflict, "oh"),
            _ => IntentResult { object: Some(there.clone()), ..IntentResult::default() },
        });
        assert_eq!((got.verdict.decision, ids(&got).as_str()), (want, "a a.look"));
    }
}

#[test]
fn a_result_without_its_field_proves_nothing() {
    for (name, f) in ALL_STEPS {
        let want = if name == "create" || name == "delete" { Decision::Done } else { Decision::Wait };
        assert_eq!(attempt(f, &request(), |_| IntentResult::default()).verdict.decision, want, "{name}");
    }
}

#[test]
fn the_status_of_a_response_decides() {
    for (status, retry_after, want, after) in [
        (200, "", Decision::Done, 0),
        (204, "", Decision::Done, 0),
        (404, "", Decision::Done, 0),
        (410, "", Decision::Done, 0),
        (429, "", Decision::Wait, 1),
        (503, " 90 ", Decision::Wait, 90),
        (503, "99999", Decision::Wait, 3600),
        (503, "Wed, 21 Oct 2026 07:28:00 GMT", Decision::Wait, 1),
        (403, "", Decision::Fail, 0),
        (302, "", Decision::Fail, 0),
    ] {
        let got = attempt(step("http"), &request(), |_| {
            let headers = BTreeMap::from([("Retry-After".to_string(), retry_after.to_string())]);
            let http = HttpResult { status, headers, body: " why \n".into(), ..HttpResult::default() };
            IntentResult { http: Some(http), ..IntentResult::default() }
        });
        assert_eq!(got.verdict.decision, want, "{status}");
        if want == Decision::Wait {
            assert_eq!(got.verdict.wait_for(), seconds(after), "{status} {retry_after}");
        }
        if want != Decision::Done {
            assert_eq!(got.verdict.reason, format!("PUT https://example.com/a returned status {status}: why"));
        }
    }
}

#[test]
fn bugs_are_errors() {
    for (f, want) in [
        ((|s| s.get("a", settings()).and(s.get("a", settings())).map(drop)) as fn(&mut Steps) -> Step<()>, "two steps have id a"),
        (|s| s.delete("a", &Object::default()), "it has no UID"),
        (|s| s.save_state("x".repeat(5000).into()).and_then(|()| s.wait(SECOND, "")), "save less"),
        (|_| Err(Error::new("mine").into()), "mine"),
        (|s| s.all(&mut [&mut |_| Err(Error::new("in a branch").into())]), "in a branch"),
    ] {
        let err = testing::finalize(|r: &Request| run(r, f), &request(), errors(ErrorReason::NotFound)).unwrap_err().to_string();
        assert!(err.contains(want), "{err}\nwant {want}");
    }
    let r = Request { state: Some(7.into()), ..request() };
    assert_eq!(run(&r, |_| Ok(())).unwrap_err().to_string(), "decode state: not written by module finalize");
}

#[test]
fn steps_after_a_stop_do_nothing() {
    let got = attempt(
        |s| {
            let _ = s.get("a", settings());
            assert!(s.is_stopped());
            let _ = s.get("b", settings());
            let _ = s.fail::<()>("no");
            let _ = s.warn("c", "C", "c");
            let _ = s.once("d", |_| panic!("it is called"));
            Ok(())
        },
        &Request { round: 15, ..request() },
        |_| IntentResult::default(),
    );
    assert_eq!((got.verdict.decision, ids(&got).as_str()), (Decision::Wait, "a"));
}

#[test]
fn settings_that_are_invalid_fail() {
    let got = attempt(|s| s.or_fail(Err::<(), _>("oh")).map(drop), &request(), errors(ErrorReason::NotFound));
    assert_eq!((got.verdict.decision, got.verdict.reason.as_str()), (Decision::Fail, "oh"));
}

#[test]
fn what_is_done_once_is_not_repeated() {
    let steps = |s: &mut Steps| {
        s.once("start", |s| {
            s.call("start", HttpIntent::new("POST", "https://example.com/start"))?;
            s.save_state("job-1".into())
        })?;
        let job = s.load_state()?.unwrap();
        let found = s.call("look", HttpIntent::new("GET", format!("https://example.com/{}", job.as_str().unwrap())))?;
        s.until(found.is_none(), SECOND, "it runs")
    };
    let first = attempt(steps, &request(), respond_with(200, ""));
    assert_eq!((first.verdict.decision, ids(&first).as_str()), (Decision::Wait, "start look"));
    assert_eq!(first.next.state.as_ref().map(Value::to_string).as_deref(), Some(r#"{"done":["start"],"own":"job-1"}"#));
    let second = attempt(steps, &first.next, respond_with(404, ""));
    assert_eq!((second.verdict.decision, ids(&second).as_str()), (Decision::Done, "look"));
}

#[test]
fn the_state_is_omitted_if_it_is_unchanged() {
    let steps = |s: &mut Steps| s.save_state(1.into()).and_then(|()| s.wait(Duration::ZERO, ""));
    let first = attempt(steps, &request(), errors(ErrorReason::NotFound));
    assert_eq!(first.verdict.state, Some(json([("own", 1.into())])));
    assert_eq!(attempt(steps, &first.next, errors(ErrorReason::NotFound)).verdict.state, None);
}

#[test]
fn branches_request_everything_first() {
    type Branches = fn(&mut Steps) -> Step<()>;
    let cases: [(Branches, Decision, Option<Duration>, &str); 5] = [
        (
            |s| {
                s.all(&mut [&mut |s| s.fail("no"), &mut |s| s.wait(HOUR, ""), &mut |s| {
                    s.get("a", settings())?;
                    s.get("b", settings()).map(drop)
                }])
            },
            Decision::Fail,
            None,
            "a b",
        ),
        (
            |s| {
                s.all(&mut [&mut |s| s.wait(HOUR, ""), &mut |s| s.wait(seconds(60), ""), &mut |s| s.wait(seconds(120), ""), &mut |s| {
                    s.get("a", settings()).map(drop)
                }])
            },
            Decision::Wait,
            Some(seconds(60)),
            "a",
        ),
        (
            |s| {
                s.all(&mut [&mut |s| s.done("yes"), &mut |s| s.get("a", settings()).map(drop)])?;
                s.fail("no")
            },
            Decision::Done,
            None,
            "a",
        ),
        (
            |s| {
                s.all(&mut [])?;
                s.all(&mut [&mut |_| Ok(()), &mut |s| s.get("a", settings()).map(drop)])?;
                s.get("b", settings()).map(drop)
            },
            Decision::Done,
            None,
            "a b",
        ),
        (
            |s| {
                s.all(&mut [
                    &mut |s| s.all(&mut [&mut |s| s.get("a", settings()).map(drop), &mut |s| s.get("b", settings()).map(drop)]),
                    &mut |s| s.get("c", settings()).map(drop),
                ])
            },
            Decision::Done,
            None,
            "a b c",
        ),
    ];
    for (f, want, after, asked) in cases {
        let got = attempt(f, &request(), errors(ErrorReason::NotFound));
        assert_eq!((got.verdict.decision, ids(&got).as_str()), (want, asked));
        if let Some(after) = after {
            assert_eq!(got.verdict.wait_for(), after);
        }
    }
}

#[test]
fn a_run_continues_in_the_next_attempt() {
    let steps = |s: &mut Steps| {
        for i in 0..40 {
            let id = i.to_string();
            s.once(&id, |s| s.get(&id, settings()).map(drop))?;
        }
        Ok(())
    };
    let (mut r, mut all, mut attempts) = (request(), 0, 0);
    loop {
        let got = attempt(steps, &r, errors(ErrorReason::NotFound));
        all += got.intents.len();
        attempts += 1;
        if got.verdict.decision == Decision::Done {
            break;
        }
        assert_eq!(got.verdict.wait_for(), SECOND);
        r = got.next;
    }
    assert_eq!((all, attempts), (40, 3));
}

#[test]
fn events_start_no_round() {
    let steps = |s: &mut Steps| {
        s.warn("tell", "Slow", &"ö".repeat(1000))?;
        step("http")(s)?;
        s.warn("bye", "Bye", "bye")?;
        s.wait(HOUR, "later")
    };
    let got = attempt(steps, &request(), |i| match i.operation {
        Operation::Event(_) => error_result(ErrorReason::Unavailable, "no response"),
        _ => respond_with(200, "")(i),
    });
    assert_eq!((got.verdict.decision, got.verdict.wait_for(), ids(&got).as_str(), got.rounds), (Decision::Wait, HOUR, "tell a bye", 3));
    let last = Request { round: 16, ..request() };
    assert_eq!(attempt(step("get"), &last, errors(ErrorReason::NotFound)).verdict.decision, Decision::Wait);
    assert_eq!(attempt(|s| s.warn("tell", "Bye", "bye"), &last, errors(ErrorReason::NotFound)).verdict.decision, Decision::Done);
}

#[test]
fn waits_are_in_the_range_of_a_verdict() {
    for (asked, want) in [
        (Duration::ZERO, seconds(30)),
        (Duration::from_nanos(1), SECOND),
        (seconds(60), seconds(60)),
        (Duration::MAX, seconds(720 * 3600)),
    ] {
        let got = attempt(|s| s.wait(asked, "long ".repeat(1000)), &request(), errors(ErrorReason::NotFound));
        assert_eq!(got.verdict.wait_for(), want, "{asked:?}");
    }
}

#[test]
fn a_time_to_give_up_limits_waits() {
    let steps = |s: &mut Steps| {
        s.give_up_by(s.deadline(seconds(60)), |s| s.fail("late for the deadline"))?;
        s.give_up_by(s.after_deletion(HOUR), step("get"))?;
        s.wait(24 * HOUR, "waits")
    };
    for (deadline, since, want, after) in [
        (Some(600), 0, Decision::Wait, 540),
        (Some(600), 3300, Decision::Wait, 300),
        (Some(30), 0, Decision::Fail, 0),
        (Some(600), 7200, Decision::Done, 0),
        (None, 0, Decision::Wait, 3600),
    ] {
        let mut r = request();
        r.deadline = deadline.map(|d| r.time + seconds(d));
        r.object.metadata.deletion_timestamp = Some(r.time - seconds(since));
        let got = attempt(steps, &r, errors(ErrorReason::NotFound));
        assert_eq!(got.verdict.decision, want, "{deadline:?}, {since}");
        if want == Decision::Wait {
            assert_eq!(got.verdict.wait_for(), seconds(after), "{deadline:?}, {since}");
        }
    }
}

#[test]
fn many_intents_are_split() {
    let got = attempt(
        |s| {
            let list = s.list("all", list_of("v1", "ConfigMap", ""))?;
            assert_eq!(list.items.len(), 200);
            s.each("each", ListIntent { limit: 200, ..list_of("v1", "ConfigMap", "") }, |s, o| s.delete("delete", o))
        },
        &request(),
        {
            let mut world = full(200);
            move |i: &Intent| world.execute(i)
        },
    );
    assert_eq!((got.intents.len(), got.rounds), (202, 1 + 1 + 4 + 1));
}

/// Is a world of so many ConfigMaps.
fn full(count: usize) -> FakeCluster {
    let mut world = FakeCluster::default();
    for i in 0..count {
        world.add(object(&format!("object-{i:04}")));
    }
    world
}

/// Goes through attempts until the decision is Done, and counts them.
fn run_to_end(steps: impl Fn(&mut Steps) -> Step<()>, mut world: impl FnMut(&Intent) -> IntentResult) -> usize {
    let mut r = request();
    for attempts in 1..100 {
        let got = attempt(&steps, &r, &mut world);
        match got.verdict.decision {
            Decision::Done => return attempts,
            Decision::Wait => r = got.next,
            _ => panic!("attempt {attempts}: {:?}", got.verdict),
        }
    }
    panic!("it does not end");
}

fn claims() -> ListIntent {
    list_of("v1", "ConfigMap", "shop")
}

#[test]
fn each_goes_through_all_pages() {
    for count in [0, 1, 49, 50, 51, 1000] {
        let mut world = full(count);
        run_to_end(|s| s.each("all", claims(), |s, o| s.delete("delete", o)), |i| world.execute(i));
        assert_eq!(world.objects().count(), 0, "of {count}");
    }
}

#[test]
fn each_continues_at_the_page_that_is_not_finished() {
    let mut world = full(1000);
    let mut called: BTreeMap<String, usize> = BTreeMap::new();
    let attempts = run_to_end(
        |s| {
            s.each("all", claims(), |s, o| {
                s.call("tell", HttpIntent::new("POST", format!("https://example.com/{}", o.metadata.name))).map(drop)
            })
        },
        |i| match &i.operation {
            Operation::Http(http) => {
                let times = called.entry(http.url.clone()).or_default();
                *times += 1;
                respond_with(if *times == 1 && http.url.ends_with("object-0777") { 503 } else { 200 }, "")(i)
            }
            _ => world.execute(i),
        },
    );
    let again: usize = called.values().map(|times| times - 1).sum();
    assert!(called.len() == 1000 && again <= 50 && attempts <= 10, "{} were called, {again} again, in {attempts} attempts", called.len());
}

#[test]
fn each_lists_again_if_the_list_has_expired() {
    let mut world = full(1000);
    let mut expired = String::new();
    run_to_end(
        |s| s.each("all", claims(), |s, o| s.delete("delete", o)),
        |i| match &i.operation {
            Operation::List(list) if !list.continue_token.is_empty() && (expired.is_empty() || expired == list.continue_token) => {
                expired = list.continue_token.clone();
                error_result(ErrorReason::Expired, "the continue token is too old")
            }
            _ => world.execute(i),
        },
    );
    assert!(world.objects().count() == 0 && !expired.is_empty());
}

#[test]
fn each_lists_a_finished_list_again() {
    let mut world = full(120);
    let steps = |s: &mut Steps| {
        s.each("all", claims(), |_, _| Ok(()))?;
        s.wait(Duration::ZERO, "again")
    };
    let first = attempt(steps, &request(), |i| world.execute(i));
    let second = attempt(steps, &first.next, |i| world.execute(i));
    for got in [first, second] {
        assert_eq!(ids(&got), "all.1 all.2 all.3");
        assert!(matches!(&got.intents[0].operation, Operation::List(list) if list.continue_token.is_empty()));
    }
}

#[test]
fn each_has_a_state_for_each_object() {
    let mut world = full(3);
    let mut started: BTreeMap<String, usize> = BTreeMap::new();
    let lists = Cell::new(0);
    run_to_end(
        |s| {
            s.each("all", claims(), |s, o| {
                s.once("start", |s| s.call("start", HttpIntent::new("POST", format!("https://example.com/{}", o.metadata.name))).map(drop))?;
                s.delete("delete", o)
            })?;
            s.until(s.request().attempt > 3, SECOND, "a few times")
        },
        |i| match &i.operation {
            Operation::Http(http) => {
                *started.entry(http.url.clone()).or_default() += 1;
                respond_with(200, "")(i)
            }
            Operation::List(_) => {
                lists.set(lists.get() + 1); // another comes first each time
                world.add(object(&format!("new-{}", 9 - lists.get())));
                world.execute(i)
            }
            _ => world.execute(i),
        },
    );
    assert!(started.values().all(|&times| times == 1) && started.len() >= 6, "{started:?}");
}

#[test]
fn pages_of_large_objects_end_an_attempt_early() {
    let mut world = FakeCluster::default();
    for i in 0..100 {
        let mut o = object(&format!("object-{i:04}"));
        o.body = format!(r#"{{"data": {{"large": "{}"}}}}"#, "x".repeat(100_000));
        world.add(o);
    }
    let list = ListIntent { limit: 10, ..claims() };
    let attempts = run_to_end(|s| s.each("all", list.clone(), |s, o| s.delete("delete", o)), |i| world.execute(i));
    assert_eq!(attempts, 10);
}

#[test]
fn each_may_be_nested() {
    let mut world = full(5);
    for i in 0..5 {
        for j in 0..120 {
            world.add(Object { kind: format!("Child{i}"), ..object(&format!("child-{i}-{j:03}")) });
        }
    }
    run_to_end(
        |s| {
            s.each("parents", claims(), |s, parent| {
                let kind = format!("Child{}", &parent.metadata.name["object-000".len()..]);
                s.each("children", list_of("v1", &kind, "shop"), |s, child| s.delete("delete", child))?;
                s.delete("delete", parent)
            })
        },
        |i| world.execute(i),
    );
    assert_eq!(world.objects().count(), 0);
}
