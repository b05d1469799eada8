// screenshots.mjs URL FOLDER: pictures of the status page; scripts/screenshots runs it.
import { writeFileSync } from 'node:fs';
import path from 'node:path';

import { Browser, findBrowser } from '../tests/clients/node/browser.mjs';

const [url, folder] = process.argv.slice(2);
const browser = new Browser(findBrowser());

async function take(name, { view, ready, theme, width, height }) {
    await browser.send('Emulation.setDeviceMetricsOverride', { width, height, deviceScaleFactor: 1, mobile: width < 600 });
    await browser.send('Emulation.setEmulatedMedia', { features: [{ name: 'prefers-color-scheme', value: theme }] });
    await browser.run(`location.hash = '#${view}'`);
    await browser.until(ready);
    await new Promise(resolve => setTimeout(resolve, 1500));
    writeFileSync(path.join(folder, `status-${name}.png`), await browser.screenshot());
}

await browser.open();
await browser.send('Emulation.setDeviceMetricsOverride', { width: 1100, height: 760, deviceScaleFactor: 1, mobile: false });
await browser.send('Page.navigate', { url });
const overview = { view: '/', ready: `document.body.innerText.includes('commands/s')`, width: 1100, height: 760 };
await browser.until(overview.ready);
await browser.send('Emulation.setScrollbarsHidden', { hidden: true });
await new Promise(resolve => setTimeout(resolve, 62000)); // a curve has a point for each ten seconds
await take('overview', { ...overview, theme: 'light' });
await take('overview-dark', { ...overview, theme: 'dark' });
const filters = { view: '/filters?sort=fill&order=desc', ready: `document.querySelectorAll('#filters tbody tr').length > 10`, width: 1100, height: 520 };
await take('filters', { ...filters, theme: 'light' });
await take('filters-dark', { ...filters, theme: 'dark' });
await browser.close();
