use std::time::Duration;

use super::{identifier, Step, Steps};
use crate::json::Value;
use crate::{limits, Decision, Time, Verdict};

impl<'r> Steps<'r> {
    /// Stops the run. The next attempt starts after the given time: 30s if it is 0.
    pub fn wait<T>(&mut self, after: Duration, reason: impl Into<String>) -> Step<T> {
        let mut after = if after == Duration::ZERO { limits::DEFAULT_WAIT } else { after };
        if let Some(at) = self.give_up_at {
            after = after.min(at.since(self.req.time));
        }
        after = after.clamp(limits::MIN_WAIT, limits::MAX_DURATION);
        self.stop(Verdict { after: Some(after), ..Verdict::new(Decision::Wait).because(reason) })
    }

    /// Waits unless a condition holds. The steps before it are repeated each time.
    pub fn until(&mut self, condition: bool, every: Duration, reason: impl Into<String>) -> Step<()> {
        if condition {
            return self.check_running();
        }
        self.wait(every, reason)
    }

    /// Stops the run permanently: the object is kept until someone intervenes.
    pub fn fail<T>(&mut self, reason: impl Into<String>) -> Step<T> {
        self.stop(Verdict::new(Decision::Fail).because(reason))
    }

    /// Stops the run, and removes the finalizer.
    pub fn done<T>(&mut self, reason: impl Into<String>) -> Step<T> {
        self.stop(Verdict::new(Decision::Done).because(reason))
    }

    /// Returns a value, or fails the run with the error, for what only a person can correct, such as
    /// invalid settings.
    pub fn or_fail<T, E: std::fmt::Display>(&mut self, value: Result<T, E>) -> Step<T> {
        self.check_running()?;
        value.or_else(|err| self.fail(err.to_string()))
    }

    /// Returns the given time before the object's deadline; None if it has no deadline. It is for
    /// [`Steps::give_up_by`].
    pub fn deadline(&self, left: Duration) -> Option<Time> {
        self.req.deadline.map(|at| at - left)
    }

    /// Returns the given time after the object was deleted. It is for [`Steps::give_up_by`].
    pub fn after_deletion(&self, d: Duration) -> Option<Time> {
        self.req.object.metadata.deletion_timestamp.map(|at| at + d)
    }

    /// Runs f instead of the following steps once a time is reached. After f, the decision is Done,
    /// unless f fails or waits. Until then, no wait extends beyond the time. None is never reached.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use gleaner::finalize::{Step, Steps};
    /// # fn steps(s: &mut Steps) -> Step<()> {
    /// s.give_up_by(s.deadline(Duration::from_secs(60)), |s| {
    ///     s.warn("gave-up", "BucketLeft", "the bucket did not become empty in time")
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn give_up_by(&mut self, at: Option<Time>, f: impl FnOnce(&mut Self) -> Step<()>) -> Step<()> {
        self.check_running()?;
        let at = match at {
            Some(at) => at,
            None => return Ok(()),
        };
        if self.req.time < at {
            self.give_up_at = Some(self.give_up_at.map_or(at, |earlier| earlier.min(at)));
            return Ok(());
        }
        f(self)?;
        self.done(format!("gave up: not done by {at}"))
    }

    /// Runs branches that do not depend on each other, and requests their intents in the same round.
    /// The steps of one branch are sequential. The run continues when all branches are finished; if
    /// one of them fails or waits, the pending intents of the others are carried out first.
    ///
    /// ```
    /// # use gleaner::{finalize::{Step, Steps}, Target};
    /// # fn steps(s: &mut Steps) -> Step<()> {
    /// # let (a, b) = (Target::default(), Target::default());
    /// s.all(&mut [&mut |s| s.get("a", a.clone()).map(drop), &mut |s| s.get("b", b.clone()).map(drop)])?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn all(&mut self, branches: &mut [&mut dyn FnMut(&mut Self) -> Step<()>]) -> Step<()> {
        let mut branches = branches.iter_mut();
        self.run_all(|s| branches.next().map(|f| f(s)))
    }

    /// Runs branches as [`Steps::all`] does, until next has none left.
    pub(super) fn run_all(&mut self, mut next: impl FnMut(&mut Self) -> Option<Step<()>>) -> Step<()> {
        self.check_running()?;
        let mut ends = Vec::new();
        while let Some(returned) = next(self) {
            match (self.end.take(), returned) {
                (_, returned) if self.bug.is_some() => return returned,
                (Some(end), _) => ends.push(end),
                (None, Err(stop)) => return Err(stop), // an error of the branch
                (None, Ok(())) => (),
            }
        }
        self.end = first_to_apply(ends);
        self.check_running()
    }

    /// Runs steps that must not be repeated in later attempts. That they are finished is kept in the
    /// state, their results are not: save what later steps need with [`Steps::save_state`].
    ///
    /// If the operator stops after a step and before the state is saved, the step is repeated. If
    /// that matters, use the request's idempotency key.
    pub fn once(&mut self, id: &str, f: impl FnOnce(&mut Self) -> Step<()>) -> Step<()> {
        let name = identifier(&format!("{}{id}", self.scope));
        self.check_running()?;
        if self.saved.done.contains(&name) {
            return Ok(());
        }
        f(self)?;
        self.check_running()?;
        self.saved.done.push(name);
        Ok(())
    }

    /// Saves a value for later runs, which read it with [`Steps::load_state`]. It replaces the
    /// previous value. Together with the state of the steps it may have 4 KiB of JSON.
    pub fn save_state(&mut self, state: Value) -> Step<()> {
        self.check_running()?;
        self.saved.own = Some(state);
        Ok(())
    }

    /// Returns the saved value, if there is one.
    pub fn load_state(&self) -> Step<Option<Value>> {
        self.check_running()?;
        Ok(self.saved.own.clone())
    }
}

/// Returns the verdict that takes precedence: Act, then Fail, then the shortest Wait, then Done. None
/// continues the run.
fn first_to_apply(ends: Vec<Verdict>) -> Option<Verdict> {
    let rank = |v: &Verdict| match v.decision {
        Decision::Act => 0,
        Decision::Fail => 1,
        Decision::Wait => 2,
        _ => 3,
    };
    ends.into_iter().min_by_key(|v| (rank(v), v.after)) // the first of those that are equal
}
