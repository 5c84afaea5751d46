//! The codes of faults in files that operators write: the only table of them.
//!
//! A code is stable: it keeps its meaning for good, and a retired one is not given again.
//! `Y` is about any YAML file, `C` about `hangu.yaml`, `P` about policy files; from 100 on a
//! code is a warning.

use std::fmt;

use super::Severity;

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $code:literal),+ $(,)?) => {
        /// What is wrong, in a word that programs can match on.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum FaultCode {
            $($(#[$doc])* $name,)+
        }

        impl FaultCode {
            /// Every code, in the table's order.
            pub const ALL: &'static [FaultCode] = &[$(FaultCode::$name),+];

            /// The code as it is printed: `P014`.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(FaultCode::$name => $code,)+
                }
            }
        }
    };
}

codes! {
    /// A file or folder cannot be read.
    Unreadable = "Y001",
    /// Not YAML, or YAML that is too large or too clever.
    Syntax = "Y002",
    DuplicateKey = "Y003",
    UnknownKey = "Y004",
    MissingKey = "Y005",
    WrongType = "Y006",
    BadValue = "Y007",
    /// A key or value of Hangu whose part does not exist in this version.
    NotInThisVersion = "Y008",
    /// `${NAME}` without a value.
    UnsetVariable = "Y009",
    /// A name of a caller, tenant, role, upstream or employee that is none.
    BadName = "Y010",

    /// An upstream's address that cannot or must not be used.
    BadAddress = "C002",
    /// A secret that stands in the file.
    SecretInTheOpen = "C003",
    /// A secret's variable or file that is not there.
    SecretMissing = "C004",
    BadTemplate = "C005",
    /// A header that cannot be set or forwarded.
    BadHeader = "C006",
    /// An API key that names two callers.
    SharedKey = "C007",
    GivenTwice = "C008",
    /// Settings that exclude each other.
    Contradiction = "C009",
    /// A fixed employee whom the directory places in another tenant.
    ForeignEmployee = "C010",
    /// Anybody who reaches the listener can be the fallback employee.
    OpenFallback = "C101",
    /// A key or a certificate that is not good at this time.
    ExpiredKey = "C102",
    NoEffect = "C103",
    NoPolicies = "C104",
    /// A token that was not meant for an upstream is passed to it.
    ForwardedToken = "C105",
    /// An entry that lets nearly every address be dialled.
    WideEgress = "C106",
    /// A client's secret goes to whichever authorization server a server names.
    UnboundSecret = "C107",

    UnknownKind = "P001",
    BadGlob = "P002",
    DuplicateId = "P003",
    ClassifiedTwice = "P004",
    EmployeeTwice = "P005",
    /// Roles that include each other.
    RoleCycle = "P006",
    /// An argument of a condition that is no JSON pointer.
    BadPointer = "P007",
    BadRegex = "P008",
    UnknownRisk = "P014",
    /// A condition on an argument that is never of such a type.
    ArgumentType = "P015",
    /// A tool that cannot be published as a file says it is to be.
    UnfitFace = "P016",
    /// What a table of cases expects is not what the policies say.
    FailedCase = "P017",
    DeadRule = "P101",
    /// A rule that says only what another says already.
    RedundantRule = "P102",
    /// A rule asks for a role that nobody has.
    RoleWithoutHolder = "P103",
    /// Somebody has a role that no rule asks for.
    RoleWithoutRule = "P104",
    UnknownCaller = "P105",
    UnknownTenant = "P106",
    GlobWithoutTool = "P107",
    UnknownUpstream = "P108",
    /// A tool that writes and yet runs twice for one key, or without one.
    WeakIdempotency = "P109",
    /// A tool or upstream that stays hidden because nothing classifies it.
    Unclassified = "P110",
    IgnoredFile = "P111",
    /// A condition on an argument that a tool under the rule does not have.
    ArgumentMissing = "P112",
    /// A staged rule is open to a team that nobody is in.
    TeamWithoutMember = "P113",
    /// A file says something of a tool or an argument that there is not.
    FaceInVain = "P114",
    /// What is counted without a store is not affected when the store is lost.
    NoStoreToLose = "P115",
    /// Any server there is may be registered.
    OpenSelfService = "P116",
    /// A file in shadow of which nothing was ever enforced.
    ShadowOfNothing = "P120",
}

impl FaultCode {
    /// From 100 on a code is a warning.
    pub const fn severity(self) -> Severity {
        if self.as_str().as_bytes()[1] == b'0' { Severity::Error } else { Severity::Warning }
    }
}

impl fmt::Display for FaultCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_code_is_a_letter_and_three_digits_and_given_once() {
        let mut seen = HashSet::new();
        for code in FaultCode::ALL {
            let (area, number) = code.as_str().split_at(1);
            assert!(matches!(area, "Y" | "C" | "P"), "{code}");
            assert!(number.len() == 3 && number.bytes().all(|b| b.is_ascii_digit()), "{code}");
            assert!(seen.insert(code.as_str()), "{code} is given twice");
        }
    }

    #[test]
    fn warnings_are_numbered_from_100() {
        assert_eq!(FaultCode::UnknownRisk.severity(), Severity::Error);
        assert_eq!(FaultCode::DeadRule.severity(), Severity::Warning);
    }
}
