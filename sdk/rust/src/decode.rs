//! Reads requests. Unknown fields are skipped: managedFields can be larger than everything else.

use std::collections::BTreeMap;

use crate::json::Reader;
use crate::*;

type Read<T> = Result<T, Error>;

/// Reads the members of an object into the fields of a value, which is zero at first.
macro_rules! fields {
    ($r:ident, $into:ident, { $($name:literal => $read:expr),+ $(,)? }) => {
        $r.members(|$r, name| {
            match name {
                $($name => $read,)+
                _ => {
                    $r.raw()?;
                }
            }
            Ok(())
        })?
    };
}

pub(crate) fn request(text: &str) -> Read<Request> {
    let mut reader = Reader::new(text);
    let (r, mut q) = (&mut reader, Request::default());
    let mut has_hook = false;
    fields!(r, q, {
        "hook" => {
            q.hook = hook(r)?;
            has_hook = true;
        },
        "policy" => q.policy = policy(r)?,
        "object" => q.object = object(r)?,
        "owners" => q.owners = r.list(owner)?,
        "dependents" => q.dependents = dependents(r)?,
        "requestedPropagation" => q.requested_propagation = requested_propagation(r)?,
        "userInfo" => q.user_info = r.optional(user_info)?,
        "retention" => q.retention = r.optional(retention)?,
        "image" => q.image = r.optional(image)?,
        "ownersAbsentSince" => q.owners_absent_since = r.optional(time)?,
        "time" => q.time = time(r)?,
        "namespaceTerminating" => q.namespace_terminating = r.bool()?,
        "serviceAccountMissing" => q.service_account_missing = r.bool()?,
        "deadline" => q.deadline = r.optional(time)?,
        "attempt" => q.attempt = r.integer()?,
        "round" => q.round = r.integer()?,
        "idempotencyKey" => q.idempotency_key = r.text()?,
        "state" => q.state = Some(r.value(0)?),
        "results" => q.results = map(r, result)?,
        "withheld" => q.withheld = r.list(Reader::text)?,
    });
    reader.end()?;
    if !has_hook {
        return Err("it has no hook".into());
    }
    Ok(q)
}

/// Reads an object from the JSON text of one.
#[cfg(not(target_arch = "wasm32"))] // for tests
pub(crate) fn object_from(text: &str) -> Read<Object> {
    object(&mut Reader::new(text))
}

fn map<'a, T>(r: &mut Reader<'a>, mut f: impl FnMut(&mut Reader<'a>) -> Read<T>) -> Read<BTreeMap<String, T>> {
    let mut all = BTreeMap::new();
    r.members(|r, name| {
        all.insert(name.to_string(), f(r)?);
        Ok(())
    })?;
    Ok(all)
}

fn time(r: &mut Reader) -> Read<Time> {
    Time::parse(&r.text()?)
}

fn hook(r: &mut Reader) -> Read<Hook> {
    let name = r.text()?;
    Hook::ALL.into_iter().find(|hook| hook.name() == name).ok_or_else(|| Error::new(format!("there is no hook {name:?}")))
}

fn requested_propagation(r: &mut Reader) -> Read<RequestedPropagation> {
    Ok(match r.text()?.as_str() {
        "Foreground" => RequestedPropagation::Foreground,
        "Orphan" => RequestedPropagation::Orphan,
        _ => RequestedPropagation::Unspecified,
    })
}

fn owner_status(r: &mut Reader) -> Read<OwnerStatus> {
    Ok(match r.text()?.as_str() {
        "Present" => OwnerStatus::Present,
        "Absent" => OwnerStatus::Absent,
        "Waiting" => OwnerStatus::Waiting,
        "Orphaning" => OwnerStatus::Orphaning,
        "Unresolvable" => OwnerStatus::Unresolvable,
        _ => OwnerStatus::Unknown,
    })
}

fn policy(r: &mut Reader) -> Read<Policy> {
    let mut p = Policy::default();
    fields!(r, p, {
        "name" => p.name = r.text()?,
        "namespace" => p.namespace = r.text()?,
        "settings" => p.settings = r.raw()?.to_string(),
    });
    Ok(p)
}

fn object(r: &mut Reader) -> Read<Object> {
    let body = r.raw()?;
    let mut o = Object::default();
    if body == "{}" || body == "null" {
        return Ok(o);
    }
    let r = &mut Reader::new(body);
    fields!(r, o, {
        "apiVersion" => o.api_version = r.text()?,
        "kind" => o.kind = r.text()?,
        "metadata" => o.metadata = metadata(r)?,
    });
    o.body = body.to_string();
    Ok(o)
}

fn metadata(r: &mut Reader) -> Read<Metadata> {
    let mut m = Metadata::default();
    fields!(r, m, {
        "name" => m.name = r.text()?,
        "namespace" => m.namespace = r.text()?,
        "uid" => m.uid = r.text()?,
        "resourceVersion" => m.resource_version = r.text()?,
        "generation" => m.generation = r.integer()?,
        "creationTimestamp" => m.creation_timestamp = r.optional(time)?,
        "deletionTimestamp" => m.deletion_timestamp = r.optional(time)?,
        "labels" => m.labels = map(r, Reader::text)?,
        "annotations" => m.annotations = map(r, Reader::text)?,
        "ownerReferences" => m.owner_references = r.list(reference)?,
        "finalizers" => m.finalizers = r.list(Reader::text)?,
    });
    Ok(m)
}

fn reference(r: &mut Reader) -> Read<Reference> {
    let mut o = Reference::default();
    fields!(r, o, {
        "apiVersion" => o.api_version = r.text()?,
        "kind" => o.kind = r.text()?,
        "name" => o.name = r.text()?,
        "uid" => o.uid = r.text()?,
        "controller" => o.controller = r.optional(Reader::bool)?,
        "blockOwnerDeletion" => o.block_owner_deletion = r.optional(Reader::bool)?,
    });
    Ok(o)
}

fn owner(r: &mut Reader) -> Read<Owner> {
    let mut o = Owner::default();
    fields!(r, o, {
        "reference" => o.reference = reference(r)?,
        "status" => o.status = owner_status(r)?,
    });
    Ok(o)
}

fn dependents(r: &mut Reader) -> Read<Dependents> {
    let mut d = Dependents::default();
    fields!(r, d, {
        "count" => d.count = r.integer()?,
        "byKind" => d.by_kind = r.list(kind_count)?,
    });
    Ok(d)
}

fn kind_count(r: &mut Reader) -> Read<KindCount> {
    let mut k = KindCount::default();
    fields!(r, k, {
        "group" => k.group = r.text()?,
        "kind" => k.kind = r.text()?,
        "count" => k.count = r.integer()?,
    });
    Ok(k)
}

fn user_info(r: &mut Reader) -> Read<UserInfo> {
    let mut u = UserInfo::default();
    fields!(r, u, {
        "username" => u.username = r.text()?,
        "groups" => u.groups = r.list(Reader::text)?,
    });
    Ok(u)
}

fn retention(r: &mut Reader) -> Read<Retention> {
    let mut t = Retention::default();
    fields!(r, t, {
        "policy" => t.policy = r.text()?,
        "namespace" => t.namespace = r.text()?,
        "limit" => t.limit = r.text()?,
    });
    Ok(t)
}

fn image(r: &mut Reader) -> Read<Image> {
    let mut i = Image::default();
    fields!(r, i, {
        "id" => i.id = r.text()?,
        "names" => i.names = r.list(Reader::text)?,
        "labels" => i.labels = map(r, Reader::text)?,
        "sizeBytes" => i.size_bytes = r.integer()?,
        "firstSeen" => i.first_seen = time(r)?,
        "lastUsed" => i.last_used = r.optional(time)?,
        "workloads" => i.workloads = r.list(workload)?,
    });
    Ok(i)
}

fn workload(r: &mut Reader) -> Read<Workload> {
    let mut w = Workload::default();
    fields!(r, w, {
        "apiVersion" => w.api_version = r.text()?,
        "kind" => w.kind = r.text()?,
        "namespace" => w.namespace = r.text()?,
        "name" => w.name = r.text()?,
    });
    Ok(w)
}

fn result(r: &mut Reader) -> Read<IntentResult> {
    let mut i = IntentResult::default();
    fields!(r, i, {
        "object" => i.object = r.optional(object)?,
        "list" => i.list = r.optional(list)?,
        "http" => i.http = r.optional(http)?,
        "error" => i.error = r.optional(result_error)?,
    });
    Ok(i)
}

fn list(r: &mut Reader) -> Read<ListResult> {
    let mut l = ListResult::default();
    fields!(r, l, {
        "items" => l.items = r.list(object)?,
        "continue" => l.continue_token = r.text()?,
    });
    Ok(l)
}

fn http(r: &mut Reader) -> Read<HttpResult> {
    let mut h = HttpResult::default();
    fields!(r, h, {
        "status" => h.status = r.integer()?,
        "headers" => h.headers = map(r, Reader::text)?,
        "body" => h.body = r.text()?,
        "bodyBase64" => h.body_base64 = r.text()?,
        "truncated" => h.truncated = r.bool()?,
    });
    Ok(h)
}

fn result_error(r: &mut Reader) -> Read<ResultError> {
    let mut e = ResultError { reason: ErrorReason::Other(String::new()), message: String::new() };
    fields!(r, e, {
        "reason" => e.reason = ErrorReason::named(r.text()?),
        "message" => e.message = r.text()?,
    });
    Ok(e)
}
