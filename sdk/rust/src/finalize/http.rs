use std::time::Duration;

use super::errors::{backoff, describe};
use super::{truncate, Step, Steps};
use crate::{HttpIntent, HttpResult, Operation};

impl<'r> Steps<'r> {
    /// Sends a request and returns the response, with any status. [`Steps::call`] also checks the
    /// status.
    pub fn http(&mut self, id: &str, intent: HttpIntent) -> Step<HttpResult> {
        let operation = Operation::Http(intent);
        let result = self.perform(id, operation.clone())?;
        match (&result.error, &result.http) {
            (Some(err), _) => self.handle_error(&operation, err),
            (None, Some(response)) => Ok(response.clone()),
            (None, None) => self.wait(Duration::ZERO, format!("{}: the result has no response", describe(&operation))),
        }
    }

    /// Sends a request and checks its status: the response for 2xx, None for 404 and 410. For others
    /// see [`Steps::check`].
    pub fn call(&mut self, id: &str, intent: HttpIntent) -> Step<Option<HttpResult>> {
        let what = describe(&Operation::Http(intent.clone()));
        let response = self.http(id, intent)?;
        let found = self.check_status(&what, &response)?;
        Ok(Some(response).filter(|_| found))
    }

    /// Checks the status of a response: true for 2xx, false for 404 and 410. With 408, 425, 429 and
    /// 5xx the run waits, at least for the duration of Retry-After; with any other it fails, with
    /// the status and the beginning of the body.
    pub fn check(&mut self, response: &HttpResult) -> Step<bool> {
        self.check_running()?;
        self.check_status("the request", response)
    }

    fn check_status(&mut self, what: &str, response: &HttpResult) -> Step<bool> {
        match response.status {
            200..=299 => Ok(true),
            404 | 410 => Ok(false),
            408 | 425 | 429 | 500.. => {
                let after = backoff(self.req.attempt).max(retry_after(response));
                self.wait(after, format_response(what, response))
            }
            _ => self.fail(format_response(what, response)),
        }
    }
}

/// Formats a response for people.
fn format_response(what: &str, response: &HttpResult) -> String {
    let text = format!("{what} returned status {}", response.status);
    match response.body.trim() {
        "" => text,
        body => format!("{text}: {}", truncate(body, 256)),
    }
}

/// Returns the duration of Retry-After, up to an hour. Dates are ignored.
fn retry_after(response: &HttpResult) -> Duration {
    let seconds = response.headers.get("Retry-After").and_then(|text| text.trim().parse::<u64>().ok());
    Duration::from_secs(seconds.unwrap_or(0).min(3600))
}
