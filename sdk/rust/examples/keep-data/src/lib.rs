//! A policy that keeps claims with data in them: those that are marked, those that a ConfigMap
//! vouches for, and all of a deleted owner's. It is the same as the example of the SDK for Go.

use gleaner::json::{object, Value};
use gleaner::{
    parse_duration, Decision, DependentDecision, Error, ErrorReason, Intent, Operation, Propagation, Request, Target, Verdict,
};

gleaner::hooks! { propagate => propagate, collect => collect, validate => validate }

const CLAIM: &str = "PersistentVolumeClaim";

/// Keeps claims among the dependents, and deletes the rest.
pub fn propagate(r: &Request) -> Result<Verdict, Error> {
    if !r.dependents.by_kind.iter().any(|k| k.group.is_empty() && k.kind == CLAIM) {
        return Ok(Verdict::new(Decision::Abstain));
    }
    let exception = DependentDecision { group: String::new(), kind: CLAIM.to_string(), decision: Decision::Orphan };
    Ok(Verdict { dependents: vec![exception], ..Verdict::new(Decision::Background) })
}

/// Decides about claims only.
pub fn collect(r: &Request) -> Result<Verdict, Error> {
    let mut settings = r.settings()?;
    let (wait, unless) = (settings.text("wait")?, settings.text("unless")?);
    settings.finish()?;
    let metadata = &r.object.metadata;
    if !r.object.is("", CLAIM) {
        return Ok(Verdict::new(Decision::Abstain));
    }
    if metadata.label("keep") == "true" || metadata.annotation("keep") == "true" {
        return Ok(Verdict::new(Decision::Orphan).because("it has keep=true"));
    }
    if let Some(verdict) = unless.and_then(|name| look_for(r, &name)) {
        return Ok(verdict);
    }
    if let Some(wait) = wait.filter(|wait| !has_waited(r, wait)) {
        let after = Some(parse_duration(&wait)?);
        return Ok(Verdict { after, state: Some(object([("waited", wait.into())])), ..Verdict::new(Decision::Wait) });
    }
    let propagation = if r.dependents.count > 0 { Some(Propagation::Foreground) } else { None };
    Ok(Verdict { propagation, ..Verdict::new(Decision::Delete) })
}

/// Looks for the ConfigMap; None if it is known that it does not exist.
fn look_for(r: &Request, name: &str) -> Option<Verdict> {
    let result = match r.results.get("hold") {
        Some(result) => result,
        None => {
            let target = Target::new("v1", "ConfigMap", &r.object.metadata.namespace, name);
            let intent = Intent { id: "hold".to_string(), operation: Operation::Get(target) };
            return Some(Verdict { intents: vec![intent], ..Verdict::new(Decision::Act) });
        }
    };
    match &result.error {
        None => Some(Verdict::new(Decision::Wait).because(format!("ConfigMap {name} is there"))),
        Some(err) if err.reason == ErrorReason::NotFound => None,
        Some(err) => {
            // It is not known to be absent.
            gleaner::warn!("get ConfigMap {name}: {}", err.message);
            Some(Verdict::new(Decision::Wait).because(format!("ConfigMap {name} can't be read: {}", err.reason.name())))
        }
    }
}

/// Reports whether the claim has waited once for as long as the settings say.
fn has_waited(r: &Request, wait: &str) -> bool {
    r.state.as_ref().and_then(|state| state.get("waited")).and_then(Value::as_str) == Some(wait)
}

/// Rejects settings with which collect could do nothing.
pub fn validate(r: &Request) -> Result<Verdict, Error> {
    let mut settings = r.settings()?;
    let (wait, _) = (settings.take("wait"), settings.take("unless"));
    if let Some(name) = settings.rest().keys().next() {
        return Ok(Verdict::new(Decision::Invalid).because(format!("unknown setting {name}")));
    }
    if wait.map_or(false, |value| !is_wait(&value)) {
        return Ok(Verdict::new(Decision::Invalid).because("wait must be a number with s, m or h, such as 1h"));
    }
    Ok(Verdict::new(Decision::Valid))
}

fn is_wait(value: &Value) -> bool {
    let text = value.as_str().unwrap_or_default();
    let number = text.strip_suffix(|unit| unit == 's' || unit == 'm' || unit == 'h').unwrap_or_default();
    !number.is_empty() && number.bytes().all(|c| c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use gleaner::{testing, Hook, IntentResult};

    use super::*;

    /// Returns a request about a claim.
    fn claim(settings: &str) -> Request {
        let mut r = testing::request(Hook::Collect);
        r.object.kind = CLAIM.to_string();
        r.policy.settings = settings.to_string();
        r
    }

    fn verdict(r: &Request) -> Verdict {
        testing::call(collect, r).unwrap().verdict
    }

    #[test]
    fn a_claim_goes() {
        assert_eq!(verdict(&claim("{}")), Verdict::new(Decision::Delete));
    }

    #[test]
    fn a_claim_with_the_label_stays() {
        let mut r = claim("{}");
        r.object.metadata.labels.insert("keep".to_string(), "true".to_string());
        assert_eq!(verdict(&r), Verdict::new(Decision::Orphan).because("it has keep=true"));
    }

    #[test]
    fn a_claim_waits_first_and_then_goes() {
        let mut r = claim(r#"{"wait":"1h"}"#);
        let first = verdict(&r);
        assert_eq!((first.decision, first.after), (Decision::Wait, Some(Duration::from_secs(3600))));
        r.state = first.state;
        assert_eq!(verdict(&r), Verdict::new(Decision::Delete));
    }

    #[test]
    fn a_config_map_that_was_not_read_is_not_absent() {
        let mut r = claim(r#"{"unless":"hold"}"#);
        let hold = IntentResult { object: Some(testing::object("v1", "ConfigMap", "shop", "hold")), ..IntentResult::default() };
        for (result, want) in [
            (hold, Decision::Wait),
            (testing::error_result(ErrorReason::NotFound, "oh"), Decision::Delete),
            (testing::error_result(ErrorReason::Forbidden, "oh"), Decision::Wait),
        ] {
            r.results.insert("hold".to_string(), result.clone());
            assert_eq!(verdict(&r).decision, want, "{result:?}");
        }
    }

    #[test]
    fn an_unknown_setting_is_an_error() {
        let err = testing::call(collect, &claim(r#"{"wiat":"1h"}"#)).unwrap_err();
        assert_eq!(err.to_string(), r#"decode settings: unknown field "wiat""#);
    }
}
