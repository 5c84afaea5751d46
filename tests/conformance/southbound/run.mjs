// Runs the client leg of the conformance suite with a gateway as the client;
// see ../run-southbound.sh and README.md.
import { spawn } from 'node:child_process';
import { createWriteStream, mkdirSync, rmSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { judge, readBaseline, report, requirements, suiteEntry } from '../suite/results.mjs';

const { values: options } = parseArgs({
  options: {
    start: { type: 'string' },
    url: { type: 'string', default: 'http://127.0.0.1:8080/mcp' },
    header: { type: 'string', multiple: true, default: [] },
    mode: { type: 'string', default: 'auto' },
    revision: { type: 'string', multiple: true, default: [] },
    scenario: { type: 'string', multiple: true, default: [] },
    baseline: { type: 'string', multiple: true, default: [] },
    timeout: { type: 'string', default: '60' },
    out: { type: 'string', default: 'southbound-results' }
  }
});

const driver = fileURLToPath(new URL('drive.mjs', import.meta.url));
const env = {
  ...process.env,
  GATEWAY_START: options.start ?? '',
  GATEWAY_URL: options.url,
  GATEWAY_MODE: options.mode,
  GATEWAY_HEADERS: JSON.stringify(
    Object.fromEntries(options.header.map(line => line.split(/:(.*)/s).slice(0, 2).map(part => part.trim())))
  )
};

function runScenario(revision, scenario, folder) {
  const args = [
    suiteEntry, 'client', '--command', `${process.execPath} ${driver}`, '--scenario', scenario,
    '--spec-version', revision, '--timeout', String(Number(options.timeout) * 1000), '--output-dir', folder,
    // What is named is run, also where it is of an extension.
    ...(options.scenario.length ? ['--force'] : [])
  ];
  return new Promise((done, fail) => {
    const child = spawn(process.execPath, args, { env, stdio: ['ignore', 'pipe', 'pipe'] });
    const log = createWriteStream(join(folder, 'suite.log'), { flags: 'a' });
    child.stdout.pipe(log, { end: false });
    child.stderr.pipe(log, { end: false });
    child.on('error', fail);
    child.on('close', () => log.end(done));
  });
}

const outcomes = [];
for (const revision of options.revision.length ? options.revision : ['2025-11-25', '2026-07-28']) {
  const folder = resolve(options.out, revision);
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  const known = requirements(revision, 'client');
  // The auth/ scenarios observe an OAuth client with a browser; they are for
  // gateways that log in to their upstream servers that way.
  const scenarios = options.scenario.length
    ? options.scenario
    : [...known.scored, ...known.unscored.filter(name => name.startsWith('json-'))].filter(
        name => !name.startsWith('auth/')
      );
  for (const scenario of scenarios) await runScenario(revision, scenario, folder);
  console.log(`${revision}: ${scenarios.length} scenarios, details in ${folder}`);
  outcomes.push(judge({ revision, leg: 'client', folder, scenarios, baseline: readBaseline(options.baseline) }));
}
process.exit(report(outcomes) ? 0 : 1);
