//! The policy files as JSON Schema (draft 7), for editors: completion, words and a first check.
//!
//! This is the one description of the files' keys besides the readers, and a test holds the two
//! together. What a reader checks beyond types and words is not repeated here.

mod parts;

use serde_json::{Value, json};

use self::parts::{list, map_of, named, object, text, texts, words};
use super::document::words as known;
use crate::{model::change::ChangeClass, yaml::RISKS};

/// The schema of each kind of document: the name of its file, and its text.
pub fn schemas() -> [(&'static str, String); 4] {
    [
        ("policy.v1.json", policy()),
        ("tools.v1.json", tools()),
        ("directory.v1.json", directory()),
        ("policytest.v1.json", cases()),
    ]
    .map(|(name, schema)| (name, format!("{schema:#}\n")))
}

fn document(kind: &str, about: &str, own: Vec<parts::Key>) -> Value {
    let mut keys = vec![
        named("version", json!({ "const": "hangu/v1" }), "The version of the format.").required(),
        named("kind", json!({ "const": kind }), "What the document is.").required(),
    ];
    keys.extend(own);
    let mut schema = json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": format!("Hangu: kind {kind}"),
        "description": about,
    });
    if let (Some(schema), Value::Object(object)) = (schema.as_object_mut(), object(keys)) {
        schema.extend(object);
    }
    schema
}

fn risks() -> Value {
    list(words(RISKS.known))
}

fn policy() -> Value {
    let scope = json!({ "oneOf": [
        words(known::PLATFORM.known),
        object(vec![named("tenant", text(), "The tenant's name.").required()]),
    ] });
    document(
        "Policy",
        "What holds in one scope: rules, limits and quotas.",
        vec![
            named("scope", scope, "Every tenant, or one.").required(),
            named("mode", words(known::MODES.known), "shadow: only look at what it would decide."),
            named("roles", map_of(role()), "Which claims give a role, and what comes with it."),
            named("rules", list(rule()), "Who may do what. What no rule allows is not there."),
            named("limits", list(limit()), "How fast, and how many at once."),
            named("quotas", list(quota()), "How much in a calendar window."),
            named("self_service", self_service(), "Which servers employees may register."),
        ],
    )
}

fn role() -> Value {
    object(vec![
        named("claim", text(), "A claim of the token, or a JSON pointer into one."),
        named("any", texts(), "Values of the claim that give the role."),
        named("includes", texts(), "Roles that come with this one."),
    ])
}

/// What narrows a rule to items.
fn globs() -> [parts::Key; 3] {
    [
        named("tools", texts(), "Globs over `upstream/tool`."),
        named("prompts", texts(), "Globs over `upstream/prompt`."),
        named("resources", texts(), "Globs over `upstream/URI`."),
    ]
}

fn rule() -> Value {
    let when = json!({ "oneOf": [predicate(), list(predicate())] });
    let mut keys = vec![
        named("id", text(), "Told in records and headers; unique in its scope.").required(),
        named("effect", words(known::EFFECTS.known), "deny beats require_approval beats allow.")
            .required(),
        named("roles", texts(), "Only employees with one of these roles."),
        named("callers", texts(), "Only through one of these callers."),
        named("risk", risks(), "Only tools of one of these risks."),
    ];
    keys.extend(globs());
    keys.extend([
        named("when", when, "Conditions on the arguments: all must hold."),
        named("say", text(), "Why, in a sentence for people."),
        named("approval", approval(), "Who is asked; only with require_approval."),
        named("rollout", rollout(), "To whom it is open already; only with allow."),
    ]);
    object(keys)
}

fn predicate() -> Value {
    let scalar = || json!({ "type": ["string", "number", "boolean", "null"] });
    let count = || json!({ "type": "integer", "minimum": 0 });
    object(vec![
        named("arg", json!({ "type": "string", "pattern": "^/" }), "A JSON pointer.").required(),
        named("eq", scalar(), "Equals this."),
        named("in", list(scalar()), "Is one of these."),
        named("not_in", list(scalar()), "Is none of these, or absent."),
        named("prefix", text(), "Begins so."),
        named("glob", text(), "Matches this glob."),
        named("range", list(json!({ "type": ["number", "null"] })), "Two ends, both included."),
        named("max_len", count(), "At most so many characters or elements."),
        named("regex", text(), "Matches this expression somewhere."),
    ])
}

fn approval() -> Value {
    object(vec![
        named("roles", texts(), "Employees with one of these roles decide."),
        named("count", json!({ "type": "integer", "minimum": 1 }), "So many of them."),
        named("not_requester", json!({ "const": true }), "Never the one who asks."),
        named("expires", duration(), "How long a request waits."),
        named("confirm", words(known::CONFIRM.known), "Ask the requester himself."),
    ])
}

fn rollout() -> Value {
    let percent = json!({ "type": "integer", "minimum": 0, "maximum": 100 });
    object(vec![
        named("percent", percent, "Of a hundred employees."),
        named("employees", texts(), "These employees."),
        named("teams", texts(), "The employees of these teams."),
    ])
}

fn duration() -> Value {
    json!({ "type": "string", "pattern": "^[0-9]+(ms|s|m|h|d)$" })
}

fn self_service() -> Value {
    let share = json!({ "oneOf": [
        { "const": false },
        object(vec![named("roles", texts(), "Employees with one of these roles.").required()]),
    ] });
    let most = json!({ "type": "integer", "minimum": 1, "maximum": 1000 });
    let service = object(vec![
        named("roles", texts(), "Employees with one of these roles register."),
        named(
            "hosts",
            texts(),
            "Where: HOST, *.DOMAIN, with :PORT or :* behind it; http:// before it where credentials may go unencrypted.",
        ),
        named("max_each", most, "So many each."),
        named("share", share, "Who shares with a team of his."),
        named("default", item(), "How their tools are treated."),
    ]);
    json!({ "oneOf": [{ "const": "off" }, service] })
}

/// What limits and quotas have in common.
fn counted() -> Vec<parts::Key> {
    vec![
        named("id", text(), "Told when it is reached; unique in its scope.").required(),
        named("per", list(words(known::KEYS.known)), "What is counted apart.").required(),
        named("tenants", texts(), "Only these tenants; only in the platform's scope."),
        named("upstreams", texts(), "Only these upstreams."),
        named("tools", texts(), "Globs over `upstream/tool`."),
        named("risk", risks(), "Only tools of one of these risks."),
    ]
}

fn limit() -> Value {
    let one = || json!({ "type": "integer", "minimum": 1 });
    let mut keys = counted();
    keys.extend([
        named(
            "rate",
            json!({ "type": "string", "pattern": "^[0-9]+/[0-9]+(ms|s|m|h|d)$" }),
            "So many in such a time.",
        ),
        named("burst", one(), "So many at once, after a pause."),
        named("concurrency", one(), "So many at the same time."),
        named("queue", json!({ "type": "integer", "minimum": 0 }), "So many wait for a slot."),
        named("wait", duration(), "How long they wait."),
        named("store_down", words(known::STORE_DOWN.known), "Without the shared store."),
    ]);
    object(keys)
}

fn quota() -> Value {
    let percent = json!({ "type": "string", "pattern": "^[0-9]+%$" });
    let budget = object(vec![
        named("cost", json!({ "type": "integer", "minimum": 1 }), "Cost units.").required(),
        named("every", words(known::WINDOWS.known), "The calendar window.").required(),
        named("zone", text(), "The zone whose calendar counts.").required(),
    ]);
    let step = object(vec![
        named("at", percent, "Once so much is spent.").required(),
        named("do", words(known::DOES.known), "What happens.").required(),
        named("cost_at_least", json!({ "type": "integer", "minimum": 0 }), "hide: such tools."),
        named("to", text(), "degrade: the cheaper tool."),
    ]);
    let mut keys = counted();
    keys.extend([
        named("budget", budget, "What may be spent.").required(),
        named("steps", list(step), "What happens on the way, from the lowest on.").required(),
        named("store_down", words(known::STORE_DOWN.known), "Without the store."),
    ]);
    object(keys)
}

fn tools() -> Value {
    let upstream = object(vec![
        named("default", item(), "What is not listed."),
        named("tools", map_of(item()), "By the upstream's own name."),
        named("prompts", map_of(item()), "By the upstream's own name."),
        named("resources", map_of(item()), "By URI."),
    ]);
    let upstreams = named("upstreams", map_of(upstream), "By the name in hangu.yaml.").required();
    document("Tools", "What each tool, prompt and resource may do at worst.", vec![upstreams])
}

fn item() -> Value {
    let pin = json!({ "oneOf": [
        words(known::PINS.known),
        { "type": "string", "pattern": "^sha256:[0-9a-f]{64}$" },
    ] });
    let mut classes = vec![named("default", words(known::ON_CHANGE.known), "Whatever else.")];
    classes.extend(
        ChangeClass::ALL
            .map(|class| named(class.as_str(), words(known::ON_CHANGE.known), "Such a change.")),
    );
    let on_change = json!({ "oneOf": [words(known::ON_CHANGE.known), object(classes)] });
    let truth = || json!({ "type": "boolean" });
    let parameter = object(vec![
        named("description", text(), "Published instead of its own."),
        named("enum", texts(), "Of its own values, these alone."),
        named("hidden", truth(), "Callers do not see it."),
    ]);
    let whole = object(vec![
        named("name", text(), "Published instead of its own."),
        named("description", text(), "Published instead of its own."),
        named("parameters", map_of(parameter), "By their names."),
    ]);
    object(vec![
        named("risk", words(RISKS.known), "What a call may do at worst."),
        named("cost", json!({ "type": "integer", "minimum": 0 }), "In the units of quotas."),
        named("pin", pin, "Which definition may be called."),
        named("on_change", on_change, "What a `read_low` tool does when its definition changes."),
        named("timeout", duration(), "Without an answer."),
        named("max_time", duration(), "In all, whatever arrives."),
        named("retry_safe", truth(), "A call that may have run can be sent again."),
        named("idempotency", words(known::IDEMPOTENCY.known), "Whether calls carry a key."),
        named("idempotency_argument", text(), "The argument that carries the key."),
        named("upstream_idempotent", truth(), "The upstream honours the key."),
        named(
            "inject",
            map_of(text()),
            "Arguments the gateway sets: texts with `$ctx.tenant` and its like.",
        ),
        named("quality", quality(), "What a definition must be like that nobody has approved."),
        named("screen", words(known::SCREENS.known), "Results that look like instructions."),
        named("name", text(), "Published instead of its own."),
        named("description", text(), "Published instead of its own."),
        named("hide", texts(), "Parameters that callers do not see."),
        named("override", whole, "Everything that is published instead."),
    ])
}

fn quality() -> Value {
    object(vec![
        named(
            "min",
            json!({ "type": "integer", "minimum": 0, "maximum": 100 }),
            "The least score.",
        ),
        named(
            "block",
            list(words(known::FLAWS.known)),
            "Findings that hold the tool whatever its score.",
        ),
    ])
}

fn directory() -> Value {
    let employee = object(vec![
        named("tenant", text(), "The one tenant of the employee.").required(),
        named("roles", texts(), "What rules may ask for."),
        named("teams", texts(), "What rollouts may name."),
    ]);
    let employees = named("employees", map_of(employee), "By id.").required();
    document("Directory", "Who the employees are.", vec![employees])
}

fn cases() -> Value {
    let viewer = object(vec![
        named("tenant", text(), "The tenant.").required(),
        named("roles", texts_or_none(), "Without them, those the directory gives the employee."),
        named("employee", text(), "The employee's id."),
        named("caller", text(), "The caller, where rules name it."),
    ]);
    let expect = object(vec![
        named("decision", words(known::DECISIONS.known), "deny: not let through, hidden or not.")
            .required(),
        named("reason", words(known::REASONS.known), "Why."),
        named("rule", text(), "The rule that decides, or one that asks."),
    ]);
    let shown = object(vec![
        named("only_risk", risks(), "Everything in the list has one of these risks."),
        named("visible", texts(), "Globs: all of it is in the list."),
        named("hidden", texts(), "Globs: none of it is in the list."),
    ]);
    let given = object(vec![
        named("quota", map_of(text()), "Quotas that are taken for spent so far.").required(),
    ]);
    let case = object(vec![
        named("name", text(), "What it shows.").required(),
        named("as", viewer, "Who asks.").required(),
        named("at", text(), "The tenant whose tools are asked for."),
        named("given", given, "What has happened before."),
        named("call", text(), "A tool, as upstream/tool."),
        named("get", text(), "A prompt, as upstream/prompt."),
        named("read", text(), "A resource, as upstream/URI."),
        named("args", json!({ "type": "object" }), "The arguments."),
        named("expect", expect, "What the call is answered."),
        named("list", shown, "What is seen."),
    ]);
    document(
        "PolicyTest",
        "What is expected of the other documents; `hangu policy test` tries it.",
        vec![named("cases", list(case), "One expectation each.").required()],
    )
}

/// A list that may be empty and still says something.
fn texts_or_none() -> Value {
    json!({ "type": "array", "items": { "type": "string" } })
}
