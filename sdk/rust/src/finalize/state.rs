use std::collections::BTreeMap;

use crate::json::{Map, Value};
use crate::{limits, Error};

/// The state that is kept between runs: a JSON object with these fields, the same as in the SDK for
/// Go.
#[derive(Default)]
pub(super) struct SavedState {
    pub done: Vec<String>,              // by once
    pub pages: BTreeMap<String, String>, // where each continues in the next attempt
    pub own: Option<Value>,             // by save_state
}

impl SavedState {
    pub fn decode(state: Option<&Value>) -> Result<SavedState, Error> {
        let members = match state {
            None => return Ok(SavedState::default()),
            Some(Value::Object(members)) => members,
            Some(_) => return Err(unknown()),
        };
        let mut saved = SavedState { own: members.get("own").cloned(), ..SavedState::default() };
        for id in members.get("done").map_or(Ok(&[][..]), |done| done.as_array().ok_or_else(unknown))? {
            saved.done.push(id.as_str().ok_or_else(unknown)?.to_string());
        }
        if let Some(pages) = members.get("pages") {
            for (id, token) in pages.as_object().ok_or_else(unknown)? {
                saved.pages.insert(id.clone(), token.as_str().ok_or_else(unknown)?.to_string());
            }
        }
        Ok(saved)
    }

    /// Returns the state for the verdict: None if it is unchanged.
    pub fn encode(self, before: Option<&Value>) -> Result<Option<Value>, Error> {
        let mut members = Map::new();
        if !self.done.is_empty() {
            members.insert("done".to_string(), self.done.into_iter().map(Value::from).collect::<Vec<_>>().into());
        }
        if !self.pages.is_empty() {
            members.insert("pages".to_string(), self.pages.into_iter().map(|(id, token)| (id, token.into())).collect::<Map>().into());
        }
        if let Some(own) = self.own {
            members.insert("own".to_string(), own);
        }
        if before.is_none() && members.is_empty() {
            return Ok(None);
        }
        let state = Value::Object(members);
        let size = state.to_string().len();
        if size > limits::MAX_STATE_BYTES {
            return Err(Error::new(format!(
                "encode state: it has {size} bytes, at most {} are allowed: save less",
                limits::MAX_STATE_BYTES
            )));
        }
        Ok(Some(state).filter(|state| Some(state) != before))
    }

    /// Sets where each continues in the next attempt; "" is the start.
    pub fn set_page(&mut self, id: &str, token: &str) {
        if token.is_empty() {
            self.pages.remove(id);
        } else {
            self.pages.insert(id.to_string(), token.to_string());
        }
    }
}

fn unknown() -> Error {
    Error::new("decode state: not written by module finalize")
}
