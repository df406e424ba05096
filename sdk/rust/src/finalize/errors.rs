use std::time::Duration;

use super::{truncate, Step, Steps};
use crate::{limits, ErrorReason, Operation, ResultError, Target};

/// Returns the delay after an attempt: from 1s, doubled each time, up to 5m.
pub(super) fn backoff(attempt: i64) -> Duration {
    let doublings = attempt.saturating_sub(1).clamp(0, 9) as u32;
    Duration::from_secs(1 << doublings).min(Duration::from_secs(5 * 60))
}

impl<'r> Steps<'r> {
    /// Stops the run after an operation that was not carried out.
    pub(super) fn handle_error<T>(&mut self, operation: &Operation, e: &ResultError) -> Step<T> {
        let mut what = format!("{}: {}", describe(operation), e.reason.name());
        if !e.message.is_empty() {
            what += &format!(": {}", e.message);
        }
        match e.reason {
            ErrorReason::NotGranted | ErrorReason::Forbidden | ErrorReason::Invalid => {
                let remedy = self.remedy(operation, &e.reason);
                self.fail(format!("{}. {remedy}", truncate(&what, limits::MAX_REASON_BYTES / 2)))
            }
            _ => self.wait(backoff(self.req.attempt), what), // nothing is proved to be gone; retry
        }
    }

    /// Says what to change.
    fn remedy(&self, operation: &Operation, reason: &ErrorReason) -> String {
        let is_http = matches!(operation, Operation::Http(_));
        let text = match reason {
            ErrorReason::NotGranted | ErrorReason::Forbidden if self.req.service_account_missing && !is_http => {
                "The service account of the finalizer does not exist: create it again with its permissions, or remove the finalizer"
            }
            _ if self.req.namespace_terminating && matches!(operation, Operation::Create(_)) => {
                "The namespace is being deleted, so nothing can be created in it"
            }
            ErrorReason::Forbidden if self.req.namespace_terminating => {
                "The namespace is being deleted, and the service account's permissions may already be deleted: \
                 use a ClusterFinalizer with a service account and bindings in another namespace"
            }
            ErrorReason::NotGranted => {
                return format!("If a grant is missing, add it to spec.grants of the finalizer: {}", grant_for(operation));
            }
            ErrorReason::Forbidden if is_http => {
                "The service account of the finalizer may not read the Secrets of the grant: allow it to get them"
            }
            ErrorReason::Forbidden => {
                return format!(
                    "The service account of the finalizer lacks the permission: allow it to {} this resource, with a role and a binding",
                    operation.name()
                );
            }
            _ => "The module has to send a valid intent",
        };
        text.to_string()
    }
}

/// Returns the grant that an operation needs.
fn grant_for(operation: &Operation) -> String {
    if let Operation::Http(http) = operation {
        return format!("http: [{{url: {:?}, methods: [{}]}}]", without_query(&http.url), http.method);
    }
    let target = target_of(operation);
    let group = target.api_version.split_once('/').map_or("", |(group, _)| group);
    let (field, verbs) = match operation.is_read_only() {
        true => ("read", String::new()),
        false => ("write", format!(", verbs: [{}]", operation.name())),
    };
    let mut text = format!("{field}: [{{apiGroups: [{group:?}], resources: [the plural of {}]{verbs}", target.kind);
    if !target.namespace.is_empty() {
        text += &format!(", namespaces: [{}]", target.namespace);
    }
    text + "}]"
}

/// Formats an operation for people.
pub(super) fn describe(operation: &Operation) -> String {
    match operation {
        Operation::Http(http) => format!("{} {}", http.method, without_query(&http.url)),
        _ => format!("{} {}", operation.name(), describe_target(&target_of(operation))),
    }
}

/// A query may contain a secret.
fn without_query(url: &str) -> &str {
    url.split('?').next().unwrap_or_default()
}

pub(super) fn describe_target(t: &Target) -> String {
    match (t.namespace.as_str(), t.name.as_str()) {
        ("", "") => t.kind.clone(),
        ("", name) => format!("{} {name}", t.kind),
        (namespace, "") => format!("{} in {namespace}", t.kind),
        (namespace, name) => format!("{} {namespace}/{name}", t.kind),
    }
}

/// Returns the target of an operation, as far as it is known.
fn target_of(operation: &Operation) -> Target {
    match operation {
        Operation::Get(target) => target.clone(),
        Operation::Delete(delete) => delete.target.clone(),
        Operation::Patch(patch) => patch.target.clone(),
        Operation::List(list) => Target::new(&list.api_version, &list.kind, &list.namespace, ""),
        Operation::Create(object) => {
            let text = |pointer| object.at(pointer).and_then(|value| value.as_str()).unwrap_or_default();
            Target::new(text("/apiVersion"), text("/kind"), text("/metadata/namespace"), text("/metadata/name"))
        }
        Operation::Http(_) | Operation::Event(_) => Target::default(),
    }
}
