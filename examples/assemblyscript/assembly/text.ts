// Strings in JSON. A string in AssemblyScript is UTF-16.

export const enum Char {
  Quote = 0x22,
  Plus = 0x2b,
  Comma = 0x2c,
  Minus = 0x2d,
  Dot = 0x2e,
  Slash = 0x2f,
  Zero = 0x30,
  Nine = 0x39,
  Colon = 0x3a,
  OpenBracket = 0x5b,
  Backslash = 0x5c,
  CloseBracket = 0x5d,
  a = 0x61,
  b = 0x62,
  e = 0x65,
  f = 0x66,
  n = 0x6e,
  r = 0x72,
  t = 0x74,
  u = 0x75,
  OpenBrace = 0x7b,
  CloseBrace = 0x7d,
}

export function isDigit(char: i32): bool {
  return char >= Char.Zero && char <= Char.Nine;
}

/** Returns the value of a hexadecimal digit, or -1. */
export function hexDigit(char: i32): i32 {
  if (isDigit(char)) return char - Char.Zero;
  const letter = (char | 0x20) - Char.a; // in lower case
  return letter >= 0 && letter < 6 ? letter + 10 : -1;
}

/**
 * Returns the address of the first quote, backslash or control character. Most of a request
 * is text, so this takes most of the fuel. Letters in lower case are after all of them.
 */
export function endOfText(at: usize, end: usize): usize {
  while (at < end) {
    const char: i32 = load<u8>(at);
    if (char <= Char.Backslash) {
      if (char == Char.Quote || char == Char.Backslash || char < 0x20) break;
    }
    at++;
  }
  return at;
}

/**
 * Decodes what is between the quotes of a string in JSON. The caller has checked its
 * escapes.
 */
export function decode(start: usize, end: usize): string {
  let at = start;
  while (at < end && load<u8>(at) != Char.Backslash) at++;
  if (at == end) return String.UTF8.decodeUnsafe(start, end - start);

  const text = new Builder(<i32>(end - start));
  while (at < end) {
    if (load<u8>(at) != Char.Backslash) {
      at++;
      continue;
    }
    text.append(String.UTF8.decodeUnsafe(start, at - start));
    const escape: i32 = load<u8>(at + 1);
    at += 2;
    if (escape == Char.u) {
      // A surrogate pair is two escapes in JSON, and two units in UTF-16.
      let unit = 0;
      for (let i = 0; i < 4; i++) unit = (unit << 4) | hexDigit(load<u8>(at + i));
      text.appendUnit(unit);
      at += 4;
    } else {
      text.appendUnit(unescape(escape));
    }
    start = at;
  }
  text.append(String.UTF8.decodeUnsafe(start, end - start));
  return text.toString();
}

function unescape(escape: i32): i32 {
  switch (escape) {
    case Char.b:
      return 0x08;
    case Char.t:
      return 0x09;
    case Char.n:
      return 0x0a;
    case Char.f:
      return 0x0c;
    case Char.r:
      return 0x0d;
    default: // a quote, a slash or a backslash
      return escape;
  }
}

/** Returns a string as JSON. */
export function quote(text: string): string {
  const json = new Builder(6 * text.length + 2);
  json.appendUnit(Char.Quote);
  for (let i = 0; i < text.length; i++) {
    const unit = text.charCodeAt(i);
    if (unit < 0x20) {
      json.append("\\u00" + unit.toString(16).padStart(2, "0"));
      continue;
    }
    if (unit == Char.Quote || unit == Char.Backslash) json.appendUnit(Char.Backslash);
    json.appendUnit(unit);
  }
  json.appendUnit(Char.Quote);
  return json.toString();
}

/**
 * Builds a string of known maximum length. Nothing frees memory during a call, so that
 * adding to a string again and again would need memory for each of the strings between.
 */
class Builder {
  private buffer: ArrayBuffer;
  private length: usize = 0;

  constructor(units: i32) {
    this.buffer = new ArrayBuffer(units << 1);
  }

  append(text: string): void {
    const length = <usize>text.length << 1;
    memory.copy(changetype<usize>(this.buffer) + this.length, changetype<usize>(text), length);
    this.length += length;
  }

  appendUnit(unit: i32): void {
    store<u16>(changetype<usize>(this.buffer) + this.length, <u16>unit);
    this.length += 2;
  }

  toString(): string {
    return String.UTF16.decodeUnsafe(changetype<usize>(this.buffer), this.length);
  }
}
