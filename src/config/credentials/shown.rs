//! `auth:` as it is in effect, in the words of the file and without a secret.

use serde_json::{Value, json};

use super::{AsClient, TokensAt, UpstreamAuth};
use crate::{
    config::shown::SECRET,
    credential::oauth::ClientProof,
    model::caller::{EmployeeId, TenantId},
    yaml::duration_text,
};

impl UpstreamAuth {
    pub(in crate::config) fn shown(&self) -> Value {
        let mut shown = match self {
            UpstreamAuth::None | UpstreamAuth::Employee => json!({}),
            UpstreamAuth::Client(own) => {
                let mut shown = client(&own.as_client);
                shown["scope"] = json!(own.scope);
                shown["resource"] = json!(own.resource);
                shown
            }
            UpstreamAuth::Consent(consent) => json!({
                "client_id": consent.client.as_ref().map(|client| &client.id),
                "issuer": consent.issuer,
                "scope": consent.scope,
                "listing": listing(consent.listing.as_ref()),
            }),
            UpstreamAuth::Signed(signed) => json!({
                "issuer": signed.issuer,
                "subject": signed.subject,
                "audience": signed.audience,
                "employee_as": signed.employee_as.as_str(),
                "scope": signed.scope,
                "lifetime": duration_text(signed.lifetime),
            }),
            UpstreamAuth::Exchange(exchange) => {
                let mut shown = client(&exchange.as_client);
                shown["scope"] = json!(exchange.scope);
                shown["resource"] = json!(exchange.resource);
                shown["audience"] = json!(exchange.audience);
                shown["requested_token_type"] = json!(exchange.requested.map(|it| it.as_str()));
                shown["actor_token"] = json!(exchange.actor_token);
                shown["listing"] = listing(exchange.listing.as_ref());
                shown
            }
        };
        shown["type"] = self.word().into();
        shown
    }
}

fn client(as_client: &AsClient) -> Value {
    let mut shown = json!({ "client_id": as_client.client.id });
    match &as_client.client.proof {
        _ if as_client.own_key => shown["key"] = "gateway".into(),
        ClientProof::None => {}
        ClientProof::Key(_) => shown["key"] = SECRET.into(),
        ClientProof::Secret(_) => shown["client_secret"] = SECRET.into(),
        ClientProof::SecretInBody(_) => {
            shown["client_secret"] = SECRET.into();
            shown["secret_in"] = "body".into();
        }
    }
    match &as_client.at {
        TokensAt::Url(url) => shown["token_url"] = url.as_str().into(),
        TokensAt::Issuer(issuer) => shown["issuer"] = issuer.as_str().into(),
        TokensAt::Discovered => {}
    }
    shown
}

fn listing(of: Option<&(TenantId, EmployeeId)>) -> Value {
    of.map_or(
        Value::Null,
        |(tenant, employee)| json!({ "tenant": tenant.as_str(), "empId": employee.as_str() }),
    )
}
