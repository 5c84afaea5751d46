// The same life, where employees bring the server themselves by its URL: registered, listed,
// called, changed, asked again, quarantined, compared, approved, rolled back, deleted.
//
//   own.mjs --gateway URL --admin URL --hangu BINARY --name NAME --url URL --options JSON --start COMMAND
//           --tool NAME --arguments JSON --says TEXT
//           --changed-arguments JSON --changed-says TEXT --differs CLASS
//
// E1001 of acme, whose policy takes such tools for `read_low`, and E2001 of globex, where they are
// `read_high`, each have it; what one of them does about it is nothing to the other. HANGU_API_KEY
// and GLOBEX_KEY are their keys, HANGU_ADMIN_TOKEN is set. Last line: `N passed, N failed`.
import { checks, client, finish, operator, options as parse, start as restart, text, word } from './lib.mjs';

const options = parse([
  'gateway', 'admin', 'hangu', 'name', 'url', 'options', 'start', 'tool', 'arguments', 'says', 'changed-arguments',
  'changed-says', 'differs'
]);
const { tool } = options;
const { pins } = operator(options.hangu, options.admin);
const body = { url: options.url, name: options.name, options: JSON.parse(options.options) };
const start = release => restart(options.start, release);

function owner(tenant, employee, key) {
  const { ask, listed, dialects } = client(options.gateway, key, employee);
  const { check, until } = checks(`${options.name} of ${tenant}/${employee}`);
  let serverKey;
  // The server alone, and all that the employee has.
  const ways = () => [[`/mcp/${serverKey}`, tool], ['/mcp', `${serverKey}__${tool}`]];
  const pin = () => `${tenant}/${employee}/${serverKey}/${tool}`;

  async function isThere(what, expected) {
    for (const [path, name] of ways()) {
      const isSo = async () => {
        const names = await listed(path);
        return names.includes(name) === expected || names;
      };
      await until(`${what}, on ${path.replace(serverKey, 'KEY')}`, isSo);
    }
  }
  async function calls(what, json, isSo) {
    for (const [path, name] of ways()) {
      for (const [dialect, call] of dialects) {
        const result = await call(path, name, json);
        check(`${what}, on ${path.replace(serverKey, 'KEY')} in ${dialect}`, isSo(result), result);
      }
    }
  }
  const answers = (what, json, says) => calls(what, json, result => !result.isError && text(result).includes(says));
  const isBlocked = (what, json) => calls(what, json, result => word(result) === 'unsafe_action_blocked');
  const show = async () => {
    const server = await ask('GET', `/v1/servers/${serverKey}`);
    return server.tools?.find(({ name }) => name === tool) ?? server;
  };
  // The server has just been started; while it does not answer, what it listed before stays.
  const refresh = what =>
    until(what, async () => {
      const answer = await ask('POST', `/v1/servers/${serverKey}/refresh`);
      return (answer.status === 200 && answer.health === 'ok') || answer;
    });

  return {
    async registers() {
      await until('it is registered by its URL', async () => {
        const answer = await ask('POST', '/v1/servers', body);
        serverKey = answer.serverKey;
        return (answer.status === 201 && serverKey.startsWith('mcp_') && answer.toolCount > 0 && answer.health === 'ok') || answer;
      });
      await isThere('it is listed', true);
      await answers('it is called', options.arguments, options.says);
    },

    async meetsTheChange() {
      await refresh('it is asked again');
      await isThere('a change takes it away', false);
      const shown = await show();
      check('its owner sees that it is held', shown.held === true, shown);
      const held = pins('ls', '--held', '--owner', `${tenant}/${employee}`);
      check('and operators among those that wait', held.includes(tool), held);
      await isBlocked('a call of it is blocked', options.arguments);
      await isBlocked('by its new arguments, too', options['changed-arguments']);
      const difference = pins('diff', pin(), '--format', 'json');
      check('the difference is told by its class', difference.includes(options.differs), difference);
    },

    async isApproved() {
      const { to } = JSON.parse(pins('diff', pin(), '--format', 'json'));
      pins('approve', pin(), to.digest);
      await isThere('it is back once somebody approves the change', true);
      await answers('it is called as it is now', options['changed-arguments'], options['changed-says']);
    },

    async isStillHeld() {
      await isThere('what is approved for another is held here', false);
      await isBlocked('and blocked', options['changed-arguments']);
    },

    async goesBack() {
      pins('rollback', pin());
      await isThere('going back holds what its server lists now', false);
      await isBlocked('a call of it is blocked again', options['changed-arguments']);
    },

    async meetsTheFirst() {
      await refresh('it is asked once more');
      await isThere('it is there again when its server goes back, too', true);
      await answers('it is called as at first', options.arguments, options.says);
    },

    async deletes() {
      const answer = await ask('DELETE', `/v1/servers/${serverKey}`);
      check('it is deleted', answer.status === 200, answer);
      const left = await ask('GET', '/v1/servers');
      check('and gone from what the owner has', left.servers?.length === 0, left);
      const [[alone, name], [all, qualified]] = ways();
      const names = await listed(all);
      check('and from the list', !names.includes(qualified), names);
      const [, call] = dialects[0];
      const result = await call(alone, name, options.arguments);
      check('nobody answers under its key', result.status === 404, result);
    },

    async stillHasIt() {
      await answers('another who deletes his takes nothing away', options.arguments, options.says);
    }
  };
}

// ---- two lives ---------------------------------------------------------------------------------

const low = owner('acme', 'E1001', process.env.HANGU_API_KEY);
const high = owner('globex', 'E2001', process.env.GLOBEX_KEY);

await start('first');
await low.registers();
await high.registers();
await start('changed');
await low.meetsTheChange();
await high.meetsTheChange();
await low.isApproved();
await high.isStillHeld();
await high.isApproved();
await low.goesBack();
await high.goesBack();
await start('first');
await low.meetsTheFirst();
await high.meetsTheFirst();
await low.deletes();
await high.stillHasIt();
await high.deletes();
finish();
