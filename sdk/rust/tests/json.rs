use gleaner::json::{object, Value, MAX_DEPTH};

#[test]
fn values_are_read_and_written() {
    for (text, want) in [
        ("null", "null"),
        (" [ 1 , -0.5e+3, true,false ,\"\" ] ", r#"[1,-0.5e+3,true,false,""]"#),
        (r#"{"b":{"x":[]},"a":{}}"#, r#"{"a":{},"b":{"x":[]}}"#),
        (r#"{"a":1,"a":2}"#, r#"{"a":2}"#),
        (r#""\"\\\/\b\f\n\r\t\u0008\u0001é\u00e9""#, r#""\"\\/\b\f\n\r\t\b\u0001éé""#),
        (r#""\ud83d\ude00 \ud83d \ude00x \ud83dA""#, "\"😀 \u{FFFD} \u{FFFD}x \u{FFFD}A\""),
        ("12345678901234567890123", "12345678901234567890123"),
    ] {
        let value = Value::parse(text).unwrap_or_else(|err| panic!("{text}: {err}"));
        assert_eq!(value.to_string(), want, "{text}");
        assert_eq!(Value::parse(want).as_ref(), Ok(&value), "{text}, written");
    }
}

#[test]
fn what_is_not_json_is_an_error() {
    for text in [
        "", " ", "nul", "nulls", "tru", "01", "1.", ".5", "1e", "+1", "--1", "0x1", "NaN", "[", "[1", "[1,", "[1,]", "[,1]", "]", "{",
        "{\"a\"", "{\"a\":", "{\"a\":1", "{\"a\":1,}", "{a:1}", "{1:1}", "{\"a\" 1}", "\"", "\"\\\"", "\"\\x\"", "\"\\u12\"", "\"\\u+123\"", "\"\\é\"",
        "\"a\nb\"", "1 2", "[1] x", "'a'",
    ] {
        assert!(Value::parse(text).is_err(), "{text}");
    }
}

#[test]
fn the_depth_is_limited() {
    let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    assert!(Value::parse(&nested(MAX_DEPTH)).is_ok());
    let err = Value::parse(&nested(100_000)).unwrap_err().to_string();
    assert!(err.contains("levels deep"), "{err}");
}

#[test]
fn values_are_found_by_pointers() {
    let value = Value::parse(r#"{"a":[{"b/c":"x","~":true}],"n":7,"f":1.5}"#).unwrap();
    assert_eq!(value.at(""), Some(&value));
    assert_eq!(value.at("/a/0/b~1c").and_then(Value::as_str), Some("x"));
    assert_eq!(value.at("/a/0/~0").and_then(Value::as_bool), Some(true));
    assert_eq!(value.at("/a/1"), None);
    assert_eq!(value.at("/a/x"), None);
    assert_eq!(value.at("a"), None);
    assert_eq!(value.get("n").and_then(Value::as_i64), Some(7));
    assert_eq!(value.get("f").and_then(Value::as_i64), None);
    assert_eq!(value.get("f").and_then(Value::as_f64), Some(1.5));
    assert_eq!(value.get("a").and_then(Value::as_array).map(<[Value]>::len), Some(1));
    assert_eq!(object([("n", 7.into())]).as_object().map(|members| members.len()), Some(1));
}
