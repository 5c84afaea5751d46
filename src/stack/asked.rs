//! What clients of the handshake era have been asked and not yet answered.
//!
//! `continuation` asks; the responses that clients post find their question here, by session and
//! id. What is asked, and what an answer means, it does not know.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use dashmap::DashMap;
use tokio::sync::mpsc;

use super::parked::{Holder, QuestionLimits};
use crate::{
    error::{Code, Error},
    model::{caller::EmployeeId, reply::RpcError},
};

/// A session, by the name that records use.
type SessionHash = [u8; 8];

/// What a client said to a question.
#[derive(Debug, Clone)]
pub enum Answer {
    /// The raw `result`.
    Result(Bytes),
    Error(RpcError),
}

struct Open {
    /// Of the employee who is asked; a session may serve several.
    employee: Option<EmployeeId>,
    /// The question's place among those that were asked with it.
    place: usize,
    answers: mpsc::UnboundedSender<(usize, Answer)>,
}

/// The open questions, of all cores.
pub struct Asked {
    limits: QuestionLimits,
    open: DashMap<(SessionHash, Box<str>), Open>,
    calls: AtomicUsize,
    /// Of one who is asked, in however many sessions: opening one costs nothing.
    each: DashMap<Holder, usize>,
}

impl Asked {
    pub fn new(limits: QuestionLimits) -> Self {
        Self { limits, open: DashMap::new(), calls: AtomicUsize::new(0), each: DashMap::new() }
    }

    pub fn limits(&self) -> &QuestionLimits {
        &self.limits
    }

    /// Opens so many questions of one call at once; they close with what this returns.
    ///
    /// # Errors
    /// As many calls of the holder's, or of all, wait as may.
    pub fn ask(
        self: &Arc<Self>,
        holder: Holder,
        session: SessionHash,
        employee: Option<EmployeeId>,
        questions: usize,
    ) -> Result<Asking, Error> {
        let place = self.place(holder)?;
        let (answers, answered) = mpsc::unbounded_channel();
        let ids: Vec<Box<str>> = (0..questions)
            .map(|place| {
                // No other replica of the gateway may take this answer for one to itself.
                let id: Box<str> = format!("g-{:016x}", rand::random::<u64>()).into();
                let open = Open { employee: employee.clone(), place, answers: answers.clone() };
                self.open.insert((session, id.clone()), open);
                id
            })
            .collect();
        Ok(Asking { of: self.clone(), session, ids, answered, got: HashMap::new(), _place: place })
    }

    /// A place among the calls that wait for somebody; given back when it is dropped.
    ///
    /// # Errors
    /// As many calls of the holder's, or of all, wait as may.
    pub fn place(self: &Arc<Self>, holder: Holder) -> Result<Place, Error> {
        self.reserve(&holder)?;
        Ok(Place { of: self.clone(), holder })
    }

    /// Takes a client's response; false where nothing was asked under that id.
    pub fn answer(
        &self,
        session: SessionHash,
        employee: Option<&EmployeeId>,
        id: &str,
        answer: Answer,
    ) -> bool {
        let key = (session, id.into());
        let open = self.open.remove_if(&key, |_, open| open.employee.as_ref() == employee);
        // Whoever asked may have gone since.
        open.is_some_and(|(_, open)| open.answers.send((open.place, answer)).is_ok())
    }

    fn reserve(&self, holder: &Holder) -> Result<(), Error> {
        let full = |limit: &'static str| {
            Error::new(Code::RateLimited, "as many questions wait for an answer as may")
                .with_limit(limit)
                .with_retry_after(Duration::from_secs(1))
        };
        if self.calls.fetch_add(1, Ordering::Relaxed) >= self.limits.max_open {
            self.calls.fetch_sub(1, Ordering::Relaxed);
            return Err(full("questions.max_open"));
        }
        let mut each = self.each.entry(holder.clone()).or_insert(0);
        if *each >= self.limits.max_open_each {
            drop(each);
            self.calls.fetch_sub(1, Ordering::Relaxed);
            return Err(full("questions.max_open_each"));
        }
        *each += 1;
        Ok(())
    }
}

/// The questions of one call. Dropped, they are open no longer.
pub struct Asking {
    of: Arc<Asked>,
    session: SessionHash,
    ids: Vec<Box<str>>,
    answered: mpsc::UnboundedReceiver<(usize, Answer)>,
    got: HashMap<usize, Answer>,
    _place: Place,
}

/// A place among the calls that wait.
pub struct Place {
    of: Arc<Asked>,
    holder: Holder,
}

impl Asking {
    /// Under which the client answers, in the order of the questions.
    pub fn ids(&self) -> &[Box<str>] {
        &self.ids
    }

    /// Waits until every question is answered; the answers stand in the order of the questions.
    /// Dropped before that, it keeps what has come.
    pub async fn all(&mut self) -> Vec<Answer> {
        while self.got.len() < self.ids.len() {
            // There is a sender as long as a question is open.
            let Some((place, answer)) = self.answered.recv().await else { break };
            self.got.insert(place, answer);
        }
        (0..self.ids.len()).filter_map(|place| self.got.remove(&place)).collect()
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        for id in self.ids.drain(..) {
            self.of.open.remove(&(self.session, id));
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.of.calls.fetch_sub(1, Ordering::Relaxed);
        if let Some(mut each) = self.of.each.get_mut(&self.holder) {
            *each -= 1;
        }
        self.of.each.remove_if(&self.holder, |_, each| *each == 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::server::UpstreamName;

    const LIMITS: QuestionLimits =
        QuestionLimits { answer: Duration::from_secs(1), rounds: 2, max_open: 3, max_open_each: 2 };

    fn holder(upstream: &str) -> Holder {
        Holder::new(&UpstreamName::parse(upstream).unwrap(), None)
    }

    fn result(text: &'static str) -> Answer {
        Answer::Result(Bytes::from_static(text.as_bytes()))
    }

    #[tokio::test]
    async fn answers_find_their_questions_in_whatever_order() {
        let asked = Arc::new(Asked::new(LIMITS));
        let employee = EmployeeId::parse("E1");
        let mut asking = asked.ask(holder("a"), [1; 8], employee.clone(), 2).unwrap();
        let ids = asking.ids().to_vec();
        assert_ne!(ids[0], ids[1]);
        let answer = |session, who: Option<&EmployeeId>, id: &str, text| {
            asked.answer(session, who, id, result(text))
        };
        // Another session's, another employee's, an invented one.
        assert!(!answer([2; 8], employee.as_ref(), &ids[0], "x"));
        assert!(!answer([1; 8], EmployeeId::parse("E2").as_ref(), &ids[0], "x"));
        assert!(!answer([1; 8], None, &ids[0], "x"));
        assert!(!answer([1; 8], employee.as_ref(), "g-0", "x"));
        assert!(answer([1; 8], employee.as_ref(), &ids[1], "second"));
        assert!(answer([1; 8], employee.as_ref(), &ids[0], "first"));
        assert!(!answer([1; 8], employee.as_ref(), &ids[0], "again"), "answered already");
        let all = asking.all().await;
        let texts: Vec<_> = all
            .iter()
            .map(|answer| match answer {
                Answer::Result(text) => std::str::from_utf8(text).unwrap(),
                Answer::Error(_) => "an error",
            })
            .collect();
        assert_eq!(texts, ["first", "second"]);
    }

    #[tokio::test]
    async fn what_nobody_waits_for_is_not_open() {
        let asked = Arc::new(Asked::new(LIMITS));
        let ask = |whose, session| asked.ask(holder(whose), session, None, 2);
        let first = ask("a", [1; 8]).unwrap();
        let second = ask("a", [2; 8]).unwrap();
        // In whatever session.
        assert_eq!(ask("a", [3; 8]).err().unwrap().limit(), Some("questions.max_open_each"));
        let third = ask("b", [2; 8]).unwrap();
        assert_eq!(ask("b", [2; 8]).err().unwrap().limit(), Some("questions.max_open"));
        let id = first.ids()[0].clone();
        drop(first);
        assert!(!asked.answer([1; 8], None, &id, result("late")));
        assert_eq!(asked.open.len(), 4);
        assert!(ask("a", [1; 8]).is_ok());
        drop((second, third));
        assert!(asked.each.is_empty() && asked.open.is_empty());
    }
}
