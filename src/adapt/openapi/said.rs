//! What schemas say together, on its way to one place of an OpenAPI schema.

use std::collections::HashMap;

use serde_json::Value;

/// Types of JSON, of which integers are some of the numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Types(u8);

/// What a conjunction of schemas says, as far as it can be told.
pub(super) struct Said<'v> {
    pub types: Types,
    pub description: Option<&'v str>,
    pub title: Option<&'v str>,
    /// Keywords that are told as they are, where their type is.
    pub plain: Vec<(&'static str, &'v Value)>,
    pub values: Option<Vec<&'v Value>>,
    pub properties: Vec<(&'v str, Vec<&'v Value>)>,
    /// Where in them a name stands.
    places: HashMap<&'v str, usize>,
    pub required: Vec<&'v str>,
    /// What an array holds, if that can be told.
    pub element: Option<&'v Value>,
    pub choice: Option<&'v [Value]>,
}

// === impl Types ===

impl Types {
    pub const STRING: Types = Types(1);
    pub const INTEGER: Types = Types(2);
    pub const NUMBER: Types = Types(2 | 4);
    pub const BOOLEAN: Types = Types(8);
    pub const OBJECT: Types = Types(16);
    pub const ARRAY: Types = Types(32);
    pub const NULL: Types = Types(64);
    pub const ALL: Types = Types(127);

    pub fn named(name: &str) -> Types {
        match name {
            "string" => Types::STRING,
            "integer" => Types::INTEGER,
            "number" => Types::NUMBER,
            "boolean" => Types::BOOLEAN,
            "object" => Types::OBJECT,
            "array" => Types::ARRAY,
            "null" => Types::NULL,
            _ => Types::ALL,
        }
    }

    /// Those that a `type` names.
    pub fn read(value: &Value) -> Types {
        let names = match value {
            Value::Array(names) => names.as_slice(),
            one => std::slice::from_ref(one),
        };
        let one = |name: &Value| name.as_str().map_or(Types::ALL, Types::named).0;
        Types(names.iter().map(one).fold(0, |all, one| all | one))
    }

    pub fn of(value: &Value) -> Types {
        match value {
            Value::Null => Types::NULL,
            Value::Bool(_) => Types::BOOLEAN,
            Value::Number(number) if number.is_i64() || number.is_u64() => Types::INTEGER,
            Value::Number(_) => Types::NUMBER,
            Value::String(_) => Types::STRING,
            Value::Array(_) => Types::ARRAY,
            Value::Object(_) => Types::OBJECT,
        }
    }

    pub fn has(self, other: Types) -> bool {
        self.0 & other.0 != 0
    }

    /// Those in both; where there is none nothing is good anyway.
    pub fn and(self, other: Types) -> Types {
        match self.0 & other.0 {
            0 => self,
            both => Types(both),
        }
    }

    /// For each type that is told, its name and which keywords are about it.
    pub fn each(self) -> impl Iterator<Item = (&'static str, &'static [&'static str])> {
        let number = if self.has(Types(4)) { "number" } else { "integer" };
        [
            (Types::STRING, "string", &["minLength", "maxLength", "pattern"][..]),
            (Types::NUMBER, number, &["minimum", "maximum"]),
            (Types::BOOLEAN, "boolean", &[]),
            (Types::OBJECT, "object", &["minProperties", "maxProperties"]),
            (Types::ARRAY, "array", &["minItems", "maxItems"]),
        ]
        .into_iter()
        .filter(move |(one, ..)| self.has(*one))
        .map(|(_, name, keywords)| (name, keywords))
    }
}

// === impl Said ===

impl<'v> Said<'v> {
    pub fn new(types: Types) -> Self {
        Said {
            types,
            description: None,
            title: None,
            plain: Vec::new(),
            values: None,
            properties: Vec::new(),
            places: HashMap::new(),
            required: Vec::new(),
            element: None,
            choice: None,
        }
    }

    pub fn plain(&mut self, name: &'static str, value: &'v Value) {
        if self.plain.iter().all(|(known, _)| *known != name) {
            self.plain.push((name, value));
        }
    }

    pub fn one_of(&mut self, values: Vec<&'v Value>) {
        if self.values.is_none() {
            let types = values.iter().map(|value| Types::of(value).0).fold(0, |all, one| all | one);
            self.types = self.types.and(Types(types));
            self.values = Some(values);
        }
    }

    pub fn property(&mut self, name: &'v str, schema: &'v Value) {
        let next = self.properties.len();
        let place = *self.places.entry(name).or_insert(next);
        match self.properties.get_mut(place) {
            Some((_, schemas)) => schemas.push(schema),
            None => self.properties.push((name, vec![schema])),
        }
    }

    pub fn is_more_than_a_type(&self) -> bool {
        !self.plain.is_empty()
            || self.values.is_some()
            || !self.properties.is_empty()
            || !self.required.is_empty()
            || self.element.is_some()
    }

    /// Whether it may be anything.
    pub fn is_open(&self) -> bool {
        self.types == Types::ALL && !self.is_more_than_a_type()
    }
}
