//! `hangu explain CODE`: what a fault's code means, with an example and its remedy.

use std::io::Write;

use serde_json::json;

use super::tell::{self, CommandError, Ending};
use crate::fault::{Example, FaultCode, Format, Page, Paint, pages};

/// Which code.
#[derive(Debug, clap::Args)]
pub struct Explain {
    /// A code such as P014; all of them without one
    #[arg(value_name = "CODE")]
    code: Option<String>,
    /// How to tell: human, plain or json
    #[arg(long, default_value = "human", value_parser = tell::parse_format)]
    format: Format,
}

/// Writes the page.
pub fn run(args: &Explain, out: &mut dyn Write) -> Result<Ending, CommandError> {
    let Some(wanted) = &args.code else {
        list(args.format, out)?;
        return Ok(Ending::Well);
    };
    let upper = wanted.trim().to_ascii_uppercase();
    let Some(page) = pages().find(|page| page.code.as_str() == upper) else {
        return Err(CommandError::Usage(unknown(wanted, &upper)));
    };
    match args.format {
        Format::Human { colour } => human(&page, Paint::new(colour), out)?,
        Format::Plain | Format::Sarif => human(&page, Paint::new(false), out)?,
        Format::Json => writeln!(out, "{}", as_json(&page))?,
    }
    Ok(Ending::Well)
}

fn unknown(wanted: &str, upper: &str) -> String {
    let mut near: Vec<FaultCode> = FaultCode::ALL.to_vec();
    near.sort_by_key(|code| (strsim::damerau_levenshtein(upper, code.as_str()), *code));
    let near = near.iter().take(3).filter_map(|code| {
        let page = Page::of(*code)?;
        Some(format!("\n  {code}  {}", page.title))
    });
    let near: String = near.collect();
    let wanted = crate::fault::escape(wanted);
    format!("there is no code `{wanted}`. The nearest:{near}\n`hangu explain` lists all of them")
}

fn list(format: Format, out: &mut dyn Write) -> Result<(), CommandError> {
    if format == Format::Json {
        let all: Vec<_> = pages().map(|page| as_json(&page)).collect();
        writeln!(out, "{}", json!(all))?;
        return Ok(());
    }
    for page in pages() {
        let severity = page.code.severity().as_str();
        writeln!(out, "{}  {severity:<7}  {}", page.code, page.title)?;
    }
    Ok(())
}

fn human(page: &Page, paint: Paint, out: &mut dyn Write) -> Result<(), CommandError> {
    let (bold, reset) = (paint.bold(), paint.reset());
    let severity = page.code.severity().as_str();
    writeln!(out, "{bold}{}: {}{reset} ({severity})\n\n{}", page.code, page.title, page.text)?;
    let parts = [
        ("This has the fault", paint.red(), &page.wrong),
        ("This has not", paint.green(), &page.right),
    ];
    for (head, tint, examples) in parts {
        writeln!(out, "\n{tint}{head}:{reset}")?;
        for Example { file, text } in examples {
            writeln!(out, "\n  {}# {file}{reset}", paint.dim())?;
            for line in text.lines() {
                writeln!(out, "{}", format!("  {line}").trim_end())?;
            }
        }
    }
    Ok(())
}

fn as_json(page: &Page) -> serde_json::Value {
    let examples = |examples: &[Example]| -> Vec<_> {
        examples.iter().map(|e| json!({ "file": e.file, "text": e.text })).collect()
    };
    json!({
        "code": page.code.as_str(),
        "severity": page.code.severity().as_str(),
        "title": page.title,
        "text": page.text,
        "wrong": examples(&page.wrong),
        "right": examples(&page.right),
    })
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, fs};

    use super::*;
    use crate::cli::check;

    const BASE: [(&str, &str); 3] = [
        (
            "hangu.yaml",
            "version: hangu/v1\n\
             callers:\n  gate: { keys: [{ env: GATE_KEY }], tenant: acme, catalog_roles: [member] }\n\
             upstreams:\n  crm: { url: \"http://127.0.0.1:7001/mcp\" }\n",
        ),
        (
            "policies/tools.yaml",
            "version: hangu/v1\nkind: Tools\n\
             upstreams: { crm: { tools: { find: { risk: read_low }, note: { risk: write_low } } } }\n",
        ),
        (
            "policies/acme.yaml",
            "version: hangu/v1\nkind: Policy\nscope: { tenant: acme }\n\
             rules:\n  - { id: read, effect: allow, roles: [member], risk: [read_low] }\n",
        ),
    ];

    fn env(name: &str) -> Option<String> {
        matches!(name, "GATE_KEY" | "DESK_KEY" | "CRM_TOKEN").then(|| format!("value-of-{name}"))
    }

    /// An example of `hangu.yaml` has only the keys it is about.
    fn merged(base: &str, part: &str) -> String {
        let key = |line: &str| {
            let key = line.split_once(':')?.0;
            (!line.starts_with(' ')).then(|| key.to_owned())
        };
        let own: Vec<String> = part.lines().filter_map(key).collect();
        let mut current = None;
        let kept = base.lines().filter(|line| {
            current = key(line).or_else(|| current.clone());
            !current.as_ref().is_some_and(|key| own.contains(key))
        });
        kept.chain(part.lines()).map(|line| format!("{line}\n")).collect()
    }

    /// The faults of a configuration with these files in it.
    fn faults(examples: &[Example]) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        let mut files: BTreeMap<&str, String> =
            BASE.iter().map(|(path, text)| (*path, (*text).to_owned())).collect();
        let mut catalog = None;
        for example in examples {
            match example.file {
                "without policies/" => files.retain(|path, _| !path.starts_with("policies/")),
                "with policies/" => {}
                "hangu.yaml" => {
                    files.insert("hangu.yaml", merged(BASE[0].1, example.text));
                }
                "catalog.json" => {
                    catalog = Some(folder.path().join("catalog.json"));
                    files.insert("catalog.json", example.text.to_owned());
                }
                path => {
                    files.insert(path, format!("{}\n", example.text));
                }
            }
        }
        for (path, text) in &files {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let file = folder.path().join("hangu.yaml");
        let checked = check::check_with(&file, catalog.as_deref(), &env).unwrap();
        checked.report.faults.iter().map(|f| format!("{} {} {}", f.code, f.at, f.message)).collect()
    }

    #[test]
    fn every_example_has_its_fault_and_every_remedy_has_none() {
        for page in pages() {
            let wrong = faults(&page.wrong);
            let has = wrong.iter().any(|fault| fault.starts_with(page.code.as_str()));
            assert!(has, "the example of {} has {wrong:#?}", page.code);
            let right = faults(&page.right);
            assert!(right.is_empty(), "the remedy of {} has {right:#?}", page.code);
        }
    }

    #[test]
    fn an_unknown_code_is_answered_with_the_nearest() {
        let args = Explain { code: Some("p41".into()), format: Format::Plain };
        let error = run(&args, &mut Vec::new()).unwrap_err().to_string();
        assert!(error.contains("no code `p41`") && error.contains("P014"), "{error}");
    }

    #[test]
    fn a_code_is_found_however_it_is_written() {
        for (code, format) in [("p014", Format::Plain), ("P014", Format::Json)] {
            let mut out = Vec::new();
            run(&Explain { code: Some(code.into()), format }, &mut out).unwrap();
            let out = String::from_utf8(out).unwrap();
            assert!(
                out.contains("Unknown risk level") || out.contains("unknown risk level"),
                "{out}"
            );
        }
    }
}
