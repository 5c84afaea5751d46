//! A server that lists things of every family, of either era, in pages if need be.

use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};

use super::{Answer, Seen, Upstream};

/// What it lists, by the member of the result.
#[derive(Debug, Clone, Default)]
pub struct Shelf {
    pub legacy: bool,
    pub tools: Vec<Value>,
    pub prompts: Vec<Value>,
    pub resources: Vec<Value>,
    pub templates: Vec<Value>,
    /// Elements of a page; 0: all on one.
    pub page: usize,
    pub instructions: Option<&'static str>,
    /// Methods that fail.
    pub broken: Vec<&'static str>,
}

/// A shelf that can be changed while it is served.
#[derive(Clone)]
pub struct Shop(Arc<Mutex<Shelf>>);

pub fn prompt(name: &str) -> Value {
    json!({ "name": name, "description": "Says it." })
}

pub fn resource(uri: &str) -> Value {
    json!({ "uri": uri, "name": "r" })
}

pub fn template(uri: &str) -> Value {
    json!({ "uriTemplate": uri, "name": "t" })
}

impl Shelf {
    pub fn serve(self) -> (Upstream, Shop) {
        let upstream = Upstream::start(&[]);
        let shop = Shop(Arc::new(Mutex::new(self)));
        let serving = shop.clone();
        upstream.on(move |seen| serving.0.lock().answer(seen));
        (upstream, shop)
    }

    fn answer(&self, seen: &Seen) -> Option<Answer> {
        if self.broken.contains(&&*seen.method) {
            return Some(Answer::body(500, "text/plain", "broken"));
        }
        let family = match &*seen.method {
            "tools/list" => ("tools", &self.tools),
            "prompts/list" => ("prompts", &self.prompts),
            "resources/list" => ("resources", &self.resources),
            "resources/templates/list" => ("resourceTemplates", &self.templates),
            "server/discover" if self.legacy => {
                return Some(Answer::body(400, "text/plain", "no session"));
            }
            "server/discover" => {
                return Some(seen.result(json!({
                    "resultType": "complete", "supportedVersions": ["2026-07-28"],
                    "capabilities": self.capabilities(), "instructions": self.instructions,
                    "ttlMs": 0, "cacheScope": "public",
                })));
            }
            "initialize" if self.legacy => {
                return Some(seen.result(json!({
                    "protocolVersion": "2025-11-25", "capabilities": self.capabilities(),
                    "serverInfo": { "name": "shelf", "version": "1" },
                    "instructions": self.instructions,
                })));
            }
            "ping" if self.legacy => return Some(seen.result(json!({}))),
            method if method.starts_with("notifications/") => {
                return Some(Answer::body(202, "text/plain", ""));
            }
            _ => return None,
        };
        Some(seen.result(self.page_of(seen, family.0, family.1)))
    }

    fn page_of(&self, seen: &Seen, member: &str, all: &[Value]) -> Value {
        // What a cursor is made of is no business of its reader.
        let start = match seen.params["cursor"].as_str() {
            Some(cursor) => cursor.trim_start_matches("+/=").trim_end_matches("==").parse(),
            None => Ok(0),
        };
        let start: usize = start.unwrap();
        let size = if self.page == 0 { all.len().max(1) } else { self.page };
        let end = (start + size).min(all.len());
        let mut result = json!({ member: all[start..end] });
        if end < all.len() {
            result["nextCursor"] = json!(format!("+/={end}=="));
        }
        if !self.legacy {
            result["resultType"] = json!("complete");
            result["ttlMs"] = json!(0);
            result["cacheScope"] = json!("public");
        }
        result
    }

    fn capabilities(&self) -> Value {
        let mut all = json!({});
        let families = [
            ("tools", !self.tools.is_empty()),
            ("prompts", !self.prompts.is_empty()),
            ("resources", !self.resources.is_empty() || !self.templates.is_empty()),
        ];
        for (family, has) in families {
            if has {
                all[family] = json!({});
            }
        }
        all
    }
}

impl Shop {
    pub fn change(&self, change: impl FnOnce(&mut Shelf)) {
        change(&mut self.0.lock());
    }
}
