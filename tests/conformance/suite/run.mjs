// Runs the server leg of the official conformance suite; see ../run.sh.
import { spawn } from 'node:child_process';
import { createWriteStream, mkdirSync, rmSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { forward, parseHeader } from './forward.mjs';
import { judge, readBaseline, readChecks, report, requirements, suiteEntry } from './results.mjs';

const { values: options, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    revision: { type: 'string', multiple: true, default: [] },
    header: { type: 'string', multiple: true, default: [] },
    baseline: { type: 'string', multiple: true, default: [] },
    scenario: { type: 'string', multiple: true, default: [] },
    without: { type: 'string', multiple: true, default: [] },
    out: { type: 'string', default: 'conformance-results' },
    all: { type: 'boolean', default: false }
  }
});
if (positionals.length !== 1) {
  console.error(
    'usage: run.sh URL [--revision R]... [--header "Name: value"]... [--baseline FILE]...\n' +
      '              [--scenario NAME|PREFIX*]... [--all [--without NAME|PREFIX*]...]\n' +
      '              [--out FOLDER]\n' +
      'Revisions: 2025-03-26, 2025-06-18, 2025-11-25, 2026-07-28 (default: the last two).'
  );
  process.exit(2);
}

const target = new URL(positionals[0]);
const revisions = options.revision.length ? options.revision : ['2025-11-25', '2026-07-28'];
const baseline = readBaseline(options.baseline);
const headers = options.header.map(parseHeader);
const names = (pattern, scenario) =>
  pattern.endsWith('*') ? scenario.startsWith(pattern.slice(0, -1)) : scenario === pattern;
const hop = headers.length ? await forward({ to: target.origin, headers }) : null;
const url = hop ? hop.origin + target.pathname + target.search : target.href;

function runSuite(revision, folder, known, scenario) {
  const args = [suiteEntry, 'server', '--url', url, '--output-dir', folder];
  // An extension belongs to no revision; whoever names its scenarios wants them.
  if (scenario) args.push('--scenario', scenario, '--spec-version', revision, '--force');
  else if (known) args.push('--requirements', revision);
  else args.push('--suite', 'all', '--spec-version', revision);
  return new Promise((done, fail) => {
    const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'pipe'] });
    const log = createWriteStream(join(folder, 'suite.log'), { flags: 'a' });
    child.stdout.pipe(log, { end: false });
    child.stderr.pipe(log, { end: false });
    child.on('error', fail);
    child.on('close', code => log.end(() => done(code)));
  });
}

// A server that is down still collects passes (nothing invalid was received),
// so see first that somebody answers.
await fetch(url, { signal: AbortSignal.timeout(10_000) }).then(
  answer => answer.body?.cancel(),
  error => {
    console.error(`${url} does not answer: ${error.cause?.message ?? error.message}`);
    console.log('0 passed, 1 failed');
    process.exit(3);
  }
);

const outcomes = [];
for (const revision of revisions) {
  const folder = resolve(options.out, revision);
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  const known = requirements(revision, 'server');
  const started = Date.now();
  const all = known ? [...known.scored, ...known.unscored] : [];
  const named = options.scenario.flatMap(pattern =>
    pattern.endsWith('*') ? all.filter(scenario => names(pattern, scenario)) : [pattern]
  );
  if (options.scenario.length === 0) await runSuite(revision, folder, known);
  for (const scenario of named) await runSuite(revision, folder, known, scenario);

  let scenarios;
  if (options.scenario.length) scenarios = named;
  else if (known) scenarios = [...known.scored, ...(options.all ? known.unscored : [])];
  else scenarios = [...readChecks(folder, 'server').keys()];
  scenarios = scenarios.filter(scenario => !options.without.some(pattern => names(pattern, scenario)));
  if (scenarios.length === 0) {
    console.error(`${revision}: the suite ran no scenario; see ${join(folder, 'suite.log')}`);
    process.exit(3);
  }
  console.log(`${revision}: ${scenarios.length} scenarios in ${((Date.now() - started) / 1000).toFixed(1)} s, details in ${folder}`);
  outcomes.push(judge({ revision, leg: 'server', folder, scenarios, baseline }));
}

hop?.close();
process.exit(report(outcomes) ? 0 : 1);
