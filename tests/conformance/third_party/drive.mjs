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
import { checks, client, finish, operator, options as parse, start as restart, text, word } from './lib.mjs';

const options = parse([
  'gateway', 'admin', 'hangu', 'upstream', 'start', 'tool', 'arguments', 'says', 'changed-arguments',
  'changed-says', 'differs', 'named'
]);
const { upstream, tool } = options;
const qualified = `${upstream}/${tool}`;
const path = `/mcp/${upstream}`;

const { check, until } = checks(upstream);
const employee = client(options.gateway, process.env.HANGU_API_KEY, 'E1001');
const { ask, pins } = operator(options.hangu, options.admin);
const start = release => restart(options.start, release);
const listed = () => employee.listed(path);

async function answers(how, json, says) {
  for (const [dialect, call] of employee.dialects) {
    const result = await call(path, tool, json);
    check(`${how}, in ${dialect}`, !result?.isError && text(result).includes(says), result);
  }
}

async function isBlocked(how, json) {
  for (const [dialect, call] of employee.dialects) {
    const result = await call(path, tool, json);
    check(`${how}, in ${dialect}`, word(result) === 'unsafe_action_blocked', result);
  }
}

const of = () => ask(`tools/${tool}?upstream=${upstream}`);
const isListed = async () => (await listed()).includes(tool) || (await listed());
const isGone = async () => !(await listed()).includes(tool) || (await listed());
const digest = async () => (await of()).listed;

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

finish();
