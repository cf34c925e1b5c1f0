// Serves Perfetto's own UI, opens it at an address in a headless browser without a network, and says what it shows.
//   node opened.mjs UI_FOLDER PICTURE.png CHROMIUM
// Prints the origin of the UI on a line, reads the address from a line, prints what was seen as JSON on a line.
// Needs playwright-core: NODE_PATH names the folder that it is in.
import readline from 'node:readline';

import { PATIENCE, served, withPage } from './ui.mjs';

const [ui, picture, browser] = process.argv.slice(2);
const { server, origin } = await served(ui);
process.stdout.write(`${origin}\n`);
const lines = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const address = (await lines.next()).value;
await withPage(browser, async (page) => {
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
}).finally(() => {
  server.close();
  lines.return();
  process.stdin.destroy();
});
