//! A list of what upstreams offer, kept in a file: `{"UPSTREAM": {"tools": [...], …}}`, each list
//! as the server's own `tools/list`, `prompts/list` and so on have it. For commands that decide
//! without a gateway; nothing is fetched here.

use std::{fs, path::Path};

use bytes::Bytes;
use serde::Deserialize;

use super::tell::CommandError;
use crate::{
    fault::Fault,
    json::{Doc, Duplicates, Limits},
    policy::{Family, Named, Policies},
};

/// What a file lists.
#[derive(Debug, Default)]
pub struct Catalog {
    items: Vec<(Named, Option<Doc>)>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Lists {
    #[serde(default)]
    tools: Vec<Tool>,
    #[serde(default)]
    prompts: Vec<Prompt>,
    #[serde(default)]
    resources: Vec<Resource>,
    #[serde(default)]
    resource_templates: Vec<Template>,
}

// A server's lists have more members than these, and more to come.

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Tool {
    name: String,
    input_schema: Option<Box<serde_json::value::RawValue>>,
}

#[derive(Debug, Deserialize)]
struct Prompt {
    name: String,
}

#[derive(Debug, Deserialize)]
struct Resource {
    uri: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Template {
    uri_template: String,
}

const SCHEMAS: Limits = Limits { depth: 128, duplicates: Duplicates::Refuse, outline: 2 };

impl Catalog {
    /// Reads a file, or nothing where none is named.
    pub fn read(file: Option<&Path>) -> Result<Self, CommandError> {
        let Some(file) = file else { return Ok(Self::default()) };
        let wrong = |why: String| {
            CommandError::Environment(format!("the catalog `{}` {why}", file.display()))
        };
        let text = fs::read_to_string(file).map_err(|e| wrong(format!("cannot be read: {e}")))?;
        Self::parse(&text).map_err(|why| wrong(format!("is no catalog: {why}")))
    }

    fn parse(text: &str) -> Result<Self, String> {
        let lists: std::collections::BTreeMap<String, Lists> =
            serde_json::from_str(text).map_err(|error| error.to_string())?;
        let mut items = Vec::new();
        for (upstream, lists) in lists {
            let mut add = |family, name: &str, schema| {
                let named = Named::parse(family, &format!("{upstream}/{name}"));
                items.push((named.map_err(|why| format!("`{upstream}/{name}` {why}"))?, schema));
                Ok::<(), String>(())
            };
            for tool in lists.tools {
                let schema = tool.input_schema.map(|raw| {
                    Doc::parse(Bytes::from(raw.get().to_owned()), &SCHEMAS).map_err(|_| {
                        format!("the schema of `{upstream}/{}` is too deep", tool.name)
                    })
                });
                add(Family::Tools, &tool.name, schema.transpose()?)?;
            }
            for prompt in lists.prompts {
                add(Family::Prompts, &prompt.name, None)?;
            }
            for resource in lists.resources {
                add(Family::Resources, &resource.uri, None)?;
            }
            for template in lists.resource_templates {
                add(Family::Resources, &template.uri_template, None)?;
            }
        }
        Ok(Self { items })
    }

    pub fn names(&self) -> impl Iterator<Item = Named> {
        self.items.iter().map(|(named, _)| named.clone())
    }

    /// Conditions of rules that do not fit the tools' arguments.
    pub fn check_arguments(&self, policies: &Policies) -> Vec<Fault> {
        let tools = self
            .items
            .iter()
            .filter_map(|(named, schema)| Some((named.subject(), schema.as_ref()?.root())));
        policies.check_arguments(tools)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_taken_as_servers_give_them() {
        let catalog = Catalog::parse(
            r#"{"crm": {"tools": [{"name": "find", "title": "x", "inputSchema": {"type": "object"}}],
                "prompts": [{"name": "sum"}], "resources": [{"uri": "file:///a"}],
                "resourceTemplates": [{"uriTemplate": "file:///{x}"}]}}"#,
        );
        let names: Vec<_> = catalog.unwrap().names().map(|named| named.full()).collect();
        assert_eq!(names, ["crm/find", "crm/sum", "crm/file:///a", "crm/file:///{x}"]);
    }

    #[test]
    fn what_is_no_catalog_is_said_to_be_none() {
        for (text, why) in [
            ("[]", "expected a map"),
            (r#"{"crm": {"tool": []}}"#, "unknown field `tool`"),
            (r#"{"CRM": {"tools": [{"name": "x"}]}}"#, "is not one tool"),
        ] {
            let error = Catalog::parse(text).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}
