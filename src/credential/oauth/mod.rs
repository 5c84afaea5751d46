//! The gateway as an OAuth client of the servers behind it: what servers and authorization servers
//! say, what they are asked, and what is believed of it. No sockets here: who fetches stands
//! elsewhere, and brings tokens through [`TokenSource`].
//!
//! `challenge.rs` reads what a server wants, `metadata.rs` documents about servers (RFC 9728, RFC
//! 8414), `request.rs` writes requests for tokens and reads their answers (RFC 6749), `client.rs`
//! says how the gateway proves to be the client it names, `signer.rs` signs (with `identity.rs`'s keys), `statement.rs` is what
//! it says of whoever calls, `grant.rs` what an employee has granted, and its sealed form, `settings.rs` what he says about a
//! server that he brings, `kept.rs` what the gateway keeps of itself as a client, `scopes.rs` how many scopes are believed.

mod challenge;
mod client;
mod grant;
mod identity;
mod kept;
mod metadata;
mod request;
mod scopes;
mod settings;
mod signer;
mod source;
mod statement;

#[cfg(test)]
mod tests;

pub use self::{
    challenge::Challenge,
    client::{Client, ClientProof},
    grant::Grant,
    identity::Identity,
    kept::{FirstIssuer, Registered},
    metadata::{AuthorizationServer, MetadataFault, ProtectedResource, secure, well_known},
    request::{AnswerFault, TokenAnswer, TokenRequest, TokenType},
    scopes::{bounded, scopes_of, union},
    settings::OwnSettings,
    signer::{Signer, SignerFault},
    source::{Asked, Asking, INVITED_MS, Refused, Token, TokenFault, TokenSource, TokensOf},
    statement::{NamedAs, Party, Statement},
};
