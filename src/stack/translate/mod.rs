//! Between dialects and the middle: northbound reads calls and writes replies, southbound
//! writes requests and reads answers.

mod batch;
mod give_up;
mod hold;
mod http_form;
mod inflight;
mod north_reply;
pub mod northbound;
pub mod southbound;
mod stream;

pub use inflight::Cancels;
