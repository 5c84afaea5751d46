//! `hangu check`: every fault of a configuration and its policies, without touching the network.

use std::{
    io::Write,
    path::{Path, PathBuf},
};

use super::{
    catalog::Catalog,
    tell::{CommandError, Ending},
};
use crate::{
    app::{Kept, PolicySource},
    config::{self, Config, Loaded},
    fault::{FaultCode, Faults, Format, Report, Span},
    policy::{KnownCaller, Library, Policies, Surroundings},
    yaml::Env,
};

/// What to look at, and how to tell.
#[derive(Debug, Clone)]
pub struct Args {
    /// A configuration, or a policy folder alone.
    pub target: PathBuf,
    pub format: Format,
    /// What upstreams offer, in a file: with it the arguments of conditions are checked too.
    pub catalog: Option<PathBuf>,
}

/// Writes the report. There are findings if there is an error in it.
pub fn run(args: &Args, out: &mut dyn Write) -> Result<Ending, CommandError> {
    let catalog = args.catalog.as_deref();
    let report = if args.target.is_dir() {
        check_policies(&args.target, catalog)?
    } else {
        check_with(&args.target, catalog, &config::process_env)?.report
    };
    out.write_all(report.render(args.format).as_bytes())?;
    Ok(if report.errors() == 0 { Ending::Well } else { Ending::Findings })
}

/// A configuration and its policies, and everything that there is to say about them.
#[derive(Debug)]
pub struct Checked {
    /// Configuration and policies: there unless the report has an error.
    pub accepted: Option<(Config, Policies)>,
    /// How the policies were read, to read them again.
    pub source: PolicySource,
    pub report: Report,
}

/// Looks at a configuration and the policies it names. What is accepted here is what `serve`
/// runs.
pub fn check(file: &Path, env: Env<'_>) -> Checked {
    check_beside(file, &Catalog::default(), env)
}

/// The same, with a list of what upstreams offer.
pub fn check_with(
    file: &Path,
    catalog: Option<&Path>,
    env: Env<'_>,
) -> Result<Checked, CommandError> {
    Ok(check_beside(file, &Catalog::read(catalog)?, env))
}

fn check_beside(file: &Path, catalog: &Catalog, env: Env<'_>) -> Checked {
    // Before it is read in earnest: a change in between is none that was taken over.
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let mut loaded = Config::look(file, env);
    let mut faults = Faults::new();
    faults.extend(std::mem::take(&mut loaded.faults));
    let mut files = 1;
    let mut policies = Some(Policies::none());
    let mut library = Library::default();
    if let Some(folder) = &loaded.policies {
        // A file in shadow is decided by what the last process enforced of it.
        let kept = loaded.config.as_ref().map(|config| Kept::beside(&config.audit.file));
        let enforced = kept.as_ref().map_or(Ok(Vec::new()), Kept::enforced);
        let unreadable = enforced.map(|enforced| library.remember(enforced)).err();
        let looked = library.look(folder);
        files += looked.files;
        faults.extend(looked.faults);
        policies = looked.policies;
        if let (Some(kept), Some(error)) = (kept, unreadable)
            && policies.as_ref().is_some_and(Policies::has_shadow)
        {
            let message = format!(
                "files in shadow are decided by what was last enforced of them, and that cannot \
                 be read: {error}"
            );
            let at = Span::file(kept.folder().display().to_string());
            faults.add(FaultCode::Unreadable, &at, message);
        }
    }
    let surroundings = surroundings(&loaded);
    if let Some(policies) = &policies {
        // With an error in the configuration its callers and upstreams may be missing.
        faults.extend(policies.lint(surroundings.as_ref()));
        faults.extend(policies.failed_cases());
        faults.extend(catalog.check_arguments(policies));
    }
    let source = PolicySource {
        folder: loaded.policies.clone(),
        files: library,
        surroundings,
        config: (file.to_owned(), text),
    };
    let accepted = loaded.config.zip(policies).filter(|_| !faults.has_errors());
    Checked { accepted, source, report: Report { faults: faults.into_sorted(), files } }
}

/// Looks at a policy folder alone.
pub fn check_policies(folder: &Path, catalog: Option<&Path>) -> Result<Report, CommandError> {
    let catalog = Catalog::read(catalog)?;
    let looked = Policies::look(folder);
    let mut faults = Faults::new();
    faults.extend(looked.faults);
    if let Some(policies) = &looked.policies {
        faults.extend(policies.lint(None));
        faults.extend(policies.failed_cases());
        faults.extend(catalog.check_arguments(policies));
    }
    Ok(Report { faults: faults.into_sorted(), files: looked.files })
}

/// What policies have to do with of a configuration; `None` if that has an error.
fn surroundings(loaded: &Loaded) -> Option<Surroundings> {
    let config = loaded.config.as_ref()?;
    let places = &loaded.places;
    let callers = config.callers.iter().filter_map(|caller| {
        Some(KnownCaller {
            id: caller.id.clone(),
            tenant: caller.tenant.clone(),
            at: places.callers.get(&caller.id)?.clone(),
            fixed: caller.identity.fixed.as_ref().map(|f| (f.id.clone(), f.roles.clone())),
            catalog_roles: caller.catalog_roles.clone(),
        })
    });
    let upstreams = config.upstreams.iter().filter_map(|upstream| {
        Some((upstream.name.clone(), places.upstreams.get(&upstream.name)?.clone()))
    });
    Some(Surroundings { callers: callers.collect(), upstreams: upstreams.collect() })
}

#[cfg(test)]
mod tests;
