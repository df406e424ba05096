use std::time::Duration;

use crate::json::Value;
use crate::{limits, Error, Hook, Intent};

/// The output of an evaluation.
///
/// ```
/// use gleaner::{Decision, Propagation, Verdict};
///
/// let verdict = Verdict {
///     propagation: Some(Propagation::Foreground),
///     ..Verdict::new(Decision::Delete).because("nothing uses it")
/// };
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// What the module decides.
    pub decision: Decision,
    /// The propagation policy with which collect deletes the object.
    pub propagation: Option<Propagation>,
    /// The grace period with which collect deletes the object, and with Foreground of propagate, the
    /// one with which everything below the object is deleted. A verdict of collect with a grace
    /// period of its own takes precedence.
    pub grace_period_seconds: Option<i64>,
    /// Has Foreground of propagate use the grace period of the request to delete the object, if that
    /// has one, in place of grace_period_seconds.
    pub inherit_grace_period: bool,
    /// The minimum time that the object must have been without an owner before collect deletes it,
    /// counted from the request's owners_absent_since.
    pub delay: Option<Duration>,
    /// The time until the next evaluation, at least [`limits::MIN_WAIT`]. With Wait, the default is
    /// [`limits::DEFAULT_WAIT`]. With Keep, it is a minute at first, and then grows up to an hour;
    /// for images, it is ten minutes.
    pub after: Option<Duration>,
    /// Exceptions to the decision of propagate, by kind.
    pub dependents: Vec<DependentDecision>,
    /// The order in which Foreground of propagate deletes the dependents: waves of kinds. Those of
    /// one wave are deleted when none of the earlier waves is left, and those of kinds that are in no
    /// wave come last. The object stays until all of them are gone.
    pub order: Vec<Vec<GroupKind>>,
    /// The operations that Act requests, in this order.
    pub intents: Vec<Intent>,
    /// Any JSON value but null that the next request receives, with Act and Wait. Without it, the
    /// previous state is kept.
    pub state: Option<Value>,
    /// An explanation for people, in records, status and messages of denied requests.
    pub reason: String,
}

impl Verdict {
    /// Returns a verdict with a decision only.
    pub fn new(decision: Decision) -> Verdict {
        Verdict {
            decision,
            propagation: None,
            grace_period_seconds: None,
            inherit_grace_period: false,
            delay: None,
            after: None,
            dependents: Vec::new(),
            order: Vec::new(),
            intents: Vec::new(),
            state: None,
            reason: String::new(),
        }
    }

    /// Returns the verdict with a reason.
    pub fn because(mut self, reason: impl Into<String>) -> Verdict {
        self.reason = reason.into();
        self
    }

    /// Returns the JSON text of the verdict. It does not say whether the host accepts it; see
    /// [`Verdict::check`].
    pub fn to_json(&self) -> String {
        crate::encode::verdict(self).to_string()
    }

    /// Returns the duration of a Wait.
    pub fn wait_for(&self) -> Duration {
        self.after.map_or(limits::DEFAULT_WAIT, |after| after.max(limits::MIN_WAIT))
    }

    /// Checks the verdict as the host does when a hook returns it: the decision, the fields that are
    /// allowed with it, and the limits. Tests call it by [`testing::call`](crate::testing::call).
    pub fn check(&self, hook: Hook) -> Result<(), Error> {
        let allowed = Decision::allowed(hook);
        let fields = match allowed.iter().find(|(decision, _)| *decision == self.decision) {
            Some((_, fields)) => *fields,
            None => {
                let names: Vec<&str> = allowed.iter().map(|(decision, _)| decision.name()).collect();
                return Err(Error::new(format!(
                    "the decision {} is not one of {}: decide one of {}",
                    self.decision.name(),
                    hook.name(),
                    names.join(", ")
                )));
            }
        };
        let json = crate::encode::verdict(self);
        for name in json.as_object().into_iter().flat_map(|members| members.keys()) {
            if name != "decision" && name != "reason" && !fields.contains(&name.as_str()) {
                return Err(Error::new(format!("{name} is not allowed with {} of {}", self.decision.name(), hook.name())));
            }
        }
        self.check_limits()?;
        match json.to_string().len() {
            size if size > limits::MAX_VERDICT_BYTES => {
                Err(Error::new(format!("the verdict has {size} bytes, at most {} are allowed", limits::MAX_VERDICT_BYTES)))
            }
            _ => Ok(()),
        }
    }

    fn check_limits(&self) -> Result<(), Error> {
        let at_most = |what: &str, size: usize, limit: usize| {
            if size > limit {
                return Err(Error::new(format!("the verdict has {size} {what}, at most {limit} are allowed")));
            }
            Ok(())
        };
        at_most("bytes of reason", self.reason.len(), limits::MAX_REASON_BYTES)?;
        at_most("intents", self.intents.len(), limits::MAX_INTENTS)?;
        at_most("dependents", self.dependents.len(), limits::MAX_DEPENDENTS)?;
        match &self.state {
            Some(Value::Null) => return Err("the state is null: leave it out".into()),
            Some(state) => at_most("bytes of state", state.to_string().len(), limits::MAX_STATE_BYTES)?,
            None => (),
        }
        for (name, d) in [("after", self.after), ("delay", self.delay)] {
            if d.map_or(false, |d| d == Duration::ZERO || d > limits::MAX_DURATION) {
                return Err(Error::new(format!("{name} is out of range: it must be greater than 0 and at most 720h")));
            }
        }
        for (i, intent) in self.intents.iter().enumerate() {
            let valid = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_' || c == '.';
            if intent.id.is_empty() || intent.id.len() > 63 || !intent.id.chars().all(valid) {
                return Err(Error::new(format!("the intent id {:?} is invalid: use up to 63 letters, digits, '-', '_' and '.'", intent.id)));
            }
            if self.intents[..i].iter().any(|earlier| earlier.id == intent.id) {
                return Err(Error::new(format!("two intents have id {}", intent.id)));
            }
        }
        Ok(())
    }
}

/// What a module decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Decision {
    /// Collect: deletes the object.
    Delete,
    /// Collect: keeps the object and removes its references to absent owners. Propagate: keeps the
    /// dependents of a deleted owner.
    Orphan,
    /// Propagate: deletes the dependents of a deleted owner after the owner.
    Background,
    /// Propagate: deletes the dependents of a deleted owner before the owner.
    Foreground,
    /// Protect: allows the deletion that a user requests.
    Allow,
    /// Protect: denies the deletion that a user requests, who gets the reason.
    Deny,
    /// Retain: has the object removed.
    Remove,
    /// Retain: keeps the object.
    Keep,
    /// Finalize: finishes. The finalizer is removed from the object.
    Done,
    /// Finalize: fails permanently. The object is kept until someone intervenes.
    Fail,
    /// Asks the host to carry out intents; the module is then evaluated again with their results.
    /// Finalize may use all intents, the other hooks only get and list.
    Act,
    /// Propagate, collect and finalize: asks for another evaluation later.
    Wait,
    /// Propagate, collect, protect and retain: leaves the decision to the next policy, and finally to
    /// the default behavior.
    Abstain,
    /// Validate: accepts the settings.
    Valid,
    /// Validate: rejects the settings.
    Invalid,
}

impl Decision {
    /// Returns the name of the decision.
    pub fn name(self) -> &'static str {
        match self {
            Decision::Delete => "Delete",
            Decision::Orphan => "Orphan",
            Decision::Background => "Background",
            Decision::Foreground => "Foreground",
            Decision::Allow => "Allow",
            Decision::Deny => "Deny",
            Decision::Remove => "Remove",
            Decision::Keep => "Keep",
            Decision::Done => "Done",
            Decision::Fail => "Fail",
            Decision::Act => "Act",
            Decision::Wait => "Wait",
            Decision::Abstain => "Abstain",
            Decision::Valid => "Valid",
            Decision::Invalid => "Invalid",
        }
    }

    /// Returns the decisions of a hook, each with the fields that are allowed with it, in addition to
    /// decision and reason.
    pub fn allowed(hook: Hook) -> &'static [(Decision, &'static [&'static str])] {
        use Decision::*;
        match hook {
            Hook::Propagate => &[
                (Background, &["dependents"]),
                (Foreground, &["dependents", "order", "gracePeriodSeconds", "inheritGracePeriod"]),
                (Orphan, &["dependents"]),
                (Wait, &["after", "state"]),
                (Act, &["intents", "state"]),
                (Abstain, &[]),
            ],
            Hook::Collect => &[
                (Delete, &["propagation", "gracePeriodSeconds", "delay"]),
                (Orphan, &[]),
                (Wait, &["after", "state"]),
                (Act, &["intents", "state"]),
                (Abstain, &[]),
            ],
            Hook::Protect => &[(Allow, &[]), (Deny, &[]), (Act, &["intents", "state"]), (Abstain, &[])],
            Hook::Retain => &[(Remove, &[]), (Keep, &["after"]), (Act, &["intents", "state"]), (Abstain, &[])],
            Hook::Finalize => &[(Done, &[]), (Act, &["intents", "state"]), (Wait, &["after", "state"]), (Fail, &[])],
            Hook::Validate => &[(Valid, &[]), (Invalid, &[])],
        }
    }
}

/// The propagation policy of a delete request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Propagation {
    /// Dependents are deleted after the object.
    Background,
    /// Dependents are deleted before the object.
    Foreground,
    /// Dependents are kept.
    Orphan,
}

impl Propagation {
    /// Returns the name of the propagation policy.
    pub fn name(self) -> &'static str {
        match self {
            Propagation::Background => "Background",
            Propagation::Foreground => "Foreground",
            Propagation::Orphan => "Orphan",
        }
    }
}

/// The decision for the dependents of one kind: Delete or Orphan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DependentDecision {
    /// Empty: the core group.
    pub group: String,
    /// The kind.
    pub kind: String,
    /// Delete or Orphan.
    pub decision: Decision,
}

/// A kind, without its version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupKind {
    /// Empty: the core group.
    pub group: String,
    /// The kind.
    pub kind: String,
}
