use std::time::Duration;

use super::errors::describe;
use super::{identifier, Step, Steps, NEXT_ATTEMPT_DELAY};
use crate::{ErrorReason, ListIntent, ListResult, Object, Operation};

/// Allows one intent for each object of a page in a round.
const DEFAULT_PAGE: u32 = 50;

/// An attempt starts no new page after this many rounds or bytes of lists: results accumulate until
/// it ends, in a request that is decoded in each round.
const PAGE_ROUNDS: i64 = 8;
const PAGE_BYTES: usize = 512 << 10;

impl<'r> Steps<'r> {
    /// Runs steps for each object of a list, page by page: 50 to a page, unless the intent has a
    /// limit. The steps for the objects of one page are independent, as in [`Steps::all`]; their ids
    /// must be unique within one object only. The run continues when all pages are finished. If
    /// objects are large, a limit keeps a page within the fuel of a call: 1 MiB of objects is well
    /// within the default.
    ///
    /// A long list takes several attempts; each starts at the page that the previous one did not
    /// finish. So steps before each may be repeated, and so may those for some objects. After a wait,
    /// a finished list is listed again: a list of deleted objects is empty then; put other steps into
    /// [`Steps::once`].
    pub fn each(&mut self, id: &str, mut intent: ListIntent, mut f: impl FnMut(&mut Self, &Object) -> Step<()>) -> Step<()> {
        self.check_running()?;
        if intent.limit == 0 {
            intent.limit = DEFAULT_PAGE;
        }
        let name = identifier(&format!("{}{id}", self.scope));
        intent.continue_token = self.saved.pages.get(&name).cloned().unwrap_or_default();
        let mut bytes = 0;
        for page in 1.. {
            self.saved.set_page(&name, &intent.continue_token);
            let list = self.page(&name, &format!("{id}.{page}"), &intent)?;
            self.for_each(&format!("{id}.{page}."), &format!("{id}."), &list.items, &mut f)?;
            if list.continue_token.is_empty() {
                break;
            }
            bytes += list.items.iter().map(|o| o.body.len()).sum::<usize>();
            intent.continue_token = list.continue_token.clone();
            let next = identifier(&format!("{}{id}.{}", self.prefix, page + 1));
            if !self.req.results.contains_key(&next) && (self.req.round > PAGE_ROUNDS || bytes > PAGE_BYTES) {
                self.saved.set_page(&name, &intent.continue_token);
                return self.wait(NEXT_ATTEMPT_DELAY, format!("more pages of {}", intent.kind));
            }
        }
        self.saved.set_page(&name, "");
        Ok(())
    }

    /// Lists a page. An expired token is discarded.
    fn page(&mut self, name: &str, id: &str, intent: &ListIntent) -> Step<&'r ListResult> {
        let operation = Operation::List(intent.clone());
        let result = self.perform(id, operation.clone())?;
        match (&result.error, &result.list) {
            (Some(err), _) if err.reason == ErrorReason::Expired => {
                self.saved.set_page(name, "");
                self.wait(NEXT_ATTEMPT_DELAY, format!("the continue token for {} has expired: listing again", intent.kind))
            }
            (Some(err), _) => self.handle_error(&operation, err),
            (None, Some(list)) => Ok(list),
            (None, None) => self.wait(Duration::ZERO, format!("{}: the result has no list", describe(&operation))),
        }
    }

    /// Runs the steps for the objects of a page.
    fn for_each(
        &mut self,
        prefix: &str,
        scope: &str,
        items: &[Object],
        f: &mut impl FnMut(&mut Self, &Object) -> Step<()>,
    ) -> Step<()> {
        let (outer_prefix, outer_scope) = (self.prefix.clone(), self.scope.clone());
        let mut branch = |s: &mut Self, item: &Object| {
            s.prefix = format!("{outer_prefix}{prefix}{}.", item.metadata.uid);
            s.scope = format!("{outer_scope}{scope}{}.", item.metadata.uid);
            f(s, item)
        };
        let mut left = items.iter();
        let returned = self.run_all(|s| left.next().map(|item| branch(s, item)));
        self.prefix = outer_prefix;
        self.scope = outer_scope;
        returned
    }
}
