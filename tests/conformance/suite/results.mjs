// Reads what the conformance suite left in its output folder, and compares it
// with a baseline.
import { readdirSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { parse } from 'yaml';

const require = createRequire(import.meta.url);
const manifest = require.resolve('@modelcontextprotocol/conformance/package.json');
const suiteHome = dirname(manifest);
export const suiteEntry = join(suiteHome, require(manifest).bin.conformance);

// The scenarios a revision requires, and those that only run for information.
// Null for a revision whose requirements the suite has not frozen.
export function requirements(revision, leg) {
  let file;
  try {
    file = readFileSync(join(suiteHome, 'requirements', `${revision}.yaml`), 'utf8');
  } catch {
    return null;
  }
  const set = parse(file);
  return {
    scored: set[leg] ?? [],
    unscored: (set.not_scored ?? []).filter(entry => entry.leg === leg).map(entry => entry.scenario)
  };
}

// scenario -> checks
export function readChecks(folder, leg) {
  const found = new Map();
  const visit = (path, name) => {
    for (const entry of readdirSync(path, { withFileTypes: true })) {
      if (entry.isDirectory()) visit(join(path, entry.name), name ? `${name}/${entry.name}` : entry.name);
      else if (entry.name === 'checks.json') {
        const scenario = name.replace(/-\d{4}-\d\d-\d\dT[\d-]+Z$/, '').replace(leg === 'server' ? /^server-/ : /^/, '');
        found.set(scenario, JSON.parse(readFileSync(join(path, entry.name), 'utf8')));
      }
    }
  };
  visit(folder, '');
  return found;
}

// Lines of the baselines: `[REVISION ]scenario[:check]`, `#` starts a comment.
export function readBaseline(paths) {
  return paths
    .flatMap(path => readFileSync(path, 'utf8').split('\n'))
    .map(line => line.replace(/#.*/, '').trim())
    .filter(Boolean)
    .map(line => {
      const [first, second] = line.split(/\s+/);
      const [revision, spec] = second ? [first, second] : [null, first];
      const colon = spec.indexOf(':');
      return {
        line,
        revision,
        scenario: colon < 0 ? spec : spec.slice(0, colon),
        check: colon < 0 ? null : spec.slice(colon + 1)
      };
    });
}

// One revision's result: counts of checks, failures, and what the baseline says.
export function judge({ revision, leg, folder, scenarios, baseline }) {
  const found = readChecks(folder, leg);
  const outcome = { revision, passed: 0, failed: 0, warnings: 0, failures: [], missing: [] };
  for (const scenario of scenarios) {
    const checks = found.get(scenario);
    if (!checks) {
      outcome.failed++;
      outcome.failures.push({ scenario, check: 'did-not-finish', message: 'the scenario left no result' });
      continue;
    }
    for (const check of checks) {
      if (check.status === 'SUCCESS') outcome.passed++;
      else if (check.status === 'WARNING') outcome.warnings++;
      else if (check.status === 'FAILURE') {
        outcome.failed++;
        outcome.failures.push({ scenario, check: check.id, message: (check.errorMessage ?? check.description ?? '').split('\n')[0] });
      }
    }
  }
  const entries = baseline.filter(entry => entry.revision === null || entry.revision === revision);
  const matches = (entry, failure) => entry.scenario === failure.scenario && (entry.check === null || entry.check === failure.check);
  for (const failure of outcome.failures) failure.expected = entries.some(entry => matches(entry, failure));
  outcome.stale = entries.filter(
    entry =>
      (entry.revision === revision || entry.revision === null) &&
      scenarios.includes(entry.scenario) &&
      !outcome.failures.some(failure => matches(entry, failure))
  );
  return outcome;
}

// Prints what failed; what the baselines name is no failure, what they name in
// vain is one. True when there is none.
export function report(outcomes) {
  let passed = 0;
  let failed = 0;
  let expected = 0;
  for (const outcome of outcomes) {
    passed += outcome.passed;
    console.log(`\n${outcome.revision}: ${outcome.passed} checks passed, ${outcome.failed} failed, ${outcome.warnings} warnings`);
    for (const failure of outcome.failures) {
      if (failure.expected) {
        expected++;
        continue;
      }
      failed++;
      console.log(`  FAILED   ${outcome.revision} ${failure.scenario}:${failure.check}  ${failure.message.slice(0, 200)}`);
    }
    for (const entry of outcome.stale) {
      failed++;
      console.log(`  STALE    baseline line "${entry.line}" no longer fails at ${outcome.revision}: remove it`);
    }
  }
  if (expected > 0) console.log(`\n${expected} more failed as the baseline says`);
  console.log(`\n${passed} passed, ${failed} failed`);
  return failed === 0;
}
