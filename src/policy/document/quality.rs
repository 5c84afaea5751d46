//! What a tool's entry asks of the tool's definition: `quality: { min: 60, block: [poisoned] }`.

use crate::{
    fault::{FaultCode, Faults, Span},
    model::quality::{Demand, Flaw, Flaws},
    yaml::{MapReader, Spanned, Words},
};

pub(in crate::policy) const FLAWS: Words<Flaw> = Words {
    what: "finding",
    code: FaultCode::BadValue,
    known: &[
        ("no_description", Flaw::NoDescription),
        ("vague", Flaw::Vague),
        ("undocumented", Flaw::Undocumented),
        ("untyped", Flaw::Untyped),
        ("broad", Flaw::Broad),
        ("raw_power", Flaw::RawPower),
        ("steering", Flaw::Steering),
        ("poisoned", Flaw::Poisoned),
        ("invisible", Flaw::Invisible),
        ("confusable", Flaw::Confusable),
        ("encoded", Flaw::Encoded),
        ("secret", Flaw::Secret),
    ],
    later: &[],
};

/// The best score there is.
const BEST: u8 = 100;

pub(super) fn read(map: &mut MapReader<'_>, faults: &mut Faults) -> Option<Spanned<Demand>> {
    let entry = map.entry("quality")?;
    let mut own = entry.value.map(faults)?;
    let min: Option<Spanned<u32>> = own.optional("min", faults);
    let least = min.as_ref().and_then(|min| u8::try_from(min.value).ok());
    if let Some(min) = min.as_ref().filter(|_| least.is_none_or(|least| least > BEST)) {
        let message = format!("no definition scores more than {BEST}");
        faults.add(FaultCode::BadValue, &min.at, message);
    }
    let block = own.node("block");
    if min.is_none() && block.is_none() {
        let message = "`quality` asks for nothing";
        let fault = faults.add(FaultCode::BadValue, &entry.key_at, message);
        fault.suggest("`min`, `block`, or both");
    }
    // An empty list takes back what the upstream's `default` blocks.
    let flaws = block.map(|node| node.list(faults)).unwrap_or_default();
    let flaws: Flaws = flaws.iter().filter_map(|flaw| FLAWS.read(flaw, faults)).collect();
    own.finish(faults);
    let demand = Demand { min: least.unwrap_or_default(), block: flaws };
    Some(Spanned::new(demand, &entry.key_at))
}

/// Only tools are looked at.
pub(super) fn not_of(family: crate::policy::Family, at: &Span, faults: &mut Faults) {
    let message = format!("`quality` is about tools, and this is a {}", family.one());
    faults.add(FaultCode::Contradiction, at, message);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_finding_can_be_named() {
        assert!(
            FLAWS
                .known
                .iter()
                .map(|(word, flaw)| (*word, *flaw))
                .eq(Flaw::ALL.map(|f| (f.as_str(), f)))
        );
    }
}
