//! Kinds of change between two definitions of a tool, and sets of them.
//!
//! What differs, `registry` finds out; which kinds a tool goes on in spite of, policy files say.

use std::fmt;

/// What a difference between two definitions means for whoever calls the tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum ChangeClass {
    /// A title, a description, an example: what a model reads and no call depends on.
    DescriptionChanged,
    ParameterAddedOptional,
    ParameterAddedRequired,
    ParameterRemoved,
    /// A parameter that was there already has to be given.
    RequiredAdded,
    RequiredRemoved,
    TypeChanged,
    EnumWidened,
    EnumNarrowed,
    ConstraintTightened,
    ConstraintLoosened,
    /// Of results.
    OutputChanged,
    /// A hint of the server's about what the tool does.
    AnnotationChanged,
    /// Which arguments requests repeat in headers.
    HeaderMarkChanged,
    /// By its hints the tool may do worse than before.
    RiskRaised,
    RiskLowered,
    /// Whatever is none of the others, taken for the worst.
    SchemaChanged,
    /// It only looked and may now write, or may now destroy.
    Dangerous,
}

/// A set of kinds.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct ChangeClasses(u32);

impl ChangeClass {
    pub const ALL: [ChangeClass; 18] = [
        ChangeClass::DescriptionChanged,
        ChangeClass::ParameterAddedOptional,
        ChangeClass::ParameterAddedRequired,
        ChangeClass::ParameterRemoved,
        ChangeClass::RequiredAdded,
        ChangeClass::RequiredRemoved,
        ChangeClass::TypeChanged,
        ChangeClass::EnumWidened,
        ChangeClass::EnumNarrowed,
        ChangeClass::ConstraintTightened,
        ChangeClass::ConstraintLoosened,
        ChangeClass::OutputChanged,
        ChangeClass::AnnotationChanged,
        ChangeClass::HeaderMarkChanged,
        ChangeClass::RiskRaised,
        ChangeClass::RiskLowered,
        ChangeClass::SchemaChanged,
        ChangeClass::Dangerous,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            ChangeClass::DescriptionChanged => "description_changed",
            ChangeClass::ParameterAddedOptional => "parameter_added_optional",
            ChangeClass::ParameterAddedRequired => "parameter_added_required",
            ChangeClass::ParameterRemoved => "parameter_removed",
            ChangeClass::RequiredAdded => "required_added",
            ChangeClass::RequiredRemoved => "required_removed",
            ChangeClass::TypeChanged => "type_changed",
            ChangeClass::EnumWidened => "enum_widened",
            ChangeClass::EnumNarrowed => "enum_narrowed",
            ChangeClass::ConstraintTightened => "constraint_tightened",
            ChangeClass::ConstraintLoosened => "constraint_loosened",
            ChangeClass::OutputChanged => "output_changed",
            ChangeClass::AnnotationChanged => "annotation_changed",
            ChangeClass::HeaderMarkChanged => "header_mark_changed",
            ChangeClass::RiskRaised => "risk_raised",
            ChangeClass::RiskLowered => "risk_lowered",
            ChangeClass::SchemaChanged => "schema_changed",
            ChangeClass::Dangerous => "dangerous",
        }
    }
}

impl ChangeClasses {
    pub const NONE: Self = Self(0);
    pub const ALL: Self = Self(u32::MAX);

    /// What a call by the definition that was approved goes wrong by, or may do more by than was
    /// approved: a tool that only looks is not called after one of these unless policy says so.
    /// After all else it is, as it was approved.
    pub const USUAL: Self = Self::NONE
        .with(ChangeClass::ParameterAddedRequired)
        .with(ChangeClass::ParameterRemoved)
        .with(ChangeClass::RequiredAdded)
        .with(ChangeClass::TypeChanged)
        .with(ChangeClass::EnumNarrowed)
        .with(ChangeClass::ConstraintTightened)
        .with(ChangeClass::AnnotationChanged)
        .with(ChangeClass::HeaderMarkChanged)
        .with(ChangeClass::RiskRaised)
        .with(ChangeClass::SchemaChanged)
        .with(ChangeClass::Dangerous);

    pub const fn with(self, class: ChangeClass) -> Self {
        Self(self.0 | 1 << class as u8)
    }

    pub const fn without(self, class: ChangeClass) -> Self {
        Self(self.0 & !(1 << class as u8))
    }

    pub const fn contains(self, class: ChangeClass) -> bool {
        self.0 & (1 << class as u8) != 0
    }

    /// Whether some kind is in both.
    pub const fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    pub fn iter(self) -> impl Iterator<Item = ChangeClass> {
        ChangeClass::ALL.into_iter().filter(move |class| self.contains(*class))
    }
}

impl FromIterator<ChangeClass> for ChangeClasses {
    fn from_iter<I: IntoIterator<Item = ChangeClass>>(classes: I) -> Self {
        classes.into_iter().fold(Self::NONE, Self::with)
    }
}

impl fmt::Debug for ChangeClasses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

/// Their names, separated by commas.
impl fmt::Display for ChangeClasses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, class) in self.iter().enumerate() {
            f.write_str(if index == 0 { "" } else { ", " })?;
            f.write_str(class.as_str())?;
        }
        Ok(())
    }
}
