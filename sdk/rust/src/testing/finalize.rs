use std::fmt::Display;

use super::call;
use crate::{Decision, Error, ErrorReason, HttpResult, Intent, IntentResult, Level, Operation, Request, ResultError, Verdict};

/// The number of rounds within an attempt.
const MAX_ROUNDS: i64 = 16;

/// The result of an attempt.
#[derive(Clone, Debug, PartialEq)]
pub struct FinalizeResult {
    /// The last verdict, which is not Act.
    pub verdict: Verdict,
    /// All intents, in this order.
    pub intents: Vec<Intent>,
    /// The number of evaluations.
    pub rounds: usize,
    /// The module's log.
    pub log: Vec<(Level, String)>,
    /// The request of the next attempt, after Wait: at a later time, and with the saved state.
    pub next: Request,
}

/// Evaluates a finalizer on a request, and again with the results of its intents until its decision
/// is not Act. World returns the result of an intent. Each round is a [`call`]. The error reports a
/// fault of the module, also if it still acts when the rounds of an attempt are used up.
pub fn finalize<E: Display>(
    handler: impl Fn(&Request) -> Result<Verdict, E>,
    request: &Request,
    mut world: impl FnMut(&Intent) -> IntentResult,
) -> Result<FinalizeResult, Error> {
    let mut r = request.clone();
    let (mut intents, mut log) = (Vec::new(), Vec::new());
    for rounds in 1.. {
        let answer = call(&handler, &r).map_err(|err| Error::new(format!("round {}: {err}", r.round)))?;
        log.extend(answer.log);
        if let Some(state) = &answer.verdict.state {
            r.state = Some(state.clone());
        }
        if answer.verdict.decision != Decision::Act {
            let next = next_attempt(r, &answer.verdict);
            return Ok(FinalizeResult { verdict: answer.verdict, intents, rounds, log, next });
        }
        if r.round >= MAX_ROUNDS {
            return Err(Error::new(format!(
                "round {}: still Act, but an attempt has {MAX_ROUNDS} rounds: decide Wait, and continue in the next attempt",
                r.round
            )));
        }
        for intent in answer.verdict.intents {
            r.results.insert(intent.id.clone(), world(&intent));
            intents.push(intent);
        }
        r.round += 1;
    }
    unreachable!()
}

/// Returns the first request of the next attempt.
fn next_attempt(mut r: Request, v: &Verdict) -> Request {
    r.time = r.time + v.wait_for();
    r.attempt += 1;
    r.round = 1;
    r.results.clear();
    r
}

/// Returns a world in which every HTTP request has this response, and every other intent is
/// Unavailable.
pub fn respond_with(status: i64, body: &str) -> impl Fn(&Intent) -> IntentResult {
    let body = body.to_string();
    move |intent| match intent.operation {
        Operation::Http(_) => {
            let http = Some(HttpResult { status, body: body.clone(), ..HttpResult::default() });
            IntentResult { http, ..IntentResult::default() }
        }
        Operation::Event(_) => IntentResult::default(),
        _ => error_result(ErrorReason::Unavailable, "only HTTP is supported"),
    }
}

/// Returns the result of an intent that was not carried out.
pub fn error_result(reason: ErrorReason, message: &str) -> IntentResult {
    IntentResult { error: Some(ResultError { reason, message: message.to_string() }), ..IntentResult::default() }
}
