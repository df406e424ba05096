use std::collections::BTreeMap;

use crate::json::Value;
use crate::{Error, IntentResult, Settings, Time};

/// The input of one evaluation, for one object. The verdict depends on nothing else: the same
/// request gives the same verdict.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Request {
    /// The hook that is evaluated.
    pub hook: Hook,
    /// The resource that the module is evaluated for.
    pub policy: Policy,
    /// The object that the evaluation is about. Validate has none.
    pub object: Object,
    /// The object's owner references, each with the status of its owner.
    pub owners: Vec<Owner>,
    /// How many objects refer to the object as their owner.
    pub dependents: Dependents,
    /// The propagation policy that the client requested when it deleted the object.
    pub requested_propagation: RequestedPropagation,
    /// The user who requests the deletion. With protect only.
    pub user_info: Option<UserInfo>,
    /// Which limit removes the object. With retain only.
    pub retention: Option<Retention>,
    /// The container image that a NodeRetentionPolicy removes from the object, which is the Node.
    /// With retain only.
    pub image: Option<Image>,
    /// When the object was first observed without an owner.
    pub owners_absent_since: Option<Time>,
    /// The time of the evaluation. A module has no other clock.
    pub time: Time,
    /// Whether the object's namespace is being deleted. Nothing can be created in it.
    pub namespace_terminating: bool,
    /// Whether the service account that carries out intents does not exist. All intents may then be
    /// Forbidden.
    pub service_account_missing: bool,
    /// The time until which a finalizer may keep the object. None: no limit.
    pub deadline: Option<Time>,
    /// The number of the attempt, starting at 1. It increases after a wait and after a failure, and
    /// the round then starts at 1 again.
    pub attempt: i64,
    /// The number of the evaluation within an attempt, starting at 1. It increases after each
    /// verdict with Act.
    pub round: i64,
    /// The same in all attempts and rounds for an object, for systems that deduplicate requests by
    /// such a key.
    pub idempotency_key: String,
    /// The state of the last verdict that had one.
    pub state: Option<Value>,
    /// The results of the intents of all rounds of this attempt, by the intent's id. If an id was
    /// used again, it is the last result.
    pub results: BTreeMap<String, IntentResult>,
    /// The fields that this request lacks because of needs or missing permissions, such as
    /// "object".
    pub withheld: Vec<String>,
}

impl Request {
    /// Parses a request.
    pub fn parse(text: &str) -> Result<Request, Error> {
        crate::decode::request(text).map_err(|err| Error::new(format!("decode request: {err}")))
    }

    /// Returns the settings of the policy, to be read field by field.
    pub fn settings(&self) -> Result<Settings, Error> {
        Settings::parse(&self.policy.settings)
    }
}

/// The situation in which a module is evaluated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Hook {
    /// An owner is being deleted, and the client's propagation policy is neither Foreground nor
    /// Orphan.
    Propagate,
    /// An object has lost its last owner.
    Collect,
    /// A user requests the deletion of an object, and nothing is changed yet.
    Protect,
    /// A limit of a retention policy removes an object.
    Retain,
    /// An object that has the module's finalizer is being deleted.
    Finalize,
    /// Settings for the module are applied. The request has no object. It is the default, since its
    /// decisions delete nothing.
    #[default]
    Validate,
}

impl Hook {
    /// All hooks.
    pub const ALL: [Hook; 6] =
        [Hook::Propagate, Hook::Collect, Hook::Protect, Hook::Retain, Hook::Finalize, Hook::Validate];

    /// Returns the name of the hook.
    pub const fn name(self) -> &'static str {
        match self {
            Hook::Propagate => "propagate",
            Hook::Collect => "collect",
            Hook::Protect => "protect",
            Hook::Retain => "retain",
            Hook::Finalize => "finalize",
            Hook::Validate => "validate",
        }
    }
}

/// The resource that a module is evaluated for: a policy or a finalizer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// The name of the resource.
    pub name: String,
    /// Empty: a cluster-scoped resource.
    pub namespace: String,
    /// The text of a JSON object, as in the resource; see [`Request::settings`].
    pub settings: String,
}

/// A Kubernetes object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Object {
    /// Such as apps/v1.
    pub api_version: String,
    /// Such as Deployment.
    pub kind: String,
    /// What all objects have.
    pub metadata: Metadata,
    /// The JSON text of the whole object, which [`Object::value`] parses. Empty: the object has
    /// what is in the other fields.
    pub body: String,
}

impl Object {
    /// Returns the group of the object's API version; empty: the core group.
    pub fn group(&self) -> &str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }

    /// Reports whether the object is of a kind.
    pub fn is(&self, group: &str, kind: &str) -> bool {
        self.kind == kind && self.group() == group
    }

    /// Returns the whole object.
    pub fn value(&self) -> Result<Value, Error> {
        if self.body.is_empty() {
            return Ok(crate::encode::object(self));
        }
        Value::parse(&self.body)
            .map_err(|err| Error::new(format!("decode {} {}: {err}", self.kind, self.metadata.name)))
    }
}

/// The metadata that every object has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metadata {
    /// The name.
    pub name: String,
    /// Empty: a cluster-scoped object.
    pub namespace: String,
    /// The UID.
    pub uid: String,
    /// The resource version.
    pub resource_version: String,
    /// The generation, or 0.
    pub generation: i64,
    /// When the object was created.
    pub creation_timestamp: Option<Time>,
    /// When the deletion of the object was requested. None: it is not being deleted.
    pub deletion_timestamp: Option<Time>,
    /// The labels.
    pub labels: BTreeMap<String, String>,
    /// The annotations.
    pub annotations: BTreeMap<String, String>,
    /// The owner references.
    pub owner_references: Vec<Reference>,
    /// The finalizers.
    pub finalizers: Vec<String>,
}

impl Metadata {
    /// Returns the value of a label; empty if the object does not have it.
    pub fn label(&self, name: &str) -> &str {
        self.labels.get(name).map_or("", String::as_str)
    }

    /// Returns the value of an annotation; empty if the object does not have it.
    pub fn annotation(&self, name: &str) -> &str {
        self.annotations.get(name).map_or("", String::as_str)
    }
}

/// An owner reference.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reference {
    /// The API version of the owner.
    pub api_version: String,
    /// The kind of the owner.
    pub kind: String,
    /// The name of the owner.
    pub name: String,
    /// The UID of the owner.
    pub uid: String,
    /// Whether the owner is the controller; None: not set.
    pub controller: Option<bool>,
    /// Whether the object blocks the deletion of the owner in the foreground; None: not set.
    pub block_owner_deletion: Option<bool>,
}

/// An owner reference with the status of its owner. It does not include the owner itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    /// The owner reference.
    pub reference: Reference,
    /// The status of the owner.
    pub status: OwnerStatus,
}

/// The status of an owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OwnerStatus {
    /// It could not be read. Never treat it as absent.
    #[default]
    Unknown,
    /// It exists.
    Present,
    /// It does not exist.
    Absent,
    /// It is being deleted in the foreground.
    Waiting,
    /// It is being deleted, and leaves its dependents.
    Orphaning,
    /// The reference can't be resolved.
    Unresolvable,
}

/// The propagation policy that a client requested.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum RequestedPropagation {
    /// Background or none, which can't be told apart.
    #[default]
    Unspecified,
    /// Foreground.
    Foreground,
    /// Orphan.
    Orphan,
}

/// Counts the objects that refer to the object as their owner.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dependents {
    /// The number of all of them.
    pub count: i64,
    /// Sorted by group and kind; empty if it is not needed.
    pub by_kind: Vec<KindCount>,
}

/// The number of dependents of a kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KindCount {
    /// Empty: the core group.
    pub group: String,
    /// The kind.
    pub kind: String,
    /// Their number.
    pub count: i64,
}

/// A user, as the API server has authenticated it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserInfo {
    /// The name of the user.
    pub username: String,
    /// The groups of the user.
    pub groups: Vec<String>,
}

/// A limit of a retention policy that removes an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// The name of the retention policy.
    pub policy: String,
    /// The namespace of the retention policy; empty: it is cluster-scoped.
    pub namespace: String,
    /// The limit, as in the status of retention policies: KeepLast, MaxTotal, MaxAge, Expired,
    /// MaxUnused or Usage.
    pub limit: String,
}

/// A container image on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    /// The id of the image.
    pub id: String,
    /// By tag and by digest.
    pub names: Vec<String>,
    /// In the configuration of the image.
    pub labels: BTreeMap<String, String>,
    /// As the container runtime reports it.
    pub size_bytes: i64,
    /// On the node.
    pub first_seen: Time,
    /// None: it was never seen in use.
    pub last_used: Option<Time>,
    /// Workloads that have the image in the template of their Pods, anywhere in the cluster.
    pub workloads: Vec<Workload>,
}

/// An object with a template of Pods, such as a Deployment or a CronJob.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Workload {
    /// Such as apps/v1.
    pub api_version: String,
    /// Such as Deployment.
    pub kind: String,
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
}
