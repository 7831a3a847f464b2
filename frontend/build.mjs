// Bundles the pages: node build.mjs OUT MODULES [DEPFILE]. Run by the package's build through tools/frontend.sh.

import { copyFile, mkdir, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const [out, modules, depfile] = process.argv.slice(2).map((path) => resolve(path));
const { build } = createRequire(join(modules, "package.json"))("esbuild");
const pages = ["index.html", "login.html", "fleet.html", "style.css", "icon.svg"].map((name) => join(here, "public", name));

await mkdir(out, { recursive: true });
const made = await build({
  entryPoints: [join(here, "src/app.js"), join(here, "src/login.js"), join(here, "src/fleet.js"), join(here, "src/report.js")],
  outdir: out,
  bundle: true,
  format: "esm",
  minify: true,
  target: "es2022",
  legalComments: "inline", // the licences of what is bundled stay with it
  nodePaths: [join(modules, "node_modules")],
  metafile: true,
  logLevel: "warning",
});
for (const page of pages) await copyFile(page, join(out, page.slice(join(here, "public/").length)));
await copyFile(join(modules, "node_modules/uplot/dist/uPlot.min.css"), join(out, "uplot.css"));
if (depfile) {
  const inputs = [...pages, ...Object.keys(made.metafile.inputs).map((path) => resolve(path))];
  const escaped = inputs.map((path) => path.replaceAll(" ", "\\ "));
  await writeFile(depfile, `app.js: ${escaped.join(" ")}\n`);
}
