//! Writes verdicts, and the requests of tests. Empty fields are left out.

use std::collections::BTreeMap;

use crate::json::{Map, Value};
use crate::*;

/// The members of an object. Each method leaves an empty field out.
#[derive(Default)]
struct Members(Map);

impl Members {
    fn set(mut self, name: &str, value: impl Into<Value>) -> Members {
        self.0.insert(name.to_string(), value.into());
        self
    }

    fn text(self, name: &str, text: &str) -> Members {
        if text.is_empty() {
            return self;
        }
        self.set(name, text)
    }

    fn maybe<T: Into<Value>>(self, name: &str, value: Option<T>) -> Members {
        match value {
            Some(value) => self.set(name, value),
            None => self,
        }
    }

    fn when(self, name: &str, b: bool) -> Members {
        self.maybe(name, if b { Some(true) } else { None })
    }

    fn list<T>(self, name: &str, items: &[T], f: impl Fn(&T) -> Value) -> Members {
        if items.is_empty() {
            return self;
        }
        self.set(name, items.iter().map(f).collect::<Vec<_>>())
    }

    fn map(self, name: &str, map: &BTreeMap<String, String>) -> Members {
        if map.is_empty() {
            return self;
        }
        self.set(name, map.iter().map(|(k, v)| (k.clone(), v.as_str().into())).collect::<Map>())
    }

    fn target(self, t: &Target) -> Members {
        self.set("apiVersion", t.api_version.as_str()).set("kind", t.kind.as_str()).text("namespace", &t.namespace).set("name", t.name.as_str())
    }

    fn done(self) -> Value {
        Value::Object(self.0)
    }
}

fn object_of() -> Members {
    Members::default()
}

pub(crate) fn verdict(v: &Verdict) -> Value {
    object_of()
        .set("decision", v.decision.name())
        .maybe("propagation", v.propagation.map(Propagation::name))
        .maybe("gracePeriodSeconds", v.grace_period_seconds)
        .when("inheritGracePeriod", v.inherit_grace_period)
        .maybe("delay", v.delay.map(duration::format))
        .maybe("after", v.after.map(duration::format))
        .list("dependents", &v.dependents, |d| {
            object_of().text("group", &d.group).set("kind", d.kind.as_str()).set("decision", d.decision.name()).done()
        })
        .list("order", &v.order, |wave| wave.iter().map(group_kind).collect::<Vec<_>>().into())
        .list("intents", &v.intents, intent)
        .maybe("state", v.state.clone())
        .text("reason", &v.reason)
        .done()
}

fn group_kind(k: &GroupKind) -> Value {
    object_of().text("group", &k.group).set("kind", k.kind.as_str()).done()
}

fn intent(i: &Intent) -> Value {
    let fields = match &i.operation {
        Operation::Get(target) => object_of().target(target),
        Operation::List(list) => object_of()
            .set("apiVersion", list.api_version.as_str())
            .set("kind", list.kind.as_str())
            .text("namespace", &list.namespace)
            .text("labelSelector", &list.label_selector)
            .text("fieldSelector", &list.field_selector)
            .maybe("limit", Some(list.limit).filter(|&limit| limit != 0))
            .text("continue", &list.continue_token),
        Operation::Create(object) => object_of().set("object", object.clone()),
        Operation::Delete(delete) => object_of()
            .target(&delete.target)
            .set("uid", delete.uid.as_str())
            .text("resourceVersion", &delete.resource_version)
            .maybe("propagation", delete.propagation.map(Propagation::name))
            .maybe("gracePeriodSeconds", delete.grace_period_seconds),
        Operation::Patch(patch) => object_of()
            .target(&patch.target)
            .set("type", match patch.patch_type {
                PatchType::Merge => "merge",
                PatchType::Json => "json",
                PatchType::Apply => "apply",
            })
            .set("patch", patch.patch.clone()),
        Operation::Http(http) => object_of()
            .set("method", http.method.as_str())
            .set("url", http.url.as_str())
            .map("headers", &http.headers)
            .text("body", &http.body),
        Operation::Event(event) => object_of()
            .set("type", match event.event_type {
                EventType::Normal => "Normal",
                EventType::Warning => "Warning",
            })
            .set("reason", event.reason.as_str())
            .set("message", event.message.as_str()),
    };
    object_of().set("id", i.id.as_str()).set(i.operation.name(), fields.done()).done()
}

/// Writes an object that has no body.
pub(crate) fn object(o: &Object) -> Value {
    let m = &o.metadata;
    let metadata = object_of()
        .set("name", m.name.as_str())
        .text("namespace", &m.namespace)
        .set("uid", m.uid.as_str())
        .set("resourceVersion", m.resource_version.as_str())
        .maybe("generation", Some(m.generation).filter(|&g| g != 0))
        .maybe("creationTimestamp", m.creation_timestamp.map(|t| t.to_string()))
        .maybe("deletionTimestamp", m.deletion_timestamp.map(|t| t.to_string()))
        .map("labels", &m.labels)
        .map("annotations", &m.annotations)
        .list("ownerReferences", &m.owner_references, |r| {
            object_of()
                .set("apiVersion", r.api_version.as_str())
                .set("kind", r.kind.as_str())
                .set("name", r.name.as_str())
                .set("uid", r.uid.as_str())
                .maybe("controller", r.controller)
                .maybe("blockOwnerDeletion", r.block_owner_deletion)
                .done()
        })
        .list("finalizers", &m.finalizers, |name| name.as_str().into());
    object_of().set("apiVersion", o.api_version.as_str()).set("kind", o.kind.as_str()).set("metadata", metadata.done()).done()
}
