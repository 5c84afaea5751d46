//! The families of things that a server lists.

use super::{Method, Served};

/// What a listing is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    Tools,
    Prompts,
    Resources,
    /// Resource templates: listed by a method of their own, and under the same capability as
    /// resources.
    Templates,
}

impl Family {
    /// Every family, in the order of the variants.
    pub const ALL: [Family; 4] =
        [Family::Tools, Family::Prompts, Family::Resources, Family::Templates];

    /// The method that lists it.
    pub const fn list_method(self) -> Method {
        match self {
            Family::Tools => Method::ListTools,
            Family::Prompts => Method::ListPrompts,
            Family::Resources => Method::ListResources,
            Family::Templates => Method::ListTemplates,
        }
    }

    /// The member of a listing's result that holds its elements.
    pub const fn member(self) -> &'static str {
        match self {
            Family::Tools => "tools",
            Family::Prompts => "prompts",
            Family::Resources => "resources",
            Family::Templates => "resourceTemplates",
        }
    }

    /// What a server declares that serves it.
    pub const fn capability(self) -> Served {
        match self {
            Family::Tools => Served::TOOLS,
            Family::Prompts => Served::PROMPTS,
            Family::Resources | Family::Templates => Served::RESOURCES,
        }
    }

    /// The member of an element that names it.
    pub const fn key(self) -> &'static str {
        match self {
            Family::Tools | Family::Prompts => "name",
            Family::Resources => "uri",
            Family::Templates => "uriTemplate",
        }
    }
}
