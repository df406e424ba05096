//! Calls a handler as Gleaner does, in a plain `cargo test`: the verdict is checked as the host
//! checks it. It does not include the sandbox with its limits.
//!
//! ```
//! use gleaner::{testing, Decision, Error, Hook, Request, Verdict};
//!
//! fn protect(r: &Request) -> Result<Verdict, Error> {
//!     match r.object.metadata.label("protected") {
//!         "true" => Ok(Verdict::new(Decision::Deny).because("it has protected=true")),
//!         _ => Ok(Verdict::new(Decision::Abstain)),
//!     }
//! }
//!
//! let mut r = testing::request(Hook::Protect);
//! assert_eq!(testing::call(protect, &r)?.verdict.decision, Decision::Abstain);
//! r.object.metadata.labels.insert("protected".into(), "true".into());
//! assert_eq!(testing::call(protect, &r)?.verdict.decision, Decision::Deny);
//! # Ok::<(), Error>(())
//! ```

mod cluster;
mod finalize;

use std::fmt::Display;

use crate::guest::host;
use crate::{Error, Hook, Level, Metadata, Object, Owner, OwnerStatus, Policy, Reference, Request, Time, Verdict};

pub use cluster::FakeCluster;
pub use finalize::{error_result, finalize, respond_with, FinalizeResult};

/// The result of a call.
#[derive(Clone, Debug, PartialEq)]
pub struct CallResult {
    /// The verdict.
    pub verdict: Verdict,
    /// The module's log.
    pub log: Vec<(Level, String)>,
}

/// Evaluates a handler on a request. It does so twice, since the same request must have the same
/// verdict: the error reports a verdict that changes or that the host would not accept, or an error.
pub fn call<E: Display>(handler: impl Fn(&Request) -> Result<Verdict, E>, request: &Request) -> Result<CallResult, Error> {
    let evaluate = || {
        host::take_log();
        let verdict = handler(request).map_err(|err| Error::new(err.to_string()));
        verdict.map(|verdict| CallResult { verdict, log: host::take_log() })
    };
    let (first, second) = (evaluate()?, evaluate()?);
    if first.verdict != second.verdict {
        return Err(Error::new(format!(
            "the same request has two verdicts, {} and {}: a verdict must depend on the request only",
            first.verdict.to_json(),
            second.verdict.to_json()
        )));
    }
    first.verdict.check(request.hook)?;
    Ok(first)
}

/// Returns a default request: about a ConfigMap whose only owner is absent, or which is being
/// deleted, depending on the hook.
pub fn request(hook: Hook) -> Request {
    let time = Time::from_unix(1_767_355_200); // 2026-01-02T12:00:00Z
    let mut r = Request {
        hook,
        policy: Policy { name: "policy".to_string(), ..Policy::default() },
        time,
        attempt: 1,
        round: 1,
        idempotency_key: "key".to_string(),
        ..Request::default()
    };
    if hook == Hook::Validate {
        return r;
    }
    r.object = object("v1", "ConfigMap", "shop", "object");
    r.object.metadata.uid = "uid".to_string();
    r.object.metadata.resource_version = "7".to_string();
    match hook {
        Hook::Collect => {
            r.owners_absent_since = Some(time);
            r.owners = vec![Owner {
                reference: Reference {
                    api_version: "v1".to_string(),
                    kind: "ConfigMap".to_string(),
                    name: "owner".to_string(),
                    uid: "owner-uid".to_string(),
                    ..Reference::default()
                },
                status: OwnerStatus::Absent,
            }];
        }
        Hook::Propagate | Hook::Finalize => r.object.metadata.deletion_timestamp = Some(time),
        Hook::Protect | Hook::Retain | Hook::Validate => (), // not deleted yet
    }
    r
}

/// Returns an object for the results of intents.
pub fn object(api_version: &str, kind: &str, namespace: &str, name: &str) -> Object {
    Object {
        api_version: api_version.to_string(),
        kind: kind.to_string(),
        metadata: Metadata {
            name: name.to_string(),
            namespace: namespace.to_string(),
            uid: format!("uid-of-{name}"),
            resource_version: "1".to_string(),
            ..Metadata::default()
        },
        body: String::new(),
    }
}
