//! Why somebody may or may not use something: what `hangu policy explain` answers, by the
//! policies in force.

use futures_util::FutureExt;
use http::Method;

use super::{Asked, Failure, Parameter, Route, tokens::Need};
use crate::{
    error::Code,
    model::caller::{CallerId, EmployeeId, Role, Roles, TenantId},
    policy::{Asker, Family, Named, Question},
};

pub(super) const EXPLAIN: Route = Route {
    id: "explain",
    method: Method::GET,
    path: "/admin/api/explain",
    summary: "A decision, told rule by rule, with the smallest change that would turn it. One of \
              `tool`, `prompt` and `resource` is needed.",
    need: Need::Look,
    action: None,
    query: &[
        Parameter { name: "tenant", what: "The tenant.", required: true },
        Parameter {
            name: "roles",
            what: "Roles, separated by commas; without them, those of the directory.",
            required: false,
        },
        Parameter { name: "employee", what: "The employee's id.", required: false },
        Parameter { name: "caller", what: "The caller's name.", required: false },
        Parameter { name: "tool", what: "UPSTREAM/TOOL", required: false },
        Parameter { name: "prompt", what: "UPSTREAM/PROMPT", required: false },
        Parameter { name: "resource", what: "UPSTREAM/URI", required: false },
        Parameter {
            name: "args",
            what: "The arguments of a call, a JSON object; without them, the list is explained.",
            required: false,
        },
    ],
    body: None,
    run: |api, asked| {
        async move {
            let question = question(&asked)?;
            api.gateway.explain(&question).map_err(|why| Failure::new(Code::NotFound, why))
        }
        .boxed()
    },
};

fn question(asked: &Asked<'_>) -> Result<Question, Failure> {
    let wrong = |message: String| Failure::new(Code::InvalidArgs, message);
    let tenant = asked.parameter("tenant").ok_or_else(|| wrong("`tenant` is missing".into()))?;
    let employee = match asked.parameter("employee") {
        None => None,
        Some(text) => {
            let id = EmployeeId::parse(&text);
            Some(id.ok_or_else(|| wrong("`employee` is 1 to 64 of `A-Z a-z 0-9 . _ @ -`".into()))?)
        }
    };
    let items =
        [(Family::Tools, "tool"), (Family::Prompts, "prompt"), (Family::Resources, "resource")];
    let mut items = items
        .into_iter()
        .filter_map(|(family, name)| asked.parameter(name).map(|text| (family, name, text)));
    let item = match (items.next(), items.next()) {
        (Some((family, name, text)), None) => {
            Named::parse(family, &text).map_err(|why| wrong(format!("`{name}` {why}")))?
        }
        _ => return Err(wrong("give one of `tool`, `prompt` and `resource`".into())),
    };
    let arguments = match asked.parameter("args") {
        None => None,
        Some(text) => match serde_json::from_str::<serde_json::Value>(&text) {
            Ok(value) if value.is_object() => Some(text.into()),
            _ => return Err(wrong("`args` is no JSON object".into())),
        },
    };
    let roles = asked
        .parameter("roles")
        .map(|roles| Roles::new(roles.split(',').filter(|role| !role.is_empty()).map(Role::new)));
    let asker = Asker {
        tenant: TenantId::new(tenant),
        caller: asked.parameter("caller").map(CallerId::new),
        employee,
        roles,
    };
    Ok(Question { asker, item, arguments })
}
