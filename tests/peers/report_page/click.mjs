// Opens a page of `tracelink summary` from disk, light and dark: sorts and filters a table, shows the command of a row.
//   node click.mjs PAGE.html CHROMIUM CAPTION COLUMN WORD [FOLDER for pictures]
// Needs playwright-core: NODE_PATH names the folder that it is in. Prints what it saw as JSON.
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const require = createRequire(import.meta.url);
const { chromium } = require('playwright-core');
const [file, browser, caption, column, word, pictures] = process.argv.slice(2);
const address = pathToFileURL(file).href;
const seen = { complaints: [], requests: [], schemes: {} };

const opened = await chromium.launch({ executablePath: browser, headless: true, args: ['--no-sandbox', '--disable-gpu'] });
try {
  for (const colorScheme of ['light', 'dark']) {
    const page = await opened.newPage({ viewport: { width: 1200, height: 900 }, colorScheme });
    page.on('console', (message) => seen.complaints.push(message.text()));
    page.on('pageerror', (error) => seen.complaints.push(String(error)));
    page.on('dialog', (dialog) => seen.complaints.push(dialog.message()) && dialog.dismiss());
    page.on('request', (request) => request.url().startsWith(address) || seen.requests.push(request.url()));
    await page.goto(address);
    if (pictures) await page.screenshot({ path: `${pictures}/report-${colorScheme}.png`, fullPage: true });
    const ground = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    const wide = await page.evaluate(() => document.documentElement.scrollWidth);
    const table = page.locator('table.sortable', { has: page.locator('caption', { hasText: caption }) });
    const header = table.locator('thead th', { hasText: column });
    const index = await header.evaluate((one) => one.cellIndex);
    const cells = async () => table.locator('tbody tr:visible').evaluateAll((rows, at) => rows.map((row) => row.children[at].textContent), index);
    await header.locator('button').focus();
    await page.keyboard.press('Enter');
    const descending = await cells();
    await page.keyboard.press('Enter');
    const ascending = await cells();
    const sorted = await header.getAttribute('aria-sort');
    const field = page.getByLabel(`Filter: ${caption}`, { exact: true });
    await field.fill(word);
    const filtered = await table.locator('tbody tr:visible').allTextContents();
    await field.fill('');
    const all = (await cells()).length;
    await table.locator('button.place').first().click();
    const command = await page.locator('#place code').textContent();
    seen.schemes[colorScheme] = { ground, wide, descending, ascending, sorted, filtered, all, command };
    await page.close();
  }
  process.stdout.write(JSON.stringify(seen) + '\n');
} finally {
  await opened.close();
}
