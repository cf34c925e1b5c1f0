// Opens a page of `tracelink diagnose -o page.html` from disk, narrow and wide, light and dark, and on paper.
//   node look.mjs PAGE.html CHROMIUM
// Needs playwright-core: NODE_PATH names the folder that it is in. Prints what the browser complains of, what it asks
// for beside the page, and how wide each picture is, as JSON.
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const require = createRequire(import.meta.url);
const { chromium } = require('playwright-core');
const [file, browser] = process.argv.slice(2);
const address = pathToFileURL(file).href;
const seen = { complaints: [], requests: [], widths: {} };

const opened = await chromium.launch({ executablePath: browser, headless: true, args: ['--no-sandbox', '--disable-gpu'] });
try {
  for (const media of ['screen', 'print']) {
    for (const colorScheme of ['light', 'dark']) {
      for (const width of [400, 1200]) {
        const page = await opened.newPage({ viewport: { width, height: 800 }, colorScheme });
        page.on('console', (message) => seen.complaints.push(message.text()));
        page.on('pageerror', (error) => seen.complaints.push(String(error)));
        page.on('dialog', (dialog) => seen.complaints.push(dialog.message()) && dialog.dismiss());
        page.on('request', (request) => request.url() === address || seen.requests.push(request.url()));
        await page.emulateMedia({ media, colorScheme });
        await page.goto(address);
        const [wide, ground] = await page.evaluate(() => [
          document.documentElement.scrollWidth,
          getComputedStyle(document.body).backgroundColor,
        ]);
        seen.widths[`${media} ${colorScheme} ${width}`] = [wide, ground];
        await page.close();
      }
    }
  }
  process.stdout.write(JSON.stringify(seen) + '\n');
} finally {
  await opened.close();
}
