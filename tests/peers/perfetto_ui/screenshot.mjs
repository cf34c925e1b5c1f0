// Opens a trace in Perfetto's own UI, in a headless browser without a network, and takes a picture.
//   node screenshot.mjs UI_FOLDER TRACE PICTURE.png CHROMIUM
// Needs playwright-core: NODE_PATH names the folder that it is in. Prints what the UI says of the trace, as JSON.
import { PATIENCE, served, withPage } from './ui.mjs';

const [ui, trace, picture, browser] = process.argv.slice(2);
const { server, origin } = await served(ui);
await withPage(browser, async (page) => {
  await page.goto(origin);
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
      outline: outline((workspace.tracks ?? workspace).children, ''),
    };
    // The names of all tracks in the order in which they are shown, each indented below its parent.
    function outline(tracks, indent) {
      return tracks.flatMap((track) => [indent + (track.name ?? track.title), ...outline(track.children, indent + '  ')]);
    }
  });
  await page.screenshot({ path: picture });
  process.stdout.write(JSON.stringify(seen) + '\n');
}).finally(() => server.close());
