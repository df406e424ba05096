use std::time::Duration;

use crate::json::{Map, Value};
use crate::{parse_duration, Error};

/// The settings of a policy, which are read field by field. [`Settings::finish`] reports a field
/// that was not read, such as one with a typo.
///
/// ```
/// # let r = gleaner::Request { policy: gleaner::Policy { settings: r#"{"wait": "1h"}"#.into(), ..Default::default() }, ..Default::default() };
/// let mut settings = r.settings()?;
/// let wait = settings.duration("wait")?;
/// let url = settings.text("url")?.unwrap_or_else(|| "https://example.com".to_string());
/// settings.finish()?;
/// # assert_eq!(wait, Some(std::time::Duration::from_secs(3600)));
/// # assert_eq!(url, "https://example.com");
/// # Ok::<(), gleaner::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Settings(Map);

impl Settings {
    /// Parses the text of a JSON object. An empty text has no fields.
    pub(crate) fn parse(text: &str) -> Result<Settings, Error> {
        if text.is_empty() {
            return Ok(Settings(Map::new()));
        }
        match Value::parse(text).map_err(|err| Error::new(format!("decode settings: {err}")))? {
            Value::Object(members) => Ok(Settings(members)),
            Value::Null => Ok(Settings(Map::new())),
            _ => Err("decode settings: an object is expected".into()),
        }
    }

    /// Takes a field of any type; None if there is none, or if it is null.
    pub fn take(&mut self, name: &str) -> Option<Value> {
        self.0.remove(name).filter(|value| *value != Value::Null)
    }

    /// Takes a string.
    pub fn text(&mut self, name: &str) -> Result<Option<String>, Error> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(wrong(name, "a string")),
        }
    }

    /// Takes true or false.
    pub fn bool(&mut self, name: &str) -> Result<Option<bool>, Error> {
        self.take(name).map(|value| value.as_bool().ok_or_else(|| wrong(name, "true or false"))).transpose()
    }

    /// Takes an integer.
    pub fn integer(&mut self, name: &str) -> Result<Option<i64>, Error> {
        self.take(name).map(|value| value.as_i64().ok_or_else(|| wrong(name, "an integer"))).transpose()
    }

    /// Takes a duration such as "1h30m"; see [`parse_duration`].
    pub fn duration(&mut self, name: &str) -> Result<Option<Duration>, Error> {
        let parse = |text: String| parse_duration(&text).map_err(|err| Error::new(format!("decode settings: {name}: {err}")));
        self.text(name)?.map(parse).transpose()
    }

    /// Returns the fields that were not taken.
    pub fn rest(self) -> Map {
        self.0
    }

    /// Reports a field that was not taken.
    pub fn finish(self) -> Result<(), Error> {
        match self.0.into_iter().next() {
            Some((name, _)) => Err(Error::new(format!("decode settings: unknown field {name:?}"))),
            None => Ok(()),
        }
    }
}

fn wrong(name: &str, want: &str) -> Error {
    Error::new(format!("decode settings: {name} must be {want}"))
}
