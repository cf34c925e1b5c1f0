// Opens a trace in Perfetto's own UI, in a headless browser without a network, and takes a picture.
//   node screenshot.mjs UI_FOLDER TRACE PICTURE.png CHROMIUM
// Needs playwright-core: NODE_PATH names the folder that it is in. Prints what the UI says of the trace, as JSON.
import fs from 'node:fs';
import http from 'node:http';
import { createRequire } from 'node:module';
import os from 'node:os';
import path from 'node:path';

const require = createRequire(import.meta.url);
const { chromium } = require('playwright-core');
const [ui, trace, picture, browser] = process.argv.slice(2);
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
const address = `http://127.0.0.1:${server.address().port}`;
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
  await page.goto(address);
  await page.waitForFunction(() => window.waitForPerfettoIdle, null, PATIENCE);
  // Handed over as a file: a service on another port than 9001 is not allowed by the page.
  await page.locator('input.trace_file').setInputFiles(trace);
  await page.waitForFunction(() => window.app?.trace, null, PATIENCE);
  await page.evaluate(() => window.waitForPerfettoIdle(500));
  const seen = await page.evaluate(() => {
    const shown = window.app.trace;
    const workspace = shown.currentWorkspace ?? shown.workspace;
    return {
      title: shown.traceInfo.traceTitle,
      importErrors: Number(shown.traceInfo.importErrors),
      groups: (workspace.tracks ?? workspace).children.map((group) => group.name ?? group.title),
    };
  });
  await page.screenshot({ path: picture });
  process.stdout.write(JSON.stringify(seen) + '\n');
} finally {
  await context.close();
  server.close();
  fs.rmSync(profile, { recursive: true, force: true });
}
