// What the drivers of this folder share: a tally of checks, a gateway as its clients and operators
// see it, and the server that is started again and again. It knows of no life's order.
import { execFileSync, spawn } from 'node:child_process';
import { parseArgs } from 'node:util';

export const options = names =>
  parseArgs({ options: Object.fromEntries(names.map(name => [name, { type: 'string' }])) }).values;

// ---- checks ------------------------------------------------------------------------------------

let passed = 0;
let failed = 0;

const sleep = ms => new Promise(resolve => setTimeout(resolve, ms));

export function checks(who) {
  function check(what, isSo, found) {
    if (isSo) passed++;
    else failed++;
    console.log(`${isSo ? 'ok' : 'not ok'} - ${who}: ${what}${isSo ? '' : `: ${JSON.stringify(found)}`}`);
  }
  async function until(what, isSo) {
    let found;
    for (let tries = 0; tries < 150; tries++) {
      try {
        found = await isSo();
        if (found === true) return check(what, true);
      } catch (error) {
        found = String(error);
      }
      await sleep(200);
    }
    check(what, false, found);
  }
  return { check, until };
}

export function finish() {
  console.log(`${passed} passed, ${failed} failed`);
  process.exit(failed === 0 ? 0 : 1);
}

// ---- a gateway, as its clients see it ----------------------------------------------------------

export function client(gateway, key, employee) {
  const headers = { 'X-Api-Key': key, 'SSO-Emp-Id': employee, 'Content-Type': 'application/json' };

  async function ask(method, path, body, more = {}) {
    const sent = body === undefined ? undefined : JSON.stringify(body);
    const response = await fetch(`${gateway}${path}`, { method, headers: { ...headers, ...more }, body: sent });
    return { status: response.status, ...(await response.json()) };
  }

  // MCP-Lite.
  async function listed(path) {
    const answer = await ask('POST', `${path}/tools/list`, {});
    return (answer.tools ?? [answer]).map(tool => tool.name ?? JSON.stringify(tool));
  }
  const callLite = (path, name, json) => ask('POST', `${path}/tools/call`, { name, arguments: JSON.parse(json) });

  // 2026-07-28.
  async function callModern(path, name, json) {
    const _meta = {
      'io.modelcontextprotocol/protocolVersion': '2026-07-28',
      'io.modelcontextprotocol/clientInfo': { name: 'third-party', version: '1' },
      'io.modelcontextprotocol/clientCapabilities': {}
    };
    const params = { name, arguments: JSON.parse(json), _meta };
    const more = {
      Accept: 'application/json, text/event-stream',
      'MCP-Protocol-Version': '2026-07-28',
      'Mcp-Method': 'tools/call',
      'Mcp-Name': name
    };
    const answer = await ask('POST', path, { jsonrpc: '2.0', id: 1, method: 'tools/call', params }, more);
    return answer.result ?? answer;
  }

  return { ask, listed, dialects: [['MCP-Lite', callLite], ['2026-07-28', callModern]] };
}

export const text = result => (result?.content ?? []).map(block => block.text ?? '').join(' ');
export const word = result => result?._meta?.['dev.hangu/error']?.code ?? result?.error?.code;

// ---- the same, as its operators do -------------------------------------------------------------

export const operator = (hangu, admin) => ({
  async ask(path) {
    const response = await fetch(`${admin}/admin/api/${path}`, { headers: { Authorization: `Bearer ${process.env.HANGU_ADMIN_TOKEN}` } });
    return response.json();
  },
  pins: (...args) => execFileSync(hangu, ['pins', ...args, '--url', admin], { encoding: 'utf8' })
});

// ---- the server --------------------------------------------------------------------------------

let running;

// COMMAND in the foreground, with a release after it, in place of what ran before.
export async function start(command, release) {
  if (running) {
    const ended = new Promise(resolve => running.once('exit', resolve));
    // The whole group: a shell may stand in between.
    process.kill(-running.pid, 'SIGTERM');
    const killer = setTimeout(() => process.kill(-running.pid, 'SIGKILL'), 5000);
    await ended;
    clearTimeout(killer);
  }
  running = spawn('bash', ['-c', `exec ${command} ${release}`], { detached: true, stdio: ['ignore', 'ignore', 'inherit'] });
}

function end() {
  try {
    process.kill(-running.pid, 'SIGKILL');
  } catch {
    // It has ended already.
  }
}
process.on('exit', end);
for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => process.exit(1));
