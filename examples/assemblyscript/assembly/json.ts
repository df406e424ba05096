// JSON (RFC 8259), as far as a module needs it. JSONReader reads a document once, from its
// start to its end, and keeps only what its caller asks for: a request may have 8 MiB, and
// a module 64 MiB of memory.

import { Char, decode, endOfText, hexDigit, isDigit } from "./text";

/** Nested objects and arrays, each of which takes some of the stack. */
const maxDepth: u32 = 1000;

/**
 * Reads JSON from memory. To read an object, call enterObject, and then, while nextField
 * returns true, look at name and read or skip the value. Null is read as an empty object,
 * an empty array or an empty string. What is not JSON, or has another type than the one
 * that is read, traps.
 */
export class JSONReader {
  private at: usize;
  private depth: u32 = 0;
  private first: bool = false; // an object or array was entered, and nothing was read in it
  private isNull: bool = false; // null was entered in place of an object or array
  private nameStart: usize = 0;
  private nameEnd: usize = 0;

  constructor(private start: usize, private end: usize) {
    this.at = start;
  }

  /** Returns a reader for a whole document. */
  static of(document: ArrayBuffer): JSONReader {
    const start = changetype<usize>(document);
    return new JSONReader(start, start + document.byteLength);
  }

  enterObject(): void {
    this.enter(Char.OpenBrace, "expected an object");
  }

  /** Reads the next name. It returns false at the end of the object, which it leaves. */
  nextField(): bool {
    if (!this.next(Char.CloseBrace)) return false;
    if (this.peek() != Char.Quote) this.fail("expected a name");
    this.nameStart = this.at;
    this.skipString();
    this.nameEnd = this.at;
    if (this.peek() != Char.Colon) this.fail("expected a colon");
    this.at++;
    return true;
  }

  /** Returns the name of the field: ask for it before its value is read. */
  name(): string {
    return decode(this.nameStart + 1, this.nameEnd - 1);
  }

  enterArray(): void {
    this.enter(Char.OpenBracket, "expected an array");
  }

  /** Moves to the next item. It returns false at the end of the array, which it leaves. */
  nextItem(): bool {
    return this.next(Char.CloseBracket);
  }

  isString(): bool {
    return this.peek() == Char.Quote;
  }

  string(): string {
    if (this.peek() == Char.n) {
      this.skipLiteral("null");
      return "";
    }
    if (!this.isString()) this.fail("expected a string");
    const start = this.at;
    this.skipString();
    return decode(start + 1, this.at - 1);
  }

  /** Returns a number as it is written, since no type has room for each number. */
  number(): string {
    this.peek();
    const start = this.at;
    this.skipNumber();
    return String.UTF8.decodeUnsafe(start, this.at - start);
  }

  /** Skips a value, and returns a reader for it. */
  value(): JSONReader {
    this.peek();
    const start = this.at;
    this.skip();
    return new JSONReader(start, this.at);
  }

  /** Skips a value of any type. */
  skip(): void {
    switch (this.peek()) {
      case Char.OpenBrace:
        this.enterObject();
        while (this.nextField()) this.skip();
        break;
      case Char.OpenBracket:
        this.enterArray();
        while (this.nextItem()) this.skip();
        break;
      case Char.Quote:
        this.skipString();
        break;
      case Char.n:
        this.skipLiteral("null");
        break;
      case Char.t:
        this.skipLiteral("true");
        break;
      case Char.f:
        this.skipLiteral("false");
        break;
      default:
        this.skipNumber();
    }
  }

  /** Checks that nothing follows. */
  finish(): void {
    this.peek();
    if (this.at != this.end) this.fail("expected the end");
  }

  private enter(bracket: i32, message: string): void {
    if (this.peek() == Char.n) {
      this.skipLiteral("null");
      this.isNull = true;
      return;
    }
    if (this.byte() != bracket) this.fail(message);
    if (++this.depth > maxDepth) this.fail("more nested objects and arrays than " + maxDepth.toString());
    this.at++;
    this.first = true;
  }

  private next(bracket: i32): bool {
    if (this.isNull) {
      this.isNull = false;
      return false;
    }
    const first = this.first;
    this.first = false;
    const char = this.peek();
    if (char == bracket) {
      this.at++;
      this.depth--;
      return false;
    }
    if (first) return true;
    if (char != Char.Comma) this.fail("expected a comma");
    this.at++;
    return true;
  }

  /** Skips whitespace, and returns the byte that follows without reading it. */
  private peek(): i32 {
    let char = this.byte();
    while (char <= 0x20) {
      if (char != 0x20 && char != 0x09 && char != 0x0a && char != 0x0d) break;
      char = this.nextByte();
    }
    return char;
  }

  /** Returns the next byte without reading it; 0, which JSON never has, at the end. */
  private byte(): i32 {
    return this.at < this.end ? load<u8>(this.at) : 0;
  }

  /** Reads a byte, and returns the one after it. */
  private nextByte(): i32 {
    this.at++;
    return this.byte();
  }

  private skipString(): void {
    this.at++;
    for (;;) {
      this.at = endOfText(this.at, this.end);
      const char = this.byte();
      if (char < 0x20) this.fail("expected the end of a string");
      this.at++;
      if (char == Char.Quote) return;
      this.skipEscape();
    }
  }

  private skipEscape(): void {
    const char = this.byte();
    this.at++;
    switch (char) {
      case Char.Quote:
      case Char.Backslash:
      case Char.Slash:
      case Char.b:
      case Char.f:
      case Char.n:
      case Char.r:
      case Char.t:
        return;
      case Char.u:
        for (let i = 0; i < 4; i++) {
          if (hexDigit(this.byte()) < 0) this.fail("expected four hexadecimal digits");
          this.at++;
        }
        return;
      default:
        this.fail("unknown escape");
    }
  }

  private skipNumber(): void {
    let char = this.byte();
    if (char == Char.Minus) char = this.nextByte();
    if (char == Char.Zero) char = this.nextByte();
    else char = this.skipDigits(char, "expected a value");
    if (char == Char.Dot) char = this.skipDigits(this.nextByte(), "expected a digit");
    if ((char | 0x20) == Char.e) {
      char = this.nextByte();
      if (char == Char.Plus || char == Char.Minus) char = this.nextByte();
      this.skipDigits(char, "expected a digit");
    }
  }

  /** Skips at least one digit, of which char is the first, and returns the byte after. */
  private skipDigits(char: i32, message: string): i32 {
    if (!isDigit(char)) this.fail(message);
    while (isDigit(char)) char = this.nextByte();
    return char;
  }

  private skipLiteral(word: string): void {
    for (let i = 0; i < word.length; i++) {
      if (this.byte() != word.charCodeAt(i)) this.fail("expected " + word);
      this.at++;
    }
  }

  private fail(message: string): void {
    throw new Error(`JSON: ${message} at byte ${this.at - this.start}`);
  }
}
