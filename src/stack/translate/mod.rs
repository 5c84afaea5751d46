//! Between dialects and the middle: northbound reads calls and writes replies, southbound
//! writes requests and reads answers.

mod answer;
pub mod northbound;
mod session_calls;
pub mod southbound;
mod stream;
