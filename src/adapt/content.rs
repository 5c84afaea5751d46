//! What a tool answered, as far as runtimes have a place for it.

use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};

use super::Told;

/// A result, read.
#[derive(Debug)]
pub(super) struct Content {
    pub blocks: Vec<Block>,
    /// `structuredContent`, if it is there.
    pub structured: Option<Box<RawValue>>,
    pub is_error: bool,
}

/// A result object of MCP, as far as it is told.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Raw {
    content: Vec<Value>,
    structured_content: Option<Box<RawValue>>,
    is_error: bool,
}

/// A block of content.
#[derive(Debug)]
pub(super) enum Block {
    Text(String),
    Image {
        media_type: String,
        /// In base64.
        data: String,
    },
    /// What no runtime has a form for: what it is.
    Other(String),
}

// === impl Content ===

impl Content {
    pub fn of(told: Told<'_>) -> Self {
        let raw = match told {
            Told::Refused(why) => {
                let blocks = vec![Block::Text(why.to_owned())];
                return Self { blocks, structured: None, is_error: true };
            }
            Told::Result(raw) => raw,
        };
        let Raw { content, structured_content, is_error } =
            serde_json::from_slice(raw).unwrap_or_default();
        let blocks = content.iter().map(Block::of).collect();
        Self { blocks, structured: structured_content, is_error }
    }

    /// All of it as one text: the blocks, or where there is none what is structured.
    pub fn text(&self) -> String {
        if self.blocks.is_empty() {
            return self.structured.as_ref().map(|raw| raw.get().to_owned()).unwrap_or_default();
        }
        self.blocks.iter().map(Block::text).collect::<Vec<_>>().join("\n")
    }
}

// === impl Block ===

impl Block {
    fn of(block: &Value) -> Self {
        let text = |of: &Value, name: &str| of.get(name).and_then(Value::as_str).map(str::to_owned);
        let kind = text(block, "type").unwrap_or_default();
        match kind.as_str() {
            "text" => Block::Text(text(block, "text").unwrap_or_default()),
            "image" => match (text(block, "mimeType"), text(block, "data")) {
                (Some(media_type), Some(data)) => Block::Image { media_type, data },
                _ => Block::Other(kind),
            },
            "audio" => {
                let what = text(block, "mimeType").unwrap_or_else(|| "unknown type".to_owned());
                Block::Other(format!("audio, {what}"))
            }
            // The text in a resource, or where the resource is.
            "resource" => {
                let resource = block.get("resource").unwrap_or(&Value::Null);
                match (text(resource, "text"), text(resource, "uri")) {
                    (Some(text), _) => Block::Text(text),
                    (None, Some(uri)) => Block::Other(format!("resource, {uri}")),
                    (None, None) => Block::Other(kind),
                }
            }
            "resource_link" => {
                let told = ["uri", "name", "description"]
                    .into_iter()
                    .filter_map(|name| Some((name.to_owned(), block.get(name)?.clone())));
                Block::Text(Value::Object(told.collect()).to_string())
            }
            _ => Block::Other(kind),
        }
    }

    /// As a text; of what is none, that it is there.
    pub fn text(&self) -> String {
        let not_told = |what: &str| format!("[{what}: this form of results has no place for it]");
        match self {
            Block::Text(text) => text.clone(),
            Block::Image { media_type, .. } => not_told(&format!("image, {media_type}")),
            Block::Other(what) => not_told(what),
        }
    }

    /// As Anthropic's content blocks.
    pub fn anthropic(&self) -> Value {
        match self {
            Block::Image { media_type, data } => json!({
                "type": "image",
                "source": { "type": "base64", "media_type": media_type, "data": data },
            }),
            other => json!({ "type": "text", "text": other.text() }),
        }
    }
}
