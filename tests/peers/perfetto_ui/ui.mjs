// Perfetto's own UI on an address of this machine, and a headless browser that reaches nothing else.
// Needs playwright-core: NODE_PATH names the folder that it is in.
import fs from 'node:fs';
import http from 'node:http';
import { createRequire } from 'node:module';
import os from 'node:os';
import path from 'node:path';

const { chromium } = createRequire(import.meta.url)('playwright-core');
const TYPES = { '.html': 'text/html', '.js': 'text/javascript', '.wasm': 'application/wasm', '.css': 'text/css', '.json': 'application/json' };

export const PATIENCE = { timeout: 120_000 };

// The server of the UI in a folder, and its origin.
export async function served(ui) {
  const server = http.createServer((request, response) => {
    const wanted = path.posix.normalize(decodeURIComponent(new URL(request.url, 'http://host').pathname));
    const file = path.join(ui, wanted === '/' ? 'index.html' : wanted);
    if (!fs.existsSync(file) || !fs.statSync(file).isFile()) return response.writeHead(404).end();
    response.writeHead(200, { 'content-type': TYPES[path.extname(file)] ?? 'application/octet-stream' });
    return fs.createReadStream(file).pipe(response);
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  return { server, origin: `http://127.0.0.1:${server.address().port}` };
}

// What `look` does with a page of a new browser, which is gone afterwards.
export async function withPage(browser, look) {
  const profile = fs.mkdtempSync(path.join(os.tmpdir(), 'perfetto-ui-'));
  const context = await chromium.launchPersistentContext(profile, {
    executablePath: browser,
    headless: true,
    viewport: { width: 1600, height: 1000 },
    args: ['--no-sandbox', '--disable-gpu', '--no-first-run'],
  });
  try {
    await context.route('**/*', (route) => (/^(data|blob):|^http:\/\/127\.0\.0\.1:/.test(route.request().url()) ? route.continue() : route.abort()));
    await look(context.pages()[0] ?? (await context.newPage()));
  } finally {
    await context.close();
    fs.rmSync(profile, { recursive: true, force: true });
  }
}
