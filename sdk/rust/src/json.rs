//! JSON: values, and the text of objects, settings and states.

mod read;
mod write;

use std::collections::BTreeMap;

pub(crate) use read::Reader;

use crate::Error;

/// The maximum depth of nested arrays and objects that [`Value::parse`] accepts.
pub const MAX_DEPTH: usize = 256;

/// The members of a JSON object.
pub type Map = BTreeMap<String, Value>;

/// A JSON value.
///
/// ```
/// use gleaner::json::{object, Value};
///
/// let pod = Value::parse(r#"{"spec": {"replicas": 3, "ports": [{"port": 80}]}}"#)?;
/// assert_eq!(pod.at("/spec/replicas").and_then(Value::as_i64), Some(3));
/// assert_eq!(pod.at("/spec/ports/0/port"), Some(&Value::from(80)));
/// assert_eq!(object([("a", "b".into())]).to_string(), r#"{"a":"b"}"#);
/// # Ok::<(), gleaner::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// null
    Null,
    /// true or false
    Bool(bool),
    /// A number, as it is written.
    Number(String),
    /// A string.
    String(String),
    /// An array.
    Array(Vec<Value>),
    /// An object. Of members with one name, the last one counts.
    Object(Map),
}

/// Returns an object with these members.
pub fn object<const N: usize>(members: [(&str, Value); N]) -> Value {
    Value::Object(members.into_iter().map(|(name, value)| (name.to_string(), value)).collect())
}

impl Value {
    /// Parses a text that is one JSON value, and nothing else.
    pub fn parse(text: &str) -> Result<Value, Error> {
        let mut r = Reader::new(text);
        let value = r.value(0)?;
        r.end()?;
        Ok(value)
    }

    /// Returns the member of an object, or None.
    pub fn get(&self, name: &str) -> Option<&Value> {
        match self {
            Value::Object(members) => members.get(name),
            _ => None,
        }
    }

    /// Returns what a JSON pointer (RFC 6901), such as /spec/ports/0, refers to, or None.
    pub fn at(&self, pointer: &str) -> Option<&Value> {
        if pointer.is_empty() {
            return Some(self);
        }
        pointer.strip_prefix('/')?.split('/').try_fold(self, |value, part| match value {
            Value::Object(members) => members.get(&part.replace("~1", "/").replace("~0", "~")),
            Value::Array(items) => items.get(part.parse::<usize>().ok()?),
            _ => None,
        })
    }

    /// Returns the text of a string, or None.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the value of true or false, or None.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Value::Bool(b) => Some(*b),
            _ => None,
        }
    }

    /// Returns a number that is an integer, without fraction and exponent, or None.
    pub fn as_i64(&self) -> Option<i64> {
        match self {
            Value::Number(text) => text.parse().ok(),
            _ => None,
        }
    }

    /// Returns a number, or None.
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Value::Number(text) => text.parse().ok(),
            _ => None,
        }
    }

    /// Returns the items of an array, or None.
    pub fn as_array(&self) -> Option<&[Value]> {
        match self {
            Value::Array(items) => Some(items),
            _ => None,
        }
    }

    /// Returns the members of an object, or None.
    pub fn as_object(&self) -> Option<&Map> {
        match self {
            Value::Object(members) => Some(members),
            _ => None,
        }
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::String(text.to_string())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Value {
        Value::String(text)
    }
}

impl From<bool> for Value {
    fn from(b: bool) -> Value {
        Value::Bool(b)
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Value {
        Value::Number(number.to_string())
    }
}

impl From<i32> for Value {
    fn from(number: i32) -> Value {
        Value::Number(number.to_string())
    }
}

impl From<u32> for Value {
    fn from(number: u32) -> Value {
        Value::Number(number.to_string())
    }
}

impl From<Vec<Value>> for Value {
    fn from(items: Vec<Value>) -> Value {
        Value::Array(items)
    }
}

impl From<Map> for Value {
    fn from(members: Map) -> Value {
        Value::Object(members)
    }
}
