//! Properties that hold for any input: whatever comes over the wire or stands in a file.
//!
//! Each target replays what lies in `tests/corpus/<target>/` and then tries inputs made of it,
//! of its words and of nothing at all: so many of them, always the same, or with
//! `HANGU_FUZZ_SECONDS` for so long and never the same. An input that fails is printed as small
//! as it can be made; it belongs into the corpus.

mod headers;
mod json;
mod sse;
mod tokens;
mod urls;
mod yaml;

use std::{fs, path::Path, time::Duration};

use proptest::{
    collection::vec,
    prelude::*,
    sample::{Index, select},
    strategy::BoxedStrategy,
    test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner},
};
use tokio::time::Instant;

/// Inputs of each target in an ordinary run.
const CASES: u32 = 1_500;

/// What a check found; what it says is printed beside the input.
type Verdict = Result<(), TestCaseError>;

/// Fails a check unless something holds.
fn holds(holds: bool, what: impl FnOnce() -> String) -> Verdict {
    if holds { Ok(()) } else { Err(TestCaseError::fail(what())) }
}

/// Runs one target: `words` are what its inputs are likely to hold. Where inputs are to be cut,
/// `cuts` says so.
fn target(name: &str, words: &[&str], check: impl Fn(&[u8], &[Index]) -> Verdict) {
    let corpus = corpus(name);
    for (file, input) in &corpus {
        if let Err(error) = check(input, &[]) {
            panic!("{name}/{file}: {error}: {}", input.escape_ascii());
        }
    }
    let seeds: Vec<Vec<u8>> = corpus.into_iter().map(|(_, input)| input).collect();
    let inputs = (inputs(seeds, words), vec(any::<Index>(), 0..12));
    let longer = std::env::var("HANGU_FUZZ_SECONDS").ok();
    let longer = longer.map(|text| Duration::from_secs(text.parse().unwrap()));
    let begun = Instant::now();
    let mut round = 0_u64;
    while round == 0 || longer.is_some_and(|longer| begun.elapsed() < longer) {
        let config = Config { cases: CASES, failure_persistence: None, ..Config::default() };
        let mut runner = match longer {
            Some(_) => TestRunner::new(config),
            None => {
                TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]))
            }
        };
        match runner.run(&inputs, |(input, cuts)| check(&input, &cuts)) {
            Ok(()) => round += 1,
            Err(TestError::Fail(why, (input, cuts))) => {
                panic!("{name}: {why}\ninput: {}\ncuts: {cuts:?}", input.escape_ascii())
            }
            Err(TestError::Abort(why)) => panic!("{name}: {why}"),
        }
    }
}

/// The files of a target, in the order of their names.
fn corpus(name: &str) -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus").join(name);
    let mut files: Vec<(String, Vec<u8>)> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            (name, fs::read(entry.path()).unwrap())
        })
        .collect();
    assert!(!files.is_empty(), "{} is empty", folder.display());
    files.sort();
    files
}

fn inputs(seeds: Vec<Vec<u8>>, words: &[&str]) -> BoxedStrategy<Vec<u8>> {
    let words: Vec<Vec<u8>> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
    let of_words = vec(select(words.clone()), 0..48).prop_map(|words| words.concat());
    let changed = (select(seeds), vec((0..6_u8, any::<Index>(), any::<u8>(), select(words)), 1..8));
    let changed = changed.prop_map(|(mut input, changes)| {
        for (kind, place, byte, word) in changes {
            change(&mut input, kind, place, byte, word);
        }
        input
    });
    prop_oneof![2 => vec(any::<u8>(), 0..96), 4 => of_words, 6 => changed].boxed()
}

fn change(input: &mut Vec<u8>, kind: u8, place: Index, byte: u8, word: Vec<u8>) {
    let at = place.index(input.len() + 1);
    match kind {
        0 => input.insert(at, byte),
        1 => input.truncate(at),
        2 => drop(input.splice(at..at, word)),
        3 if at < input.len() => input[at] ^= 1 << (byte % 8),
        4 if at < input.len() => drop(input.remove(at)),
        // Says a part of it twice.
        _ => {
            let part = input[at..(at + usize::from(byte)).min(input.len())].to_vec();
            input.splice(at..at, part);
        }
    }
}
