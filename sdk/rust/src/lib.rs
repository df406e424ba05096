//! The SDK for policies and finalizers in Rust. It turns a function from a request to a verdict
//! into a WebAssembly module that Gleaner can run:
//!
//! ```
//! use gleaner::{Decision, Error, Request, Verdict};
//!
//! gleaner::hooks! { collect => collect }
//!
//! fn collect(r: &Request) -> Result<Verdict, Error> {
//!     if r.object.metadata.label("keep") == "true" {
//!         return Ok(Verdict::new(Decision::Orphan).because("it has keep=true"));
//!     }
//!     Ok(Verdict::new(Decision::Abstain))
//! }
//! # fn main() {}
//! ```
//!
//! A module implements the hooks that it names in [`hooks!`]: propagate, collect, protect, retain,
//! finalize and validate.
//!
//! A module does no I/O. It requests what it needs with [`Decision::Act`] and intents, and is
//! evaluated again with their results. It starts afresh for each request: variables do not survive
//! a call, so what it needs later must be in the verdict's state. Its clock is the request's time.
//!
//! Handlers are plain functions. Test them with `cargo test` and module [`testing`].
//!
//! The crate has no dependencies, and needs Rust 1.63.

#![warn(missing_docs)]

mod decode;
mod duration;
mod encode;
mod error;
pub mod finalize;
mod guest;
mod intent;
pub mod json;
mod request;
mod settings;
#[cfg(not(target_arch = "wasm32"))]
pub mod testing;
mod time;
mod verdict;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub use duration::parse_duration;
pub use error::Error;
#[doc(hidden)]
pub use guest::{is_hook, serve};
pub use guest::{log, Level};
pub use intent::{
    DeleteIntent, ErrorReason, EventIntent, EventType, HttpIntent, HttpResult, Intent, IntentResult, ListIntent,
    ListResult, Operation, PatchIntent, PatchType, ResultError, Target,
};
pub use request::{
    Dependents, Hook, Image, KindCount, Metadata, Object, Owner, OwnerStatus, Policy, Reference, Request,
    RequestedPropagation, Retention, UserInfo, Workload,
};
pub use settings::Settings;
pub use time::Time;
pub use verdict::{Decision, DependentDecision, GroupKind, Propagation, Verdict};

/// The limits of a request and a verdict, in bytes of JSON unless said otherwise. See the
/// documentation of the ABI.
pub mod limits {
    use std::time::Duration;

    /// A verdict.
    pub const MAX_VERDICT_BYTES: usize = 1 << 20;
    /// The state in a verdict.
    pub const MAX_STATE_BYTES: usize = 4096;
    /// A reason, and the message of an event.
    pub const MAX_REASON_BYTES: usize = 1024;
    /// The number of intents in a verdict.
    pub const MAX_INTENTS: usize = 64;
    /// The number of exceptions by kind in a verdict.
    pub const MAX_DEPENDENTS: usize = 64;
    /// The number of objects on a page of a list.
    pub const MAX_LIST_LIMIT: u32 = 500;
    /// The maximum of every duration in a verdict.
    pub const MAX_DURATION: Duration = Duration::from_secs(720 * 3600);
    /// The minimum time between two evaluations, even if a verdict has a shorter one.
    pub const MIN_WAIT: Duration = Duration::from_secs(1);
    /// The duration of a Wait without one.
    pub const DEFAULT_WAIT: Duration = Duration::from_secs(30);
}

/// Exports hooks: each name of a hook with the function in the current module that evaluates it.
///
/// A handler gets a [`&Request`](Request) and returns `Result<Verdict, E>`, for any `E` that can be
/// displayed. The same request must have the same verdict. An error is logged and ends the call
/// without a verdict, which is a fault: the policy's `onFault` applies. Use errors only for bugs;
/// otherwise decide Wait, Fail or Abstain. A name that is not one of a hook does not compile.
#[macro_export]
macro_rules! hooks {
    ($($hook:ident => $handler:ident),+ $(,)?) => {
        $(const _: () = assert!($crate::is_hook(stringify!($hook)), "the hooks are propagate, collect, protect, retain, finalize and validate");)+

        #[cfg(target_arch = "wasm32")]
        mod gleaner_exports {
            $(
                #[no_mangle]
                pub extern "C" fn $hook() {
                    $crate::serve(super::$handler)
                }
            )+
        }
    };
}

/// Has Gleaner read only the metadata of objects for the module, whatever `needs` is in a policy.
#[macro_export]
macro_rules! needs_metadata {
    () => {
        #[cfg(target_arch = "wasm32")]
        #[no_mangle]
        pub extern "C" fn needs_metadata() {}
    };
}

/// Has Gleaner read only the owners, names and UIDs of objects for the module, whatever `needs` is
/// in a policy. Then a decision costs no request.
#[macro_export]
macro_rules! needs_reference {
    () => {
        #[cfg(target_arch = "wasm32")]
        #[no_mangle]
        pub extern "C" fn needs_reference() {}
    };
}

/// Logs a message with level debug, as [`format!`] formats it.
#[macro_export]
macro_rules! debug { ($($arg:tt)*) => { $crate::log($crate::Level::Debug, &format!($($arg)*)) }; }

/// Logs a message with level info, as [`format!`] formats it.
#[macro_export]
macro_rules! info { ($($arg:tt)*) => { $crate::log($crate::Level::Info, &format!($($arg)*)) }; }

/// Logs a message with level warn, as [`format!`] formats it.
#[macro_export]
macro_rules! warn { ($($arg:tt)*) => { $crate::log($crate::Level::Warn, &format!($($arg)*)) }; }

/// Logs a message with level error, as [`format!`] formats it. It does not affect the verdict.
#[macro_export]
macro_rules! error { ($($arg:tt)*) => { $crate::log($crate::Level::Error, &format!($($arg)*)) }; }
