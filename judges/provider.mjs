// An OpenID provider on loopback, for one client, whose users log in by their name alone. It says on stderr where it is.
//
// Told by POST: /test/rotate gives it another signing key, /test/groups?user=U&groups=A,B says which groups U is in, and
// /test/lasting?seconds=N how long the tokens last that it issues from then on.

import { createServer } from 'node:http';
import { exportJWK, generateKeyPair } from 'jose';
import { Provider } from 'oidc-provider';

const RESOURCE = process.argv[2];
const REDIRECT = 'https://client.example/callback';
const groups = new Map();
let lasting = 300;
let listener;

const server = createServer((request, response) => {
  const url = new URL(request.url, 'http://provider');
  if (url.pathname === '/test/rotate') {
    begin().then(() => response.end());
  } else if (url.pathname === '/test/lasting') {
    lasting = Number(url.searchParams.get('seconds'));
    response.end();
  } else if (url.pathname === '/test/groups') {
    groups.set(url.searchParams.get('user'), url.searchParams.get('groups').split(',').filter(Boolean));
    response.end();
  } else {
    listener(request, response);
  }
});

async function begin() {
  const { privateKey } = await generateKeyPair('RS256', { extractable: true });
  const key = { ...(await exportJWK(privateKey)), alg: 'RS256', use: 'sig', kid: crypto.randomUUID() };
  const issuer = `http://127.0.0.1:${server.address().port}`;
  const provider = new Provider(issuer, {
    clients: [{ client_id: 'desk', redirect_uris: [REDIRECT], token_endpoint_auth_method: 'none' }],
    jwks: { keys: [key] },
    findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id }) }),
    extraTokenClaims: (_, token) => ({ groups: groups.get(token.accountId) ?? [] }),
    features: {
      devInteractions: { enabled: true },
      resourceIndicators: {
        enabled: true,
        defaultResource: () => RESOURCE,
        useGrantedResource: () => true,
        getResourceServerInfo: (_, resource) => ({
          scope: 'memory:read memory:write',
          audience: resource,
          accessTokenFormat: 'jwt',
          accessTokenTTL: lasting,
        }),
      },
    },
  });
  listener = provider.callback();
}

server.listen(0, '127.0.0.1', async () => {
  await begin();
  console.error(`serving OpenID at http://127.0.0.1:${server.address().port}`);
  process.on('SIGTERM', () => process.exit(0));
});
