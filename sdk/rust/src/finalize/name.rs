/// Returns an intent ID for any text. A valid ID is unchanged.
pub(super) fn identifier(text: &str) -> String {
    const MOST: usize = 63;
    const KEPT: usize = 40;
    let valid = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_' || c == '.';
    if !text.is_empty() && text.len() <= MOST && text.chars().all(valid) {
        return text.to_string();
    }
    let clean: String = text.chars().map(|c| if valid(c) { c } else { '_' }).take(KEPT).collect();
    format!("{clean}-{:x}", fnv1a(text.as_bytes()))
}

/// Returns the 64-bit FNV-1a hash (RFC 9923).
fn fnv1a(data: &[u8]) -> u64 {
    data.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

/// Truncates a text to most bytes, with an ellipsis.
pub(super) fn truncate(text: &str, most: usize) -> String {
    const MARK: &str = "…";
    if text.len() <= most {
        return text.to_string();
    }
    let mut cut = most - MARK.len();
    while !text.is_char_boundary(cut) {
        cut -= 1;
    }
    format!("{}{MARK}", &text[..cut])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The SDK for Go has the same names, so that a finalizer can be written in the other language
    /// while objects are being deleted.
    #[test]
    fn identifiers_are_those_of_go() {
        assert_eq!(identifier("all.1.uid-7.delete"), "all.1.uid-7.delete");
        assert_eq!(identifier(""), "-cbf29ce484222325");
        assert_eq!(identifier("a b"), format!("a_b-{:x}", fnv1a(b"a b")));
        assert_eq!(fnv1a(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(identifier(&"x".repeat(64)).len(), 40 + 1 + 16);
    }

    #[test]
    fn texts_are_truncated_at_characters() {
        assert_eq!(truncate("short", 5), "short");
        assert_eq!(truncate("ööööö", 8), "öö…");
        assert_eq!(truncate(&"x".repeat(100), 10).len(), 10);
    }
}
