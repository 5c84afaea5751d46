//! A server's state on its way through a client of 2026-07-28: sealed, and good for the same
//! call of the same employee alone.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready as ready_or_return},
};

use bytes::Bytes;
use pin_project_lite::pin_project;
use sha2::{Digest, Sha256};

use super::{
    super::stage::{Routed, SouthRequest, not_good},
    ANSWERS, ContinuationLayer, STATE, broken, is, params, params_mut, refused,
};
use crate::{
    dialect::questions,
    error::Error,
    identity::session::Owner,
    json::{self, Doc},
    model::{
        call::Target,
        caller::Caller,
        reply::{Final, Reply, ResultBody},
    },
};

/// What a state belongs to: who calls, and what for. Worked out where there is a state.
pub struct Binding {
    caller: Option<Arc<Caller>>,
    upstream: Arc<str>,
    request: SouthRequest,
}

impl Binding {
    pub(super) fn of(routed: &Routed) -> Self {
        Self {
            caller: routed.caller.clone(),
            upstream: routed.upstream.name.shared(),
            request: routed.request.clone(),
        }
    }

    /// The call in one text: the thing it is about, and a digest of all it says of it.
    fn about(&self) -> String {
        let mut canonical = Vec::new();
        let mut text = format!("{}\n", self.upstream);
        match &self.request {
            SouthRequest::CallTool { tool, arguments, .. } => {
                text.push_str("tools/call\n");
                text.push_str(&tool.qualified);
                json::canonical(arguments.as_deref().unwrap_or(b"{}"), &mut canonical);
            }
            SouthRequest::Ask { ask, .. } => {
                text.push_str(ask.method.as_str());
                text.push('\n');
                let (Target::Prompt(target)
                | Target::Resource(target)
                | Target::Template(target)
                | Target::Task(target)) = &ask.target;
                text.push_str(target);
            }
            SouthRequest::Probe
            | SouthRequest::List { .. }
            | SouthRequest::Listen(_)
            | SouthRequest::Subscribe { .. } => {}
        }
        if let Some(members) = params(&self.request) {
            let others = members
                .iter()
                .filter(|member| !is(&member.key, ANSWERS) && !is(&member.key, STATE));
            for member in others {
                canonical.push(b'\n');
                canonical.extend_from_slice(&member.key);
                canonical.push(b'\n');
                json::canonical(&member.value, &mut canonical);
            }
        }
        text.push('\n');
        text.extend(Sha256::digest(&canonical).iter().map(|byte| format!("{byte:02x}")));
        text
    }
}

impl ContinuationLayer {
    /// Opens the state that a call brings back.
    pub(super) fn open(&self, routed: &mut Routed) -> Result<(), Error> {
        let binding = Binding::of(routed);
        let caller = routed.caller.as_ref().ok_or_else(|| refused("nobody was asked"))?;
        let Some(members) = params_mut(&mut routed.request) else { return Ok(()) };
        for member in members.iter_mut().filter(|member| is(&member.key, STATE)) {
            let token = text(&member.value).ok_or_else(|| refused("`requestState` is no text"))?;
            let state = self
                .states
                .open(Owner::of(caller), &binding.about(), &token, self.clock.now_ms())
                .map_err(|_| not_good())?;
            let mut value = Vec::with_capacity(state.len() + 2);
            json::write_str(&mut value, &state);
            member.value = value.into();
        }
        Ok(())
    }

    /// Seals the state in a result that asks something.
    fn seal(&self, body: ResultBody, binding: &Binding) -> Result<ResultBody, Error> {
        if !body.shape.asks {
            return Ok(body);
        }
        let broken = |what: &str| broken(&binding.upstream, what);
        let round = questions::read(&body.raw).map_err(broken)?;
        let (Some(state), Some(caller)) = (round.state, &binding.caller) else { return Ok(body) };
        let token = self
            .states
            .seal(Owner::of(caller), &binding.about(), &state, self.clock.now_ms())
            .map_err(|cause| broken("its state is too long").with_cause(cause))?;
        questions::with_state(&body.raw, &token).ok_or_else(|| broken("it cannot be read"))
    }
}

fn text(value: &Bytes) -> Option<String> {
    let limits = json::Limits { depth: 1, duplicates: json::Duplicates::Allow, outline: 0 };
    let doc = Doc::parse(value.clone(), &limits).ok()?;
    doc.root().as_str().map(Into::into)
}

pin_project! {
    /// A call whose answer may hold a state.
    pub struct Sealing<F> {
        #[pin]
        inner: F,
        call: Option<(Arc<ContinuationLayer>, Binding)>,
    }
}

impl<F> Sealing<F> {
    pub(super) fn new(inner: F, layer: Arc<ContinuationLayer>, binding: Binding) -> Self {
        Self { inner, call: Some((layer, binding)) }
    }
}

impl<F> Future for Sealing<F>
where
    F: Future<Output = Result<Reply, Error>>,
{
    type Output = Result<Reply, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let reply = ready_or_return!(this.inner.poll(cx))?;
        let Some((layer, binding)) = this.call.take() else {
            return Poll::Ready(Ok(reply));
        };
        Poll::Ready(reply.map_end(move |end| match end {
            Ok(Final::Result(body)) => layer.seal(body, &binding).map(Final::Result),
            other => other,
        }))
    }
}
