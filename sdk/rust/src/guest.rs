//! The part of the SDK that talks to the host: the sandbox, or a test.

use std::fmt::Display;

#[cfg(target_arch = "wasm32")]
use crate::Request;
use crate::Verdict;

/// The level of a line in a module's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// For developers.
    Debug,
    /// For users.
    Info,
    /// Something is not as expected.
    Warn,
    /// Something failed.
    Error,
}

/// Reports whether a module may export a function with this name. It is for [`hooks!`](crate::hooks).
#[doc(hidden)]
pub const fn is_hook(name: &str) -> bool {
    let mut i = 0;
    while i < crate::Hook::ALL.len() {
        if equal(crate::Hook::ALL[i].name().as_bytes(), name.as_bytes()) {
            return true;
        }
        i += 1;
    }
    false
}

const fn equal(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let mut i = 0;
    while i < a.len() {
        if a[i] != b[i] {
            return false;
        }
        i += 1;
    }
    true
}

/// Evaluates the request of the current call with a handler. An exported hook calls it once, by
/// [`hooks!`](crate::hooks).
#[cfg(target_arch = "wasm32")]
#[doc(hidden)]
pub fn serve<E: Display>(handler: impl FnOnce(&Request) -> Result<Verdict, E>) {
    std::panic::set_hook(Box::new(|info| host::log(Level::Error, &info.to_string())));
    let text = String::from_utf8(host::request()).unwrap_or_else(|_| stop("decode request: it is not UTF-8"));
    let request = Request::parse(&text).unwrap_or_else(|err| stop(&err.to_string()));
    let verdict = handler(&request).unwrap_or_else(|err| stop(&err.to_string()));
    host::write_verdict(&verdict.to_json());
}

/// Ends the call without a verdict.
#[cfg(target_arch = "wasm32")]
fn stop(message: &str) -> ! {
    host::log(Level::Error, message);
    std::arch::wasm32::unreachable()
}

/// Elsewhere, handlers are called by tests only.
#[cfg(not(target_arch = "wasm32"))]
#[doc(hidden)]
pub fn serve<E: Display>(_: impl FnOnce(&crate::Request) -> Result<Verdict, E>) {
    unreachable!("a module is served by Gleaner: build it for wasm32-unknown-unknown");
}

/// Writes a line to the module's log, as [`info!`](crate::info) and others do.
pub fn log(level: Level, message: &str) {
    host::log(level, message);
}

/// The host that runs this module.
#[cfg(target_arch = "wasm32")]
mod host {
    use super::Level;

    mod gleaner_v1 {
        #[link(wasm_import_module = "gleaner_v1")]
        extern "C" {
            pub fn request_read(ptr: *mut u8, limit: u32) -> u32;
            pub fn verdict_write(ptr: *const u8, length: u32);
            pub fn log(level: u32, ptr: *const u8, length: u32);
        }
    }

    pub fn request() -> Vec<u8> {
        // A buffer of no bytes, for the length, costs less than one that most requests fit into.
        let length = read(&mut []);
        let mut buffer = vec![0; length];
        read(&mut buffer);
        buffer
    }

    /// Copies the request if it fits, and returns its length.
    fn read(into: &mut [u8]) -> usize {
        // The host writes at most as many bytes as the slice has.
        unsafe { gleaner_v1::request_read(into.as_mut_ptr(), into.len() as u32) as usize }
    }

    pub fn write_verdict(text: &str) {
        // The host only reads.
        unsafe { gleaner_v1::verdict_write(text.as_ptr(), text.len() as u32) }
    }

    pub fn log(level: Level, message: &str) {
        // The host only reads.
        unsafe { gleaner_v1::log(level as u32, message.as_ptr(), message.len() as u32) }
    }
}

/// The host of a test: each thread has its own log.
#[cfg(not(target_arch = "wasm32"))]
pub(crate) mod host {
    use std::cell::RefCell;

    use super::Level;

    thread_local! {
        static LINES: RefCell<Vec<(Level, String)>> = RefCell::new(Vec::new());
    }

    pub fn log(level: Level, message: &str) {
        LINES.with(|lines| lines.borrow_mut().push((level, message.to_string())));
    }

    /// Returns the lines of this thread, and forgets them.
    pub fn take_log() -> Vec<(Level, String)> {
        LINES.with(|lines| lines.take())
    }
}
