// Starts a gateway that authenticates itself at the scenario's server by OAuth, as the
// scenario wants it done. Called by oauth.sh through drive.mjs, which tells the server's
// URL and the scenario in the environment.
import { spawn, spawnSync } from 'node:child_process';
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

const env = process.env;
const { HANGU, GATEWAY_FOLDER: folder, GATEWAY_PORT: port, GATEWAY_ADMIN_PORT: admin } = env;
const scenario = env.MCP_CONFORMANCE_SCENARIO ?? '';
const context = env.MCP_CONFORMANCE_CONTEXT ? JSON.parse(env.MCP_CONFORMANCE_CONTEXT) : {};

const auth = { type: 'oauth', listing: { tenant: 'acme', empId: 'E1001' } };
if (context.client_id) auth.client_id = context.client_id;
if (context.client_secret) auth.client_secret = { env: 'CLIENT_SECRET' };
if (scenario.startsWith('auth/client-credentials')) {
  auth.type = 'client_credentials';
  delete auth.listing;
  if (context.private_key_pem) auth.key = { env: 'CLIENT_KEY' };
} else if (context.issuer) auth.issuer = context.issuer;

rmSync(folder, { recursive: true, force: true });
mkdirSync(join(folder, 'policies'), { recursive: true });
const config = {
  version: 'hangu/v1',
  listen: `127.0.0.1:${port}`,
  admin: { listen: `127.0.0.1:${admin}` },
  public_url: `http://127.0.0.1:${port}`,
  keyring: { file: 'keyring.json' },
  egress: { allow: ['localhost', '127.0.0.1', '[::1]'] },
  callers: { conformance: { keys: [{ env: 'CONFORMANCE_KEY' }], tenant: 'acme', identity: 'header', catalog_roles: ['member'] } },
  upstreams: { s: { url: env.UPSTREAM_URL, poll: '1s', auth } }
};
writeFileSync(join(folder, 'hangu.yaml'), JSON.stringify(config));
const policies = [
  { kind: 'Tools', upstreams: { s: { default: { risk: 'read_low' } } } },
  { kind: 'Directory', employees: { E1001: { tenant: 'acme', roles: ['member'] } } },
  { kind: 'Policy', scope: { tenant: 'acme' }, rules: [{ id: 'all', effect: 'allow', roles: ['member'], risk: ['read_low'] }] }
];
for (const policy of policies) {
  const file = join(folder, 'policies', `${policy.kind.toLowerCase()}.yaml`);
  writeFileSync(file, JSON.stringify({ version: 'hangu/v1', ...policy }));
}
const settings = {
  cwd: folder,
  stdio: ['ignore', 'inherit', 'inherit'],
  env: { ...env, CLIENT_SECRET: context.client_secret ?? '', CLIENT_KEY: context.private_key_pem ?? '' }
};
spawnSync(HANGU, ['keys', 'new'], settings);
spawn(HANGU, ['serve'], settings).on('exit', code => process.exit(code ?? 1));
