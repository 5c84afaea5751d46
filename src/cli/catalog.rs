//! A list of what upstreams offer, kept in a file: `{"UPSTREAM": {"tools": [...], …}}`, each list
//! as the server's own `tools/list`, `prompts/list` and so on have it. For commands that decide
//! without a gateway; nothing is fetched here.

use std::{fs, path::Path, sync::Arc};

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::tell::CommandError;
use crate::{
    app::faces,
    fault::Fault,
    json::{Doc, Duplicates, Limits},
    model::server::UpstreamName,
    policy::{Family, Named, Policies},
    registry::{Care, Definition, Registry, read_definition},
};

/// What a file lists.
#[derive(Debug, Default)]
pub struct Catalog {
    items: Vec<(Named, Option<Doc>)>,
    /// Of each upstream that has tools, as the gateway would read them.
    tools: Vec<(UpstreamName, Vec<Arc<Definition>>)>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Lists {
    #[serde(default)]
    tools: Vec<Box<RawValue>>,
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
    input_schema: Option<Box<RawValue>>,
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
        let (mut items, mut all) = (Vec::new(), Vec::new());
        for (upstream, lists) in lists {
            let mut add = |family, name: &str, schema| {
                let named = Named::parse(family, &format!("{upstream}/{name}"));
                items.push((named.map_err(|why| format!("`{upstream}/{name}` {why}"))?, schema));
                Ok::<(), String>(())
            };
            let mut definitions = Vec::new();
            for raw in lists.tools {
                let tool: Tool =
                    serde_json::from_str(raw.get()).map_err(|error| error.to_string())?;
                let schema = tool.input_schema.map(|raw| {
                    Doc::parse(Bytes::from(raw.get().to_owned()), &SCHEMAS).map_err(|_| {
                        format!("the schema of `{upstream}/{}` is too deep", tool.name)
                    })
                });
                add(Family::Tools, &tool.name, schema.transpose()?)?;
                let text = Bytes::from(raw.get().to_owned());
                // What the gateway would not take over has no face either.
                let doc = Doc::parse(text, &SCHEMAS).ok();
                let definition = doc.and_then(|doc| read_definition(doc.root()).ok());
                definitions.extend(definition.map(Arc::new));
            }
            if let (Ok(name), false) = (UpstreamName::parse(&upstream), definitions.is_empty()) {
                all.push((name, definitions));
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
        Ok(Self { items, tools: all })
    }

    pub fn names(&self) -> impl Iterator<Item = Named> {
        self.items.iter().map(|(named, _)| named.clone())
    }

    /// What the files say that does not fit the tools: conditions of rules, and faces.
    pub fn check_arguments(&self, policies: &Policies) -> Vec<Fault> {
        let tools = self
            .items
            .iter()
            .filter_map(|(named, schema)| Some((named.subject(), schema.as_ref()?.root())));
        let mut faults = policies.check_arguments(tools);
        if policies.has_faces() {
            let registry = Registry::new(self.tools.iter().map(|(name, _)| name.clone()));
            for (name, definitions) in &self.tools {
                registry.listed(name, definitions.clone());
            }
            let face = |upstream: &UpstreamName, tool: &str| faces::face(policies, upstream, tool);
            faults.extend(faces::check(policies, &registry.catalog_with(|_, _| Care::USUAL, face)));
        }
        faults
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
