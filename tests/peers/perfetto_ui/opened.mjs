// Serves Perfetto's own UI, opens it at an address in a headless browser without a network, and says what it shows.
//   node opened.mjs UI_FOLDER PICTURE.png CHROMIUM
// Prints the origin of the UI on a line, reads the address from a line, prints what was seen as JSON on a line.
// Needs playwright-core: NODE_PATH names the folder that it is in.
import fs from 'node:fs';
import http from 'node:http';
import { createRequire } from 'node:module';
import os from 'node:os';
import path from 'node:path';
import readline from 'node:readline';

const require = createRequire(import.meta.url);
const { chromium } = require('playwright-core');
const [ui, picture, browser] = process.argv.slice(2);
const TYPES = { '.html': 'text/html', '.js': 'text/javascript', '.wasm': 'application/wasm', '.css': 'text/css', '.json': 'application/json' };
const PATIENCE = { timeout: 120_000 };

const server = http.createServer((request, response) => {
  const wanted = path.posix.normalize(decodeURIComponent(new URL(request.url, 'http://host').pathname));
  const file = path.join(ui, wanted === '/' ? 'index.html' : wanted);
  if (!fs.existsSync(file) || !fs.statSync(file).isFile()) return response.writeHead(404).end();
  response.writeHead(200, { 'content-type': TYPES[path.extname(file)] ?? 'application/octet-stream' });
  return fs.createReadStream(file).pipe(response);
});
await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
process.stdout.write(`http://127.0.0.1:${server.address().port}\n`);
const lines = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const address = (await lines.next()).value;
const profile = fs.mkdtempSync(path.join(os.tmpdir(), 'perfetto-ui-'));
const context = await chromium.launchPersistentContext(profile, {
  executablePath: browser,
  headless: true,
  viewport: { width: 1600, height: 1000 },
  args: ['--no-sandbox', '--disable-gpu', '--no-first-run'],
});
try {
  await context.route('**/*', (route) => (/^(data|blob):|^http:\/\/127\.0\.0\.1:/.test(route.request().url()) ? route.continue() : route.abort()));
  const page = context.pages()[0] ?? (await context.newPage());
  const fetched = [];
  page.on('response', (response) => {
    if (response.ok() && response.url().startsWith('http://127.0.0.1:9001/')) fetched.push(response.url());
  });
  await page.goto(address);
  await page.waitForFunction(() => window.waitForPerfettoIdle && window.app?.trace, null, PATIENCE);
  await page.evaluate(() => window.waitForPerfettoIdle(1000));
  const seen = await page.evaluate(() => {
    const shown = window.app.trace;
    const workspace = shown.currentWorkspace ?? shown.workspace;
    const names = (tracks) => tracks.map((track) => track.name ?? track.title);
    return {
      title: shown.traceInfo.traceTitle,
      importErrors: Number(shown.traceInfo.importErrors),
      groups: names((workspace.tracks ?? workspace).children),
      tracks: names(workspace.flatTracks),
      pinned: names((workspace.pinnedTracksNode ?? workspace.pinnedRoot)?.children ?? workspace.pinnedTracks),
    };
  });
  await page.screenshot({ path: picture });
  process.stdout.write(JSON.stringify({ ...seen, fetched }) + '\n');
} finally {
  await context.close();
  server.close();
  lines.return();
  process.stdin.destroy();
  fs.rmSync(profile, { recursive: true, force: true });
}
