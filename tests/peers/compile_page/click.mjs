// Opens a page of `tracelink compile -o FILE.html` from disk, light and dark, follows a deep link, shows an artifact, searches.
//   node click.mjs PAGE.html CHROMIUM HASH ARTIFACT WORD [FOLDER for pictures]
// Needs playwright-core: NODE_PATH names the folder that it is in. Prints what it saw as JSON.
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const require = createRequire(import.meta.url);
const { chromium } = require('playwright-core');
const [file, browser, hash, artifact, word, pictures] = process.argv.slice(2);
const address = pathToFileURL(file).href;
const seen = { complaints: [], requests: [], schemes: {} };

// Graphs and code side by side: what is marked when a node of the second column is pressed by keyboard; null if there is none.
async function sides(page) {
  const button = page.locator('button[data-provenance]').first();
  if (!(await button.count())) return null;
  await button.evaluate((one) => {
    for (let outer = one; outer; outer = outer.parentElement) if (outer.tagName === 'DETAILS') outer.open = true;
  });
  await button.focus();
  await page.keyboard.press('Enter');
  const row = page.locator('.sides section:nth-child(2) .mapped').last();
  await row.waitFor();
  await row.focus();
  await page.keyboard.press('Enter');
  const columns = await page.locator('.sides section').all();
  const marked = [];
  for (const column of columns) marked.push((await column.locator('.marked').allTextContents()).map((text) => text.trim()));
  await page.keyboard.press('Escape');
  const left = await page.locator('.marked').count();
  await button.focus();
  await page.keyboard.press('Enter');
  const closed = (await page.locator('.sides').count()) === 0;
  return { marked, left, closed };
}

const opened = await chromium.launch({ executablePath: browser, headless: true, args: ['--no-sandbox', '--disable-gpu'] });
try {
  for (const colorScheme of ['light', 'dark']) {
    const page = await opened.newPage({ viewport: { width: 1200, height: 900 }, colorScheme });
    page.on('console', (message) => seen.complaints.push(message.text()));
    page.on('pageerror', (error) => seen.complaints.push(String(error)));
    page.on('dialog', (dialog) => seen.complaints.push(dialog.message()) && dialog.dismiss());
    page.on('request', (request) => request.url().startsWith(address) || seen.requests.push(request.url()));
    const picture = async (name) => pictures && (await page.screenshot({ path: `${pictures}/${name}-${colorScheme}.png` }));
    await page.goto(address);
    await picture('top');
    const ground = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    const wide = await page.evaluate(() => document.documentElement.scrollWidth);
    await page.goto(address + hash);
    const open = await page.locator('details.compilation[open]').evaluateAll((all) => all.map((one) => one.id));
    const focused = await page.evaluate(() => document.activeElement.parentElement.id);
    const button = page.locator('details.compilation[open] button', { hasText: artifact }).first();
    await button.focus();
    await page.keyboard.press('Enter');
    const block = page.locator('details.compilation[open] li pre').first();
    await block.locator('span').first().waitFor();
    const text = await block.textContent();
    await picture('artifact');
    await page.keyboard.press('Enter');
    const closed = (await page.locator('details.compilation[open] li pre').count()) === 0;
    await page.keyboard.press('/');
    await page.keyboard.type(word);
    const found = await page.locator('#found').textContent();
    const shown = await page.locator('details.compilation:visible').count();
    await page.keyboard.press('Escape');
    const all = await page.locator('details.compilation:visible').count();
    seen.sides = await sides(page);
    seen.schemes[colorScheme] = { ground, wide, open, focused, text, closed, found, shown, all };
    await page.close();
  }
  process.stdout.write(JSON.stringify(seen) + '\n');
} finally {
  await opened.close();
}
