// Puts one third-party server through the life of a definition behind a running gateway: listed,
// called, pinned, changed, quarantined, compared, approved, rolled back.
//
//   drive.mjs --gateway URL --admin URL --hangu BINARY --upstream NAME --start COMMAND
//             --tool NAME --arguments JSON --says TEXT
//             --changed-arguments JSON --changed-says TEXT --differs CLASS --named NAME
//
// COMMAND starts the server in the foreground, with `first` or `changed` after it. The tool has
// risk `read_high` and waits for a person; HANGU_API_KEY and HANGU_ADMIN_TOKEN are set.
// One line a check; last line: `N passed, N failed`.
import { execFileSync, spawn } from 'node:child_process';
import { parseArgs } from 'node:util';

const names = [
  'gateway', 'admin', 'hangu', 'upstream', 'start', 'tool', 'arguments', 'says', 'changed-arguments',
  'changed-says', 'differs', 'named'
];
const { values: options } = parseArgs({ options: Object.fromEntries(names.map(name => [name, { type: 'string' }])) });
const { gateway, admin, hangu, upstream, tool } = options;
const qualified = `${upstream}/${tool}`;

let passed = 0;
let failed = 0;
function check(what, isSo, found) {
  if (isSo) passed++;
  else failed++;
  console.log(`${isSo ? 'ok' : 'not ok'} - ${upstream}: ${what}${isSo ? '' : `: ${JSON.stringify(found)}`}`);
}

const sleep = ms => new Promise(resolve => setTimeout(resolve, ms));

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

// ---- the gateway, as its clients see it --------------------------------------------------------

const headers = { 'X-Api-Key': process.env.HANGU_API_KEY, 'SSO-Emp-Id': 'E1001', 'Content-Type': 'application/json' };

async function post(path, body, more = {}) {
  const response = await fetch(`${gateway}${path}`, { method: 'POST', headers: { ...headers, ...more }, body: JSON.stringify(body) });
  return response.json();
}

// MCP-Lite.
const listed = async () => (await post(`/mcp/${upstream}/tools/list`, {})).tools.map(({ name }) => name);
const callLite = json => post(`/mcp/${upstream}/tools/call`, { name: tool, arguments: JSON.parse(json) });

// 2026-07-28.
async function callModern(json) {
  const _meta = {
    'io.modelcontextprotocol/protocolVersion': '2026-07-28',
    'io.modelcontextprotocol/clientInfo': { name: 'third-party', version: '1' },
    'io.modelcontextprotocol/clientCapabilities': {}
  };
  const params = { name: tool, arguments: JSON.parse(json), _meta };
  const more = {
    Accept: 'application/json, text/event-stream',
    'MCP-Protocol-Version': '2026-07-28',
    'Mcp-Method': 'tools/call',
    'Mcp-Name': tool
  };
  return (await post(`/mcp/${upstream}`, { jsonrpc: '2.0', id: 1, method: 'tools/call', params }, more)).result;
}

const text = result => (result?.content ?? []).map(block => block.text ?? '').join(' ');
const word = result => result?._meta?.['dev.hangu/error']?.code ?? result?.error?.code;

async function answers(how, json, says) {
  for (const [dialect, call] of [['MCP-Lite', callLite], ['2026-07-28', callModern]]) {
    const result = await call(json);
    check(`${how}, in ${dialect}`, !result?.isError && text(result).includes(says), result);
  }
}

async function isBlocked(how, json) {
  for (const [dialect, call] of [['MCP-Lite', callLite], ['2026-07-28', callModern]]) {
    const result = await call(json);
    check(`${how}, in ${dialect}`, word(result) === 'unsafe_action_blocked', result);
  }
}

// ---- the same, as its operators do -------------------------------------------------------------

async function ask(path) {
  const response = await fetch(`${admin}/admin/api/${path}`, { headers: { Authorization: `Bearer ${process.env.HANGU_ADMIN_TOKEN}` } });
  return response.json();
}

const of = () => ask(`tools/${tool}?upstream=${upstream}`);
const pins = (...args) => execFileSync(hangu, ['pins', ...args, '--url', admin], { encoding: 'utf8' });
const isListed = async () => (await listed()).includes(tool) || (await listed());
const isGone = async () => !(await listed()).includes(tool) || (await listed());
const digest = async () => (await of()).listed;

// ---- the server --------------------------------------------------------------------------------

let running;

async function start(release) {
  if (running) {
    const ended = new Promise(resolve => running.once('exit', resolve));
    // The whole group: a shell may stand in between.
    process.kill(-running.pid, 'SIGTERM');
    const killer = setTimeout(() => process.kill(-running.pid, 'SIGKILL'), 5000);
    await ended;
    clearTimeout(killer);
  }
  running = spawn('bash', ['-c', `exec ${options.start} ${release}`], { detached: true, stdio: ['ignore', 'ignore', 'inherit'] });
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

// ---- one life ----------------------------------------------------------------------------------

await start('first');
await until('it is listed', async () => {
  const server = await ask(`servers/${upstream}`);
  return (server.up && server.listing === 'listed' && server.tools > 0) || server;
});
const server = await ask(`servers/${upstream}`);
check('it says who it is', server.name === options.named && server.version?.length > 0, server);
check('it has a serverKey and a revision', server.serverKey?.startsWith('mcp_') && !!server.revision, server);
const all = (await ask(`tools?upstream=${upstream}`)).tools;
const dangers = ['poisoned', 'invisible', 'secret'];
check('nothing dangerous is found in it', all.every(({ quality }) => !quality.found.some(flaw => dangers.includes(flaw))), all);

check('a tool that nobody has approved is not there', !(await listed()).includes(tool), await listed());
await isBlocked('nor can it be called', options.arguments);
const first = await digest();
pins('approve', qualified, first);
await until('it is there once somebody approves it', isListed);
await answers('it is called', options.arguments, options.says);

await start('changed');
await until('a change takes it away', isGone);
check('it is held, and why is told', (await of()).held === 'changed', await of());
check('and is among those that wait', pins('ls', '--held').includes(qualified), pins('ls', '--held'));
await isBlocked('a call of it is blocked', options.arguments);
await isBlocked('by its new arguments, too', options['changed-arguments']);
const difference = pins('diff', qualified, '--format', 'json');
check('the difference is told by its class', difference.includes(options.differs), difference);

const changed = await digest();
check('it is another definition', changed !== first, changed);
pins('approve', qualified, changed);
await until('it is back once somebody approves the change', isListed);
await answers('it is called as it is now', options['changed-arguments'], options['changed-says']);
const history = pins('ls', qualified);
check('both definitions are kept', history.includes(first) && history.includes(changed), history);

pins('rollback', qualified);
await until('going back holds what its server lists now', isGone);
await isBlocked('a call of it is blocked again', options['changed-arguments']);
await start('first');
await until('it is there again when its server goes back, too', isListed);
await answers('it is called as at first', options.arguments, options.says);

console.log(`${passed} passed, ${failed} failed`);
process.exit(failed === 0 ? 0 : 1);
