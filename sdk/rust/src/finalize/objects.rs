use std::time::Duration;

use super::errors::{describe, describe_target};
use super::{truncate, Step, Steps};
use crate::json::Value;
use crate::{
    limits, DeleteIntent, ErrorReason, EventIntent, EventType, Intent, ListIntent, ListResult, Object, Operation,
    PatchIntent, Target,
};

impl<'r> Steps<'r> {
    /// Gets an object; None if it does not exist.
    pub fn get(&mut self, id: &str, target: Target) -> Step<Option<Object>> {
        self.object(id, Operation::Get(target))
    }

    /// Patches an object; None if it does not exist.
    pub fn patch(&mut self, id: &str, patch: PatchIntent) -> Step<Option<Object>> {
        self.object(id, Operation::Patch(patch))
    }

    /// A step that returns an object which may not exist.
    fn object(&mut self, id: &str, operation: Operation) -> Step<Option<Object>> {
        let result = self.perform(id, operation.clone())?;
        match (&result.error, &result.object) {
            (Some(err), _) if err.reason == ErrorReason::NotFound => Ok(None),
            (Some(err), _) => self.handle_error(&operation, err),
            (None, Some(object)) => Ok(Some(object.clone())),
            (None, None) => self.wait(Duration::ZERO, format!("{}: the result has no object", describe(&operation))),
        }
    }

    /// Creates an object, and reports whether it was created. It returns false if an object with the
    /// name exists: steps can be repeated. The name must be the same each time.
    pub fn create(&mut self, id: &str, object: Value) -> Step<bool> {
        let operation = Operation::Create(object);
        let result = self.perform(id, operation.clone())?;
        match &result.error {
            None => Ok(true),
            Some(err) if err.reason == ErrorReason::AlreadyExists => Ok(false),
            Some(err) => self.handle_error(&operation, err),
        }
    }

    /// Deletes an object that an earlier step has read, and no other object with its name. It is
    /// finished when the API server has accepted the delete, or when the object does not exist; see
    /// [`Steps::wait_gone`].
    pub fn delete(&mut self, id: &str, object: &Object) -> Step<()> {
        self.delete_with(id, DeleteIntent::of(object))
    }

    /// Is [`Steps::delete`] with all fields of a DeleteIntent.
    pub fn delete_with(&mut self, id: &str, intent: DeleteIntent) -> Step<()> {
        self.check_running()?;
        let operation = Operation::Delete(intent.clone());
        if intent.uid.is_empty() {
            return self.report_bug(format!(
                "{}: it has no UID: get or list the object first, and pass the result",
                describe(&operation)
            ));
        }
        let result = self.perform(id, operation.clone())?;
        match &result.error {
            None => Ok(()),
            Some(err) if err.reason == ErrorReason::NotFound => Ok(()),
            Some(err) if err.reason == ErrorReason::Conflict && self.is_gone(&format!("{id}.look"), &intent.target, &intent.uid)? => Ok(()),
            Some(err) => self.handle_error(&operation, err),
        }
    }

    /// Waits until an object does not exist, or another has its name. It checks at the given
    /// interval.
    pub fn wait_gone(&mut self, id: &str, object: &Object, every: Duration) -> Step<()> {
        let target = Target::of(object);
        let gone = self.is_gone(id, &target, &object.metadata.uid)?;
        self.until(gone, every, format!("{} still exists", describe_target(&target)))
    }

    /// Reports whether no object has this UID. A delete with a conflict does not prove it.
    fn is_gone(&mut self, id: &str, target: &Target, uid: &str) -> Step<bool> {
        Ok(self.get(id, target.clone())?.map_or(true, |o| o.metadata.uid != uid))
    }

    /// Lists one page of objects. See [`Steps::each`] for all of them.
    pub fn list(&mut self, id: &str, intent: ListIntent) -> Step<ListResult> {
        let operation = Operation::List(intent);
        let result = self.perform(id, operation.clone())?;
        match (&result.error, &result.list) {
            (Some(err), _) => self.handle_error(&operation, err),
            (None, Some(list)) => Ok(list.clone()),
            (None, None) => self.wait(Duration::ZERO, format!("{}: the result has no list", describe(&operation))),
        }
    }

    /// Records a Kubernetes event about the object. It does not start a round while other steps have
    /// intents, and its result is ignored.
    pub fn event(&mut self, id: &str, mut event: EventIntent) -> Step<()> {
        self.check_running()?;
        event.message = truncate(&event.message, limits::MAX_REASON_BYTES);
        let id = self.use_id(id)?;
        if !self.req.results.contains_key(&id) && self.intents.len() < limits::MAX_INTENTS {
            self.intents.push(Intent { id, operation: Operation::Event(event) });
        }
        Ok(())
    }

    /// Is [`Steps::event`] with type Warning. The reason is in CamelCase, such as BucketLeft.
    pub fn warn(&mut self, id: &str, reason: &str, message: &str) -> Step<()> {
        let event = EventIntent { event_type: EventType::Warning, reason: reason.to_string(), message: message.to_string() };
        self.event(id, event)
    }
}
