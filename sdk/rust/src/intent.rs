use std::collections::BTreeMap;

use crate::json::Value;
use crate::{Object, Propagation};

/// An operation that a module asks the host to carry out. The host carries out an intent only if a
/// grant covers it, with the permissions of the service account in the policy. The host adds
/// credentials; the module does not see them.
#[derive(Clone, Debug, PartialEq)]
pub struct Intent {
    /// Identifies the intent's result: up to 63 letters, digits, '-', '_' and '.', unique in a
    /// verdict.
    pub id: String,
    /// What to do.
    pub operation: Operation,
}

/// What an intent does.
#[derive(Clone, Debug, PartialEq)]
pub enum Operation {
    /// Gets an object. Its result has the object.
    Get(Target),
    /// Lists objects of a kind. Its result has a list.
    List(ListIntent),
    /// Creates an object with a name: if an evaluation is repeated, the second create has the
    /// result AlreadyExists. Its result has the object.
    Create(Value),
    /// Deletes an object, if it has the given UID.
    Delete(DeleteIntent),
    /// Patches an object. Its result has the object.
    Patch(PatchIntent),
    /// Sends an HTTP request. Its result has the response, with any status code.
    Http(HttpIntent),
    /// Records a Kubernetes event about the object.
    Event(EventIntent),
}

impl Operation {
    /// Returns the name of the operation in the ABI.
    pub fn name(&self) -> &'static str {
        match self {
            Operation::Get(_) => "get",
            Operation::List(_) => "list",
            Operation::Create(_) => "create",
            Operation::Delete(_) => "delete",
            Operation::Patch(_) => "patch",
            Operation::Http(_) => "http",
            Operation::Event(_) => "event",
        }
    }

    /// Reports whether the operation changes nothing in the cluster, and sends nothing out of it.
    pub fn is_read_only(&self) -> bool {
        matches!(self, Operation::Get(_) | Operation::List(_))
    }
}

/// The object that an intent refers to.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    /// Such as apps/v1.
    pub api_version: String,
    /// Such as Deployment.
    pub kind: String,
    /// Empty: a cluster-scoped object.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl Target {
    /// Returns a target. An empty namespace is that of a cluster-scoped object.
    pub fn new(
        api_version: impl Into<String>,
        kind: impl Into<String>,
        namespace: impl Into<String>,
        name: impl Into<String>,
    ) -> Target {
        Target { api_version: api_version.into(), kind: kind.into(), namespace: namespace.into(), name: name.into() }
    }

    /// Returns the target for an object.
    pub fn of(o: &Object) -> Target {
        Target::new(&o.api_version, &o.kind, &o.metadata.namespace, &o.metadata.name)
    }
}

/// Lists objects of a kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListIntent {
    /// Such as apps/v1.
    pub api_version: String,
    /// Such as Deployment.
    pub kind: String,
    /// Empty: all namespaces.
    pub namespace: String,
    /// Such as app=web; empty: all objects.
    pub label_selector: String,
    /// Such as metadata.name=web; empty: all objects.
    pub field_selector: String,
    /// From 1 to [`MAX_LIST_LIMIT`](crate::limits::MAX_LIST_LIMIT), which 0 means, too.
    pub limit: u32,
    /// From the previous result, for the next page.
    pub continue_token: String,
}

/// Deletes an object, if it has the given UID.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeleteIntent {
    /// The object.
    pub target: Target,
    /// Precondition.
    pub uid: String,
    /// Precondition, if not empty.
    pub resource_version: String,
    /// The propagation policy; None: the choice of the API server.
    pub propagation: Option<Propagation>,
    /// The grace period; None: that of the object.
    pub grace_period_seconds: Option<i64>,
}

impl DeleteIntent {
    /// Returns the intent to delete an object that was read, and no other object with its name.
    pub fn of(o: &Object) -> DeleteIntent {
        DeleteIntent { target: Target::of(o), uid: o.metadata.uid.clone(), ..DeleteIntent::default() }
    }
}

/// The format of a patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PatchType {
    /// A merge patch, which is an object.
    Merge,
    /// A JSON patch, which is an array of operations.
    Json,
    /// Server-side apply, with a field manager for the policy.
    Apply,
}

/// Patches an object. To patch the object only if it is unchanged, set metadata.uid or
/// metadata.resourceVersion in the patch.
#[derive(Clone, Debug, PartialEq)]
pub struct PatchIntent {
    /// The object.
    pub target: Target,
    /// The format of the patch.
    pub patch_type: PatchType,
    /// The patch.
    pub patch: Value,
}

/// Sends an HTTP request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HttpIntent {
    /// GET, HEAD, POST, PUT, PATCH, DELETE or OPTIONS.
    pub method: String,
    /// Http or https, without user and fragment.
    pub url: String,
    /// The headers. The host adds credentials.
    pub headers: BTreeMap<String, String>,
    /// The body.
    pub body: String,
}

impl HttpIntent {
    /// Returns a request without headers and body.
    pub fn new(method: impl Into<String>, url: impl Into<String>) -> HttpIntent {
        HttpIntent { method: method.into(), url: url.into(), ..HttpIntent::default() }
    }
}

/// The type of a Kubernetes event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventType {
    /// Information.
    Normal,
    /// A warning.
    Warning,
}

/// Records a Kubernetes event about the object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventIntent {
    /// The type of the event.
    pub event_type: EventType,
    /// In CamelCase, such as BucketNotEmpty.
    pub reason: String,
    /// At most [`MAX_REASON_BYTES`](crate::limits::MAX_REASON_BYTES).
    pub message: String,
}

/// The result of an intent: an error, or the field for its operation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct IntentResult {
    /// The object.
    pub object: Option<Object>,
    /// A page of objects.
    pub list: Option<ListResult>,
    /// The response.
    pub http: Option<HttpResult>,
    /// Why the intent was not carried out.
    pub error: Option<ResultError>,
}

/// A page of objects.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ListResult {
    /// The objects.
    pub items: Vec<Object>,
    /// Empty: this was the last page.
    pub continue_token: String,
}

/// The response to an HTTP request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HttpResult {
    /// The status code.
    pub status: i64,
    /// By canonical name, such as Content-Type; several values are separated by commas.
    pub headers: BTreeMap<String, String>,
    /// The response's body. A body that is not UTF-8 text is in body_base64.
    pub body: String,
    /// The body in Base64, if it is not UTF-8 text.
    pub body_base64: String,
    /// The body exceeded the host's limit.
    pub truncated: bool,
}

/// The reason why an intent was not carried out. After a temporary one (Conflict, Unavailable), do
/// not fail: Wait, or Act again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResultError {
    /// The reason.
    pub reason: ErrorReason,
    /// The message, for people.
    pub message: String,
}

/// The reason of a [`ResultError`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ErrorReason {
    /// No grant covers the intent.
    NotGranted,
    /// The service account lacks the permission.
    Forbidden,
    /// It does not exist.
    NotFound,
    /// It exists already.
    AlreadyExists,
    /// The uid or resourceVersion does not match.
    Conflict,
    /// The continue token has expired: list from the start.
    Expired,
    /// The API server rejected it, or does not serve the type.
    Invalid,
    /// There was no response, or not in time.
    Unavailable,
    /// A reason of a later version. It proves nothing.
    Other(String),
}

impl ErrorReason {
    /// Returns the name of the reason.
    pub fn name(&self) -> &str {
        match self {
            ErrorReason::NotGranted => "NotGranted",
            ErrorReason::Forbidden => "Forbidden",
            ErrorReason::NotFound => "NotFound",
            ErrorReason::AlreadyExists => "AlreadyExists",
            ErrorReason::Conflict => "Conflict",
            ErrorReason::Expired => "Expired",
            ErrorReason::Invalid => "Invalid",
            ErrorReason::Unavailable => "Unavailable",
            ErrorReason::Other(name) => name,
        }
    }

    /// Returns the reason with a name.
    pub(crate) fn named(name: String) -> ErrorReason {
        use ErrorReason::*;
        for reason in [NotGranted, Forbidden, NotFound, AlreadyExists, Conflict, Expired, Invalid, Unavailable] {
            if reason.name() == name {
                return reason;
            }
        }
        Other(name)
    }
}
