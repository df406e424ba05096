use super::{Map, Value, MAX_DEPTH};
use crate::Error;

/// Reads a JSON text from its start to its end. A null is read as the zero value of what is
/// expected, as in Go.
pub(crate) struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    pub fn new(text: &'a str) -> Reader<'a> {
        Reader { text, at: 0 }
    }

    /// Calls a function for each member of an object, which reads or skips its value.
    pub fn members(&mut self, mut f: impl FnMut(&mut Reader<'a>, &str) -> Result<(), Error>) -> Result<(), Error> {
        if self.null() {
            return Ok(());
        }
        self.expect(b'{')?;
        if self.take(b'}') {
            return Ok(());
        }
        loop {
            self.space();
            let name = self.string()?;
            self.expect(b':')?;
            f(self, &name)?;
            if self.take(b'}') {
                return Ok(());
            }
            self.expect(b',')?;
        }
    }

    /// Reads an array, and calls a function for each item.
    pub fn list<T>(&mut self, mut f: impl FnMut(&mut Reader<'a>) -> Result<T, Error>) -> Result<Vec<T>, Error> {
        let mut items = Vec::new();
        if self.null() {
            return Ok(items);
        }
        self.expect(b'[')?;
        if self.take(b']') {
            return Ok(items);
        }
        loop {
            items.push(f(self)?);
            if self.take(b']') {
                return Ok(items);
            }
            self.expect(b',')?;
        }
    }

    /// Reads null as None.
    pub fn optional<T>(&mut self, f: impl FnOnce(&mut Reader<'a>) -> Result<T, Error>) -> Result<Option<T>, Error> {
        if self.null() {
            return Ok(None);
        }
        f(self).map(Some)
    }

    pub fn text(&mut self) -> Result<String, Error> {
        if self.null() {
            return Ok(String::new());
        }
        self.string()
    }

    pub fn bool(&mut self) -> Result<bool, Error> {
        match self.raw()? {
            "true" => Ok(true),
            "false" | "null" => Ok(false),
            _ => Err(self.error("true or false is expected")),
        }
    }

    pub fn integer(&mut self) -> Result<i64, Error> {
        match self.raw()? {
            "null" => Ok(0),
            text => text.parse().map_err(|_| self.error("an integer is expected")),
        }
    }

    /// Skips a value, and returns its text. It does not recurse, so any depth is skipped.
    pub fn raw(&mut self) -> Result<&'a str, Error> {
        self.space();
        let start = self.at;
        let mut open = Vec::new();
        loop {
            self.space();
            match self.peek() {
                Some(b'{') => open.push(b'}'),
                Some(b'[') => open.push(b']'),
                Some(c @ (b'}' | b']')) if open.last() == Some(&c) => {
                    open.pop();
                }
                Some(b',' | b':') if !open.is_empty() => (),
                Some(b'"') => {
                    self.skip_string()?;
                    self.at -= 1;
                }
                Some(b'-' | b'0'..=b'9' | b't' | b'f' | b'n') => {
                    self.word();
                    self.at -= 1;
                }
                _ => return Err(self.error("a value is expected")),
            }
            self.at += 1;
            if open.is_empty() {
                return Ok(&self.text[start..self.at]);
            }
        }
    }

    /// Reads any value.
    pub fn value(&mut self, depth: usize) -> Result<Value, Error> {
        if depth > MAX_DEPTH {
            return Err(self.error(&format!("it is nested more than {MAX_DEPTH} levels deep")));
        }
        self.space();
        match self.peek() {
            Some(b'{') => {
                let mut members = Map::new();
                self.members(|r, name| {
                    let value = r.value(depth + 1)?;
                    members.insert(name.to_string(), value);
                    Ok(())
                })?;
                Ok(Value::Object(members))
            }
            Some(b'[') => self.list(|r| r.value(depth + 1)).map(Value::Array),
            Some(b'"') => self.string().map(Value::String),
            Some(_) => match self.word() {
                "null" => Ok(Value::Null),
                "true" => Ok(Value::Bool(true)),
                "false" => Ok(Value::Bool(false)),
                word if is_number(word) => Ok(Value::Number(word.to_string())),
                _ => Err(self.error("a value is expected")),
            },
            None => Err(self.error("a value is expected")),
        }
    }

    /// Checks that nothing follows.
    pub fn end(&mut self) -> Result<(), Error> {
        self.space();
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(self.error("nothing more is expected")),
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn space(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    /// Takes a character, if it is the next one.
    fn take(&mut self, c: u8) -> bool {
        self.space();
        let there = self.peek() == Some(c);
        self.at += usize::from(there);
        there
    }

    fn expect(&mut self, c: u8) -> Result<(), Error> {
        if self.take(c) {
            return Ok(());
        }
        Err(self.error(&format!("{:?} is expected", char::from(c))))
    }

    fn null(&mut self) -> bool {
        self.space();
        let there = self.text[self.at..].starts_with("null");
        self.at += if there { 4 } else { 0 };
        there
    }

    /// Reads a number, true, false or null, and what looks like one.
    fn word(&mut self) -> &'a str {
        let start = self.at;
        while let Some(b'-' | b'+' | b'.' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z') = self.peek() {
            self.at += 1;
        }
        &self.text[start..self.at]
    }

    fn skip_string(&mut self) -> Result<(), Error> {
        let mut escaped = false;
        for (i, c) in self.text.as_bytes()[self.at..].iter().enumerate().skip(1) {
            match c {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => {
                    self.at += i + 1;
                    return Ok(());
                }
                _ => (),
            }
        }
        Err(self.error("the string does not end"))
    }

    fn string(&mut self) -> Result<String, Error> {
        if self.peek() != Some(b'"') {
            return Err(self.error("a string is expected"));
        }
        let start = self.at + 1;
        self.skip_string()?;
        let inner = &self.text[start..self.at - 1];
        if inner.bytes().any(|c| c < b' ') {
            return Err(self.error("a string has control characters"));
        }
        if !inner.contains('\\') {
            return Ok(inner.to_string());
        }
        unescape(inner).ok_or_else(|| self.error("a string has an invalid escape"))
    }

    fn error(&self, what: &str) -> Error {
        Error::new(format!("invalid JSON at byte {}: {what}", self.at))
    }
}

/// Replaces escapes. Half of a surrogate pair becomes U+FFFD, as in Go.
fn unescape(text: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        let escape = *rest.as_bytes().get(at + 1)?;
        rest = rest.get(at + 2..)?;
        out.push(match escape {
            b'"' | b'\\' | b'/' => char::from(escape),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let first = hex(rest)?;
                rest = &rest[4..];
                let low = rest.strip_prefix("\\u").and_then(hex);
                match (first, low) {
                    (0xD800..=0xDBFF, Some(second @ 0xDC00..=0xDFFF)) => {
                        rest = &rest[6..];
                        char::from_u32(0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00))?
                    }
                    _ => char::from_u32(first).unwrap_or('\u{FFFD}'),
                }
            }
            _ => return None,
        });
    }
    out.push_str(rest);
    Some(out)
}

fn hex(text: &str) -> Option<u32> {
    let digits = text.get(..4)?;
    if !digits.bytes().all(|c| c.is_ascii_hexdigit()) {
        return None;
    }
    u32::from_str_radix(digits, 16).ok()
}

fn is_number(text: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit());
    let text = text.strip_prefix('-').unwrap_or(text);
    let (mantissa, exponent) = match text.find(|c| c == 'e' || c == 'E') {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    };
    let (whole, fraction) = match mantissa.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (mantissa, None),
    };
    digits(whole)
        && (whole == "0" || !whole.starts_with('0'))
        && fraction.map_or(true, digits)
        && exponent.map_or(true, |e| digits(e.strip_prefix(|c| c == '-' || c == '+').unwrap_or(e)))
}
