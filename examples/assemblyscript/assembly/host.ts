// The functions that a module imports from Gleaner: see "WebAssembly" in
// docs/reference/abi.md. All pointers are addresses in the module's memory, which is
// exported as "memory". All documents are JSON in UTF-8.

/** Writes the request to memory and returns its length. */
@external("gleaner_v1", "request_read")
declare function request_read(ptr: usize, limit: u32): u32;

/** Passes the verdict to the host, once per call. */
@external("gleaner_v1", "verdict_write")
declare function verdict_write(ptr: usize, length: u32): void;

/** Writes a line to the module's log. */
@external("gleaner_v1", "log")
declare function log_write(level: LogLevel, ptr: usize, length: u32): void;

export const enum LogLevel {
  Debug = 0,
  Info = 1,
  Warn = 2,
  Error = 3,
}

// Most requests fit into this buffer. It is allocated by _initialize, which the host
// calls once: every call of a hook begins in the state after that.
let buffer = new ArrayBuffer(16 << 10);

/** Returns the request of this call. */
export function readRequest(): ArrayBuffer {
  const length = request_read(changetype<usize>(buffer), buffer.byteLength);
  if (length > <u32>buffer.byteLength) {
    // Nothing was written, because the length exceeds the limit: call it again with a
    // larger buffer.
    buffer = new ArrayBuffer(length);
    request_read(changetype<usize>(buffer), length);
  }
  return buffer.slice(0, length);
}

/** Writes the verdict. A hook that returns without one is a fault of the module. */
export function writeVerdict(verdict: string): void {
  const bytes = encode(verdict);
  verdict_write(changetype<usize>(bytes), bytes.byteLength);
}

export function log(level: LogLevel, line: string): void {
  const bytes = encode(line);
  log_write(level, changetype<usize>(bytes), bytes.byteLength);
}

// A string in AssemblyScript is UTF-16, and may have half of a surrogate pair, for which
// UTF-8 has no bytes: it becomes U+FFFD.
function encode(text: string): ArrayBuffer {
  return String.UTF8.encode(text, false, String.UTF8.ErrorMode.REPLACE);
}

/**
 * Replaces AssemblyScript's own abort, which is an import that Gleaner refuses. The
 * compiler calls it for each throw and for each failed check, such as an index out of
 * range. A trap ends the call without a verdict, which is a fault of the module: the
 * object is kept.
 */
export function abort(message: string | null, file: string | null, line: u32, column: u32): void {
  log(LogLevel.Error, `${message ? message : "abort"} (${file ? file : "?"}:${line}:${column})`);
  unreachable();
}
