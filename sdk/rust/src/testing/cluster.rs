use std::collections::BTreeMap;

use super::error_result;
use crate::{DeleteIntent, ErrorReason, Intent, IntentResult, ListIntent, ListResult, Object, Operation, Target};

/// A set of objects for [`finalize`](super::finalize) that intents read and change. It is empty at
/// first. It does not support selectors, RBAC or defaults, and its operations take no time.
#[derive(Clone, Debug, Default)]
pub struct FakeCluster {
    objects: BTreeMap<Target, Object>,
}

impl FakeCluster {
    /// Adds an object, or replaces the one with its name.
    pub fn add(&mut self, o: Object) {
        self.objects.insert(Target::of(&o), o);
    }

    /// Returns the objects, sorted by API version, kind, namespace and name.
    pub fn objects(&self) -> impl Iterator<Item = &Object> {
        self.objects.values()
    }

    /// Carries out an intent. It does not support patches and HTTP: their results are Unavailable,
    /// unless the test wraps it.
    pub fn execute(&mut self, intent: &Intent) -> IntentResult {
        match &intent.operation {
            Operation::Get(target) => match self.objects.get(target) {
                Some(o) => IntentResult { object: Some(o.clone()), ..IntentResult::default() },
                None => not_found(target),
            },
            Operation::List(list) => self.list(list),
            Operation::Create(object) => match crate::decode::object_from(&object.to_string()) {
                Err(err) => error_result(ErrorReason::Invalid, &err.to_string()),
                Ok(o) if self.objects.contains_key(&Target::of(&o)) => {
                    error_result(ErrorReason::AlreadyExists, &format!("{} {} already exists", o.kind, o.metadata.name))
                }
                Ok(o) => {
                    self.add(o.clone());
                    IntentResult { object: Some(o), ..IntentResult::default() }
                }
            },
            Operation::Delete(delete) => self.delete(delete),
            Operation::Event(_) => IntentResult::default(),
            Operation::Patch(_) | Operation::Http(_) => {
                error_result(ErrorReason::Unavailable, "patches and HTTP are not supported")
            }
        }
    }

    /// Returns a page. Its token is the last name, so that the next page is right even if objects of
    /// this page are deleted meanwhile.
    fn list(&self, intent: &ListIntent) -> IntentResult {
        let limit = if intent.limit == 0 { crate::limits::MAX_LIST_LIMIT } else { intent.limit } as usize;
        let key = |o: &Object| format!("{}/{}", o.metadata.namespace, o.metadata.name);
        let mut found = self.objects.values().filter(|o| {
            o.api_version == intent.api_version
                && o.kind == intent.kind
                && (intent.namespace.is_empty() || o.metadata.namespace == intent.namespace)
                && (intent.continue_token.is_empty() || key(o) > intent.continue_token)
        });
        let mut list = ListResult { items: found.by_ref().take(limit).cloned().collect(), ..ListResult::default() };
        if found.next().is_some() {
            list.continue_token = list.items.last().map(key).unwrap_or_default();
        }
        IntentResult { list: Some(list), ..IntentResult::default() }
    }

    fn delete(&mut self, intent: &DeleteIntent) -> IntentResult {
        let m = match self.objects.get(&intent.target) {
            None => return not_found(&intent.target),
            Some(o) => &o.metadata,
        };
        if m.uid != intent.uid || !intent.resource_version.is_empty() && m.resource_version != intent.resource_version {
            let message = format!("it has uid {} and resourceVersion {:?}", m.uid, m.resource_version);
            return error_result(ErrorReason::Conflict, &message);
        }
        self.objects.remove(&intent.target);
        IntentResult::default()
    }
}

fn not_found(target: &Target) -> IntentResult {
    error_result(ErrorReason::NotFound, &format!("not found: {} {}", target.kind, target.name))
}
