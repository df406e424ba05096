//! A finalizer that stores an object's manifest, and reads it back, before the object may go. It is
//! the same as the one in Go: see README.md.

use std::time::Duration;

use gleaner::finalize::{self, Step, Steps};
use gleaner::json::{object, Value};
use gleaner::{Decision, Error, HttpIntent, Object, PatchIntent, PatchType, Request, Target, Verdict};

gleaner::hooks! { finalize => finalizer, validate => validate }

/// The key of the manifest in a ConfigMap.
const FILE: &str = "manifest.json";

/// Where manifests are stored, as the settings say.
enum Store {
    /// In ConfigMaps in this namespace.
    Namespace(String),
    /// By PUT below this address, which has no slash at its end.
    Url(String),
}

impl Store {
    /// Reads the settings. An error says what is wrong, and what to write instead.
    fn read(r: &Request) -> Result<Store, Error> {
        let mut settings = r.settings()?;
        let namespace = settings.text("namespace")?.filter(|text| !text.is_empty());
        let url = settings.text("url")?.filter(|text| !text.is_empty());
        settings.finish()?;
        match (namespace, url) {
            (Some(namespace), None) => Ok(Store::Namespace(namespace)),
            (None, Some(url)) if is_base(&url) => Ok(Store::Url(url)),
            (None, Some(_)) => Err(Error::new(
                "url must be a URL without a slash at the end, such as https://backup.example.com/manifests",
            )),
            _ => Err(Error::new(
                "set either namespace, to store manifests in ConfigMaps, or url, to store them on a server by PUT",
            )),
        }
    }
}

fn is_base(url: &str) -> bool {
    (url.starts_with("https://") || url.starts_with("http://")) && !url.ends_with('/')
}

/// Stores the same manifest under the same name each time, since it may be evaluated again at any
/// point. The backup is complete only when it was read back.
fn finalizer(r: &Request) -> Result<Verdict, Error> {
    finalize::run(r, |s| {
        let store = s.or_fail(Store::read(r))?;
        if r.object.is("", "Secret") {
            return s.fail("a backup of a Secret would be readable by others: remove secrets from the finalizer's resources");
        }
        let manifest = s.or_fail(manifest_of(&r.object).map_err(|err| format!("encode its manifest: {err}")))?;
        match store {
            Store::Namespace(namespace) => create(s, &namespace, &manifest),
            Store::Url(url) => put(s, &format!("{url}/{}.json", name_of(&r.object)), &manifest),
        }
    })
}

/// Stores the manifest in a ConfigMap.
fn create(s: &mut Steps, namespace: &str, manifest: &str) -> Step<()> {
    let of = &s.request().object;
    let target = Target::new("v1", "ConfigMap", namespace, name_of(of));
    let full_name = format!("{}/{}", of.metadata.namespace, of.metadata.name);
    let annotations = object([("backup.example.com/of", full_name.trim_start_matches('/').into())]);
    let metadata = [("name", target.name.as_str().into()), ("namespace", namespace.into()), ("annotations", annotations)];
    let data = object([(FILE, manifest.into())]);
    s.create(
        "store",
        object([
            ("apiVersion", target.api_version.as_str().into()),
            ("kind", target.kind.as_str().into()),
            ("metadata", object(metadata)),
            ("data", data.clone()),
        ]),
    )?;
    let mut stored = s.get("check", target.clone())?;
    if let Some(old) = stored.as_ref().filter(|stored| !has(stored, manifest)) {
        // It is from an earlier attempt, before the object changed.
        let patch = object([("metadata", object([("uid", old.metadata.uid.as_str().into())])), ("data", data)]);
        s.patch("renew", PatchIntent { target: target.clone(), patch_type: PatchType::Merge, patch })?;
        stored = s.get("check-again", target.clone())?;
    }
    let is_stored = stored.map_or(false, |stored| has(&stored, manifest));
    s.until(is_stored, Duration::from_secs(1), format!("ConfigMap {} does not contain the manifest", target.name))
}

fn has(stored: &Object, manifest: &str) -> bool {
    let value = stored.value().ok();
    value.as_ref().and_then(|value| value.get("data")?.get(FILE)?.as_str()) == Some(manifest)
}

/// Stores the manifest on a server that returns it on GET.
fn put(s: &mut Steps, url: &str, manifest: &str) -> Step<()> {
    let headers = [("Content-Type".to_string(), "application/json".to_string())].into();
    let intent = HttpIntent { headers, body: manifest.to_string(), ..HttpIntent::new("PUT", url) };
    if s.call("store", intent)?.is_none() {
        return s.fail("the url of the settings does not accept backups");
    }
    let stored = s.call("check", HttpIntent::new("GET", url))?;
    let is_stored = stored.map_or(false, |stored| stored.body == manifest);
    s.until(is_stored, Duration::from_secs(10), "the server does not return the manifest")
}

/// Returns a unique name for the object's backup, in lower case as names must be.
fn name_of(o: &Object) -> String {
    format!("{}-{}", o.kind.to_lowercase(), o.metadata.uid)
}

/// Returns the object in a form that can be applied again, without fields that the API server sets.
fn manifest_of(o: &Object) -> Result<String, Error> {
    let mut whole = match o.value()? {
        Value::Object(members) => members,
        _ => return Err("it is not an object".into()),
    };
    whole.remove("status");
    if let Some(Value::Object(metadata)) = whole.get_mut("metadata") {
        metadata.retain(|name, _| matches!(name.as_str(), "name" | "namespace" | "labels" | "annotations"));
    }
    Ok(escape(Value::Object(whole).to_string())) // sorted by name
}

/// Escapes what Kubernetes and the module in Go escape in JSON, so that both modules store the same
/// text. The characters are in strings only.
fn escape(json: String) -> String {
    let escaped = ['<', '>', '&', '\u{2028}', '\u{2029}'];
    escaped.into_iter().fold(json, |json, c| json.replace(c, &format!("\\u{:04x}", c as u32)))
}

/// Rejects invalid settings.
fn validate(r: &Request) -> Result<Verdict, Error> {
    Ok(match Store::read(r) {
        Ok(_) => Verdict::new(Decision::Valid),
        Err(err) => Verdict::new(Decision::Invalid).because(err.to_string()),
    })
}

#[cfg(test)]
mod tests {
    use gleaner::testing::{self, FakeCluster, FinalizeResult};
    use gleaner::{ErrorReason, Hook, Intent, IntentResult, Operation};

    use super::*;

    const INTO_CONFIG_MAPS: &str = r#"{"namespace":"backups"}"#;
    const BY_PUT: &str = r#"{"url":"https://backup.example.com/m"}"#;

    const SETTLED: &str = r#"{"apiVersion":"v1","data":{"a":"1"},"kind":"ConfigMap","metadata":{"name":"orders",
        "namespace":"shop","labels":{"app":"x"},"annotations":{"a":"<x>"},"uid":"u-1","resourceVersion":"7","finalizers":["f"],
        "managedFields":[{}],"deletionTimestamp":"2026-01-02T12:00:00Z"},"status":{"x":1}}"#;
    const MANIFEST: &str = concat!(
        r#"{"apiVersion":"v1","data":{"a":"1"},"kind":"ConfigMap","metadata":{"annotations":{"a":"\u003cx\u003e"},"#,
        r#""labels":{"app":"x"},"name":"orders","namespace":"shop"}}"#
    );

    fn finalized(settings: &str, object: &str, world: impl FnMut(&Intent) -> IntentResult) -> FinalizeResult {
        let asked = Request::parse(&format!(r#"{{"hook":"finalize","object":{object}}}"#)).unwrap();
        let mut r = Request { object: asked.object, ..testing::request(Hook::Finalize) };
        r.policy.settings = settings.to_string();
        testing::finalize(finalizer, &r, world).unwrap()
    }

    #[test]
    fn the_manifest_is_stored_and_read_back() {
        let mut cluster = FakeCluster::default();
        for attempt in 1..=2 {
            let got = finalized(INTO_CONFIG_MAPS, SETTLED, |intent| cluster.execute(intent));
            assert_eq!((got.verdict, got.rounds), (Verdict::new(Decision::Done), 3), "attempt {attempt}");
            let objects: Vec<&Object> = cluster.objects().collect();
            assert_eq!(objects.len(), 1);
            assert_eq!(Target::of(objects[0]), Target::new("v1", "ConfigMap", "backups", "configmap-u-1"));
            assert!(has(objects[0], MANIFEST), "{}", objects[0].body);
        }
    }

    #[test]
    fn an_old_backup_is_renewed() {
        let mut cluster = FakeCluster::default();
        finalized(INTO_CONFIG_MAPS, SETTLED, |intent| cluster.execute(intent));
        let changed = SETTLED.replace(r#""a":"1""#, r#""a":"2""#);
        let got = finalized(INTO_CONFIG_MAPS, &changed, |intent| match &intent.operation {
            Operation::Patch(PatchIntent { target, patch, .. }) => {
                let mut renewed = testing::object("v1", "ConfigMap", "backups", &target.name);
                renewed.body = patch.to_string();
                cluster.add(renewed.clone());
                IntentResult { object: Some(renewed), ..IntentResult::default() }
            }
            _ => cluster.execute(intent),
        });
        assert_eq!((got.verdict, got.rounds), (Verdict::new(Decision::Done), 5));
        assert!(cluster.objects().all(|o| has(o, &MANIFEST.replace(r#""a":"1""#, r#""a":"2""#))));
    }

    #[test]
    fn what_was_not_read_back_is_not_stored() {
        let lost = finalized(INTO_CONFIG_MAPS, SETTLED, |intent| match intent.operation {
            Operation::Create(_) => IntentResult { object: Some(Object::default()), ..IntentResult::default() },
            _ => testing::error_result(ErrorReason::NotFound, "oh"),
        });
        assert_eq!(lost.verdict.decision, Decision::Wait);
        assert_eq!(lost.verdict.reason, "ConfigMap configmap-u-1 does not contain the manifest");
        for (status, body, want) in [
            (200, "", Decision::Wait),       // it keeps nothing
            (503, "", Decision::Wait),       // it is down
            (404, "", Decision::Fail),       // there is nothing behind the address
            (403, "", Decision::Fail),       // it refuses
            (200, MANIFEST, Decision::Done), // it gives it back
        ] {
            let got = finalized(BY_PUT, SETTLED, testing::respond_with(status, body));
            assert_eq!(got.verdict.decision, want, "with status {status} and {body:?}");
        }
    }

    #[test]
    fn a_secret_is_stored_nowhere() {
        let secret = SETTLED.replace(r#""kind":"ConfigMap""#, r#""kind":"Secret""#);
        for settings in [INTO_CONFIG_MAPS, BY_PUT] {
            let got = finalized(settings, &secret, testing::respond_with(200, ""));
            assert_eq!((got.verdict.decision, got.intents), (Decision::Fail, vec![]), "{settings}");
        }
    }

    #[test]
    fn settings_are_checked() {
        for (settings, want) in [
            (INTO_CONFIG_MAPS, Decision::Valid),
            (BY_PUT, Decision::Valid),
            ("{}", Decision::Invalid),
            (r#"{"namespace":"backups","url":"https://x"}"#, Decision::Invalid),
            (r#"{"url":"https://x/"}"#, Decision::Invalid),
            (r#"{"url":"backup.example.com"}"#, Decision::Invalid),
            (r#"{"folder":"x"}"#, Decision::Invalid),
        ] {
            let mut r = testing::request(Hook::Validate);
            r.policy.settings = settings.to_string();
            assert_eq!(testing::call(validate, &r).unwrap().verdict.decision, want, "{settings}");
        }
    }
}
