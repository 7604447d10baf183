// The page's look: light and dark as the reader's system has it, one column on a telephone, up to three on a desktop.
#include "run_report/page.h"

namespace cgx::tool::page {

const char* const kStyle = R"(
:root {
  color-scheme: light dark;
  --page: #f6f6f4; --card: #ffffff; --ink: #16181d; --soft: #5b6068; --rule: #dfe0e3; --band: #c9d8ee;
  --c1: #2a6fc9; --c2: #12876a; --c3: #c47a00; --c4: #7a4fc0; --warn: #b3261e;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #121316; --card: #1b1d21; --ink: #eceef1; --soft: #a3a9b3; --rule: #33363d; --band: #2a3a52;
    --c1: #6aa5f2; --c2: #3fbf97; --c3: #e8a33d; --c4: #b292f0; --warn: #ff8a80;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; padding: 1rem; max-width: 76rem; background: var(--page); color: var(--ink);
  font: 0.95rem/1.45 system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif;
}
h1 { font-size: 1.45rem; margin: 0.2rem 0 0; }
h2 { font-size: 1.1rem; margin: 2rem 0 0.6rem; }
p { margin: 0.3rem 0; max-width: 60rem; }
.soft, figcaption span { color: var(--soft); }
.numbers, .plots { display: grid; gap: 0.75rem; margin: 0.8rem 0; }
.numbers { grid-template-columns: repeat(auto-fit, minmax(8.5rem, 1fr)); }
.plots { grid-template-columns: repeat(auto-fit, minmax(min(100%, 20rem), 1fr)); }
.numbers div, figure, .card {
  background: var(--card); border: 1px solid var(--rule); border-radius: 8px; padding: 0.7rem 0.85rem; margin: 0;
  min-width: 0;
}
.numbers b { display: block; font-size: 1.5rem; line-height: 1.25; overflow-wrap: anywhere; }
.numbers span { color: var(--soft); font-size: 0.85rem; overflow-wrap: anywhere; }
figcaption { font-weight: 600; margin-bottom: 0.3rem; }
figcaption span { display: block; font-weight: 400; font-size: 0.82rem; }
.keys { display: flex; flex-wrap: wrap; gap: 0.1rem 0.9rem; font-size: 0.82rem; color: var(--soft); }
.keys i { display: inline-block; width: 0.75rem; height: 0.75rem; border-radius: 3px; margin-right: 0.35rem; }
svg { display: block; width: 100%; max-width: 34rem; height: auto; }
svg text { fill: var(--soft); font-size: 11px; font-family: inherit; }
.grid { stroke: var(--rule); stroke-width: 1; }
.axis { stroke: var(--soft); stroke-width: 1; }
.band { fill: var(--band); }
.line { fill: none; stroke-width: 2; stroke-linejoin: round; stroke-linecap: round; }
.line.c1 { stroke: var(--c1); } .line.c2 { stroke: var(--c2); } .line.c3 { stroke: var(--c3); } .line.c4 { stroke: var(--c4); }
rect.c1, circle.c1 { fill: var(--c1); } rect.c2, circle.c2 { fill: var(--c2); }
rect.c3, circle.c3 { fill: var(--c3); } rect.c4, circle.c4 { fill: var(--c4); }
.part { stroke: var(--card); stroke-width: 1; }
.keys .c1 { background: var(--c1); } .keys .c2 { background: var(--c2); } .keys .c3 { background: var(--c3); }
.keys .c4 { background: var(--c4); } .keys .band { background: var(--band); }
.card { overflow-x: auto; padding: 0.3rem 0.85rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; font-size: 0.88rem; }
th { text-align: right; font-weight: 600; color: var(--soft); }
td { text-align: right; }
th, td { padding: 0.35rem 0.6rem; border-top: 1px solid var(--rule); white-space: nowrap; vertical-align: top; }
tr:first-child th { border-top: 0; }
th:first-child, td:first-child { padding-left: 0; }
.name { text-align: left; }
.why { text-align: left; white-space: normal; min-width: 16rem; color: var(--soft); }
.marked td { font-weight: 600; }
.warn { color: var(--warn); }
)";

}  // namespace cgx::tool::page
