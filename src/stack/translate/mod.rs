//! Between dialects and the middle: northbound reads calls and writes replies, southbound
//! writes requests and reads answers.

mod again;
mod batch;
mod give_up;
mod hold;
mod http_form;
mod inflight;
mod legacy;
mod listen;
mod listening;
mod marks;
mod north_reply;
pub mod northbound;
mod outgoing;
mod park;
mod reconnect;
mod resume;
mod side;
pub mod southbound;
mod stream;

pub use inflight::Cancels;
pub use north_reply::{QUESTION, lite_body, whole};
pub use resume::{ResumeLimits, Streams};
pub use side::SideStreams;
