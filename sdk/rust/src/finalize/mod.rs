//! Writes a finalizer as a sequence of steps.
//!
//! ```
//! use std::time::Duration;
//! use gleaner::{finalize, Error, HttpIntent, Request, Verdict};
//!
//! fn finalizer(r: &Request) -> Result<Verdict, Error> {
//!     finalize::run(r, |s| {
//!         let url = format!("https://s3.example.com/{}", r.object.metadata.name);
//!         s.call("bucket", HttpIntent::new("DELETE", &url))?;
//!         let left = s.call("look", HttpIntent::new("GET", &url))?;
//!         s.until(left.is_none(), Duration::from_secs(30), "the bucket still exists")
//!     })
//! }
//! ```
//!
//! A module does no I/O: it requests intents, and is evaluated again with their results. So [`run`]
//! executes the steps from the start each time. A step that has a result returns it. The first step
//! without a result requests it, and stops the run. When all steps are finished, the decision is
//! Done.
//!
//! # Stopped runs
//!
//! A step that stops the run returns [`Stop`], which `?` passes on, so the code reads as if each step
//! blocked until it is finished. Steps after a `Stop` that was not passed on do nothing, and return
//! it again.
//!
//! # Attempts
//!
//! After Wait the steps start again, without results: so steps must be repeatable, as deletes are.
//! Put others into [`Steps::once`], which keeps its progress in the state. An attempt has 16 rounds,
//! and so at most 15 sequential steps with intents; independent steps in [`Steps::all`] share a
//! round.
//!
//! # Errors
//!
//! Temporary errors (Unavailable, Conflict, Expired, and HTTP 429 and 5xx) become Wait, with a delay
//! that grows with each attempt, up to five minutes. Errors that need intervention (NotGranted,
//! Forbidden, Invalid) become Fail, with a reason that says what to change. NotFound is a result
//! where it can be one. Other errors that `?` passes on are bugs: they end the call without a
//! verdict.

mod control;
mod errors;
mod http;
mod name;
mod objects;
mod pages;
mod state;

use std::collections::BTreeSet;
use std::time::Duration;

use crate::{limits, Decision, Error, Intent, IntentResult, Operation, Request, Time, Verdict};
use name::{identifier, truncate};
use state::SavedState;

/// The number of rounds within an attempt. An Act in the last of them would not be carried out.
const MAX_ROUNDS: i64 = 16;

/// The wait between attempts if the second one just continues the first.
const NEXT_ATTEMPT_DELAY: Duration = Duration::from_secs(1);

/// What a step returns: a result, or that the run has stopped.
pub type Step<T> = Result<T, Stop>;

/// Says that the run has stopped, for a reason that [`Steps`] has, or because of a bug.
#[derive(Debug)]
pub struct Stop(Option<Error>);

impl From<Error> for Stop {
    fn from(err: Error) -> Stop {
        Stop(Some(err))
    }
}

/// A run of a finalizer. Its methods are the steps.
pub struct Steps<'r> {
    req: &'r Request,
    saved: SavedState,

    end: Option<Verdict>,       // why the run has stopped; None: it continues
    intents: Vec<Intent>,       // to request
    used_ids: BTreeSet<String>, // ids that this run has used
    prefix: String,             // of ids, within each
    scope: String,              // of ids in the state, within each: the same in every attempt
    give_up_at: Option<Time>,   // when to give up, which limits waits
    bug: Option<Error>,         // in the finalizer
}

/// Executes the steps and returns the verdict: Act if a step has intents to carry out, Done if all
/// steps are finished. An error reports a bug in the finalizer, such as two steps with the same id.
pub fn run<'r>(r: &'r Request, f: impl FnOnce(&mut Steps<'r>) -> Step<()>) -> Result<Verdict, Error> {
    let mut s = Steps {
        req: r,
        saved: SavedState::decode(r.state.as_ref())?,
        end: None,
        intents: Vec::new(),
        used_ids: BTreeSet::new(),
        prefix: String::new(),
        scope: String::new(),
        give_up_at: None,
        bug: None,
    };
    let returned = f(&mut s);
    match (s.bug.take(), returned) {
        (Some(err), _) | (None, Err(Stop(Some(err)))) => Err(err),
        _ => s.verdict(),
    }
}

impl<'r> Steps<'r> {
    /// Returns the request.
    pub fn request(&self) -> &'r Request {
        self.req
    }

    /// Reports whether the run has stopped. Steps then do nothing.
    pub fn is_stopped(&self) -> bool {
        self.end.is_some() || self.bug.is_some()
    }

    fn verdict(self) -> Result<Verdict, Error> {
        let mut v = self.end.unwrap_or_else(|| Verdict::new(Decision::Done));
        if !self.intents.is_empty() && self.req.round < MAX_ROUNDS {
            // Events alone do not start a round before the end.
            v = Verdict { intents: self.intents, ..Verdict::new(Decision::Act) };
        }
        if matches!(v.decision, Decision::Act | Decision::Wait) {
            v.state = self.saved.encode(self.req.state.as_ref())?;
        }
        Ok(v)
    }

    /// Returns Stop if the run has stopped.
    fn check_running(&self) -> Step<()> {
        if self.is_stopped() {
            return Err(Stop(None));
        }
        Ok(())
    }

    /// Ends the run, unless it has ended already.
    fn stop<T>(&mut self, mut v: Verdict) -> Step<T> {
        if !self.is_stopped() {
            v.reason = truncate(&v.reason, limits::MAX_REASON_BYTES);
            self.end = Some(v);
        }
        Err(Stop(None))
    }

    /// Ends the run for a bug in the finalizer.
    fn report_bug<T>(&mut self, message: String) -> Step<T> {
        self.bug.get_or_insert(Error::new(message));
        Err(Stop(None))
    }

    /// Returns the result of an operation, or requests it and stops.
    fn perform(&mut self, id: &str, operation: Operation) -> Step<&'r IntentResult> {
        self.check_running()?;
        let id = self.use_id(id)?;
        if let Some(result) = self.req.results.get(&id) {
            return Ok(result);
        }
        if self.req.round >= MAX_ROUNDS {
            return self.wait(NEXT_ATTEMPT_DELAY, "all rounds of this attempt were used");
        }
        if self.intents.len() < limits::MAX_INTENTS {
            self.intents.push(Intent { id, operation }); // otherwise in the next round
        }
        self.stop(Verdict::new(Decision::Act))
    }

    /// Returns the id of an intent for that of a step, which must be unique in a run.
    fn use_id(&mut self, id: &str) -> Step<String> {
        let id = identifier(&format!("{}{id}", self.prefix));
        if !self.used_ids.insert(id.clone()) {
            return self.report_bug(format!("two steps have id {id}: use a unique id for each step"));
        }
        Ok(id)
    }
}
