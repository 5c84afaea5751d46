//! Records of what is no exchange with a client: starts and ends, gaps, policies, keys, and what
//! operators do.

use super::{AdminAction, Event, Gap, Layout, Object, PinChange, Writer, ids, key};
use crate::model::change::ChangeClass;

impl Writer {
    /// Appends a record of the log itself.
    pub fn own(&self, event: Event, gap: Option<Gap>, ms: u64, out: &mut Vec<u8>) -> Layout {
        let mut object = Object::open(out);
        let chain_at = object.mark();
        object.text(key!("event"), Some(event.as_str()));
        object.uuid(key!("id"), Some(ids::uuid_v7(ms)));
        object.text(key!("instance"), Some(&self.instance));
        if let Some(lost) = gap.map(|gap| gap.lost).filter(|lost| *lost > 0) {
            object.number(key!("lost"), lost);
        }
        object.text(key!("reason"), gap.map(|gap| gap.reason));
        let seq_at = object.mark();
        if let Some(torn) = gap.map(|gap| gap.torn).filter(|torn| *torn > 0) {
            object.number(key!("torn"), torn);
        }
        object.time(key!("ts"), ms);
        object.close();
        Layout { chain_at, seq_at }
    }

    /// Appends a record of a change of policies: of the revision that is in force after it, and
    /// of how many faults a rejected one had.
    pub fn policy(&self, revision: &str, faults: usize, ms: u64, out: &mut Vec<u8>) -> Layout {
        let event = if faults == 0 { Event::PolicyApplied } else { Event::PolicyRejected };
        let mut object = Object::open(out);
        let chain_at = object.mark();
        object.text(key!("event"), Some(event.as_str()));
        if faults > 0 {
            object.number(key!("faults"), faults as u64);
        }
        object.uuid(key!("id"), Some(ids::uuid_v7(ms)));
        object.text(key!("instance"), Some(&self.instance));
        object.text(key!("revision"), Some(revision));
        let seq_at = object.mark();
        object.time(key!("ts"), ms);
        object.close();
        Layout { chain_at, seq_at }
    }

    /// Appends a record of a change of the keyring: each key, and its state from here on.
    pub fn keyring(&self, keys: &[(String, &str)], ms: u64, out: &mut Vec<u8>) -> Layout {
        let mut object = Object::open(out);
        let chain_at = object.mark();
        object.text(key!("event"), Some(Event::KeyRotation.as_str()));
        object.uuid(key!("id"), Some(ids::uuid_v7(ms)));
        object.text(key!("instance"), Some(&self.instance));
        object.nested(key!("keys"), |object| {
            let of = |state| keys.iter().filter(move |key| key.1 == state).map(|(id, _)| &**id);
            object.texts(key!("destroyed"), of("destroyed"));
            object.texts(key!("pending"), of("pending"));
            object.texts(key!("primary"), of("primary"));
            object.texts(key!("retiring"), of("retiring"));
        });
        let seq_at = object.mark();
        object.time(key!("ts"), ms);
        object.close();
        Layout { chain_at, seq_at }
    }

    /// Appends a record of what an operator did.
    pub fn action(&self, action: &AdminAction<'_>, ms: u64, out: &mut Vec<u8>) -> Layout {
        let mut object = Object::open(out);
        object.text(key!("action"), Some(action.what));
        let chain_at = object.mark();
        object.text(key!("event"), Some(Event::AdminAction.as_str()));
        object.uuid(key!("id"), Some(ids::uuid_v7(ms)));
        object.text(key!("instance"), Some(&self.instance));
        object.text(
            key!("outcome"),
            Some(match action.status {
                ..400 => "ok",
                401 | 403 => "denied",
                400..500 => "caller_error",
                _ => "gateway_error",
            }),
        );
        if let Some(who) = action.who {
            object.nested(key!("principal"), |principal| {
                principal.text(key!("auth"), Some("admin_token"));
                principal.text(key!("caller"), Some(who));
            });
        }
        let seq_at = object.mark();
        object.nested(key!("source"), |source| source.display(key!("address"), &action.address));
        object.number(key!("status"), action.status.into());
        if let Some(target) = action.target {
            object.caller_text(key!("target"), target);
        }
        object.time(key!("ts"), ms);
        object.close();
        Layout { chain_at, seq_at }
    }

    /// Appends a record of what became of a tool's definition.
    pub fn pin_change(&self, change: &PinChange<'_>, ms: u64, out: &mut Vec<u8>) -> Layout {
        let mut object = Object::open(out);
        object.text(key!("action"), Some(change.what));
        let chain_at = object.mark();
        object.texts(key!("classes"), change.classes.iter().map(ChangeClass::as_str));
        object.text(key!("event"), Some(Event::PinChange.as_str()));
        object.uuid(key!("id"), Some(ids::uuid_v7(ms)));
        object.text(key!("instance"), Some(&self.instance));
        object.pin(change.pin);
        if let Some(by) = change.by {
            object.nested(key!("principal"), |principal| {
                principal.text(key!("auth"), Some("admin_token"));
                principal.text(key!("caller"), Some(by));
            });
        }
        if let Some(version) = change.version {
            object.number(key!("schemaVersion"), version);
        }
        let seq_at = object.mark();
        // A server chooses it.
        object.caller_text(key!("tool"), change.tool);
        object.time(key!("ts"), ms);
        object.text(key!("upstream"), Some(change.upstream));
        object.close();
        Layout { chain_at, seq_at }
    }
}
