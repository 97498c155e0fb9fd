"""How the page looks, light and dark, and its few lines of script."""

from __future__ import annotations

STYLE = """
:root{color-scheme:light dark;--fg:#1b1f24;--bg:#fff;--dim:#667;--line:#d5d9e0;--soft:#f4f6f9;--turn:#e3ecfb;--bad:#c8102e;
--badsoft:#fde8ea;
--read:#cfe3ff;--write:#ffd9a8;--update:#e6d2fb;--sync:#cdeeda;--wait:#e8eaee;--copy:#b9d7f7;--flight:#7fb2ea;--late:#bcd7f3}
@media (prefers-color-scheme:dark){:root{--fg:#e4e7ec;--bg:#14171c;--dim:#98a2b3;--line:#343b46;--soft:#1c2128;--turn:#22304a;
--bad:#ff6b7d;
--badsoft:#3d1a20;--read:#1f4273;--write:#6b4210;--update:#4b2d6b;--sync:#1d5236;--wait:#333a45;--copy:#214b78;--flight:#3c76b5;
--late:#2a4a6b}}
*{box-sizing:border-box}
body{font:15px/1.5 system-ui,sans-serif;color:var(--fg);background:var(--bg);margin:1.2rem auto;max-width:1500px;padding:0 1.2rem}
header{display:flex;align-items:center;gap:.8rem}h1{font-size:1.5rem;margin:.2rem 0}h2{font-size:1.05rem;margin:1.3rem 0 .3rem}
.verdict{font-weight:700;padding:.15rem .7rem;border-radius:1rem;background:var(--wait)}
.verdict.error{background:var(--bad);color:var(--bg)}.verdict.clean{background:var(--sync)}
.lead{font-size:1.05rem;margin:.4rem 0}.fix{color:var(--dim);margin:.2rem 0}.said{color:var(--dim);margin:.15rem 0;font-size:.9rem}
code,pre,.labels,svg text{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace}
code{overflow-wrap:anywhere;font-size:.9em;background:var(--soft);padding:0 .25em;border-radius:.25em}
.pair{display:flex;flex-wrap:wrap;gap:1rem;margin:.6rem 0}
.side{flex:1 1 26rem;min-width:0;border:1px solid var(--line);border-left:4px solid var(--bad);border-radius:6px;
padding:.3rem .8rem .5rem}
.side h2{margin:.2rem 0}.side p{margin:.1rem 0 .4rem}.side a{color:inherit;font-weight:400;font-size:.85em}
span.badge{display:inline-block;width:1.5em;height:1.5em;line-height:1.5em;text-align:center;border-radius:50%;background:var(--bad);
color:var(--bg);font-weight:700}
figure{margin:.3rem 0}figcaption{color:var(--dim);font-size:.8rem}
pre{margin:0;overflow-x:auto;font-size:12px;line-height:1.55;background:var(--soft);border-radius:4px;padding:.2rem 0}
pre div{padding:0 .6rem;white-space:pre}pre i{display:inline-block;min-width:3em;color:var(--dim);font-style:normal}
pre .on{background:var(--badsoft);box-shadow:inset 3px 0 var(--bad);font-weight:600}
.waits{border:1px solid var(--line);border-left:4px solid var(--bad);border-radius:6px;padding:.5rem .8rem .5rem 2rem;margin:.3rem 0}
.picture{display:flex;border:1px solid var(--line);border-radius:6px;margin:.4rem 0}.scroll{overflow-x:auto;flex:1 1 auto;min-width:0}
.labels{position:relative;flex:0 0 190px;border-right:1px solid var(--line);font-size:11px}
.labels div{position:absolute;left:0;right:0;padding:0 .6rem;display:flex;align-items:center;white-space:nowrap;overflow:hidden}
.labels .barrier,.labels .flight{color:var(--dim);padding-left:1.6rem}.labels .hot{color:var(--bad);font-weight:700}
svg{display:block;flex:none}svg text{font-size:10.5px;fill:var(--fg)}
.ruler{fill:var(--dim)!important;font-size:9.5px!important}rect.row{fill:var(--soft)}rect.row.barrier,rect.row.flight{fill:none}
rect.turn{fill:var(--turn)}rect.gap{fill:var(--bg);stroke:var(--line);stroke-dasharray:3 3}text.gap{fill:var(--dim)}
.ev rect{stroke:var(--line);fill:var(--wait)}.ev.read rect{fill:var(--read)}.ev.write rect{fill:var(--write)}
.ev.update rect{fill:var(--update)}.ev.sync rect{fill:var(--sync)}.ev.copy rect{fill:var(--copy)}.ev.plain rect{fill:var(--bg)}
.ev.bad rect{fill:var(--badsoft)}.ev.marked rect{stroke:var(--bad);stroke-width:2.5}
.ev:target rect,.ev:focus rect{stroke:var(--fg);stroke-width:2.5}
.ev:focus{outline:none}circle.badge{fill:var(--bad)}text.badge{fill:var(--bg);font-weight:700;text-anchor:middle}
rect.sleep{fill:url(#hatch);stroke:var(--line)}rect.hatch{fill:var(--wait)}
rect.ever{fill:url(#stuck);stroke:var(--bad);stroke-width:1.5}rect.stuck{fill:var(--badsoft)}
rect.phase{fill:none;stroke:var(--dim);stroke-dasharray:4 3}rect.phase.stuck{stroke:var(--bad);fill:var(--badsoft)}

rect.phase.done{fill:var(--sync);stroke:var(--line);stroke-dasharray:none;opacity:.75}
rect.flight{fill:var(--flight)}rect.flight.late{fill:var(--late)}
line.joint{stroke:var(--dim);stroke-width:1}circle.joint{fill:var(--dim)}
path.race{fill:none;stroke:var(--bad);stroke-width:2.5;stroke-dasharray:6 4}path.race.more{stroke-width:1;opacity:.6}
rect.why{fill:var(--bad)}text.why{fill:var(--bg);font-weight:700}
path.edge{fill:none;stroke:var(--bad);stroke-width:1.6}path.edge.needs{stroke-dasharray:5 4}path.arrow{fill:var(--bad)}
.legend{display:flex;flex-wrap:wrap;gap:.5rem;font-size:.85rem}.k{padding:0 .6rem;border:1px solid var(--line);border-radius:4px}
.k.read{background:var(--read)}.k.write{background:var(--write)}.k.update{background:var(--update)}.k.sync{background:var(--sync)}
.k.wait{background:var(--wait)}.k.copy{background:var(--copy)}.k.bad{border:2px solid var(--bad)}
.findings li{margin:.25rem 0}.findings .error{border-left:3px solid var(--bad);padding-left:.6rem;list-style:none;margin-left:-1rem}
.events{font:12px/1.5 ui-monospace,monospace;white-space:pre-line}
"""

NOTEBOOK = STYLE + """
.verdict.error,span.badge{color:#fff}svg text.badge,svg text.why{fill:#fff}.picture svg{max-width:none}
h1,h2{border:0;font-weight:600}h1{font-size:1.2em}h2,.lead{font-size:1.05em}.said{font-size:1em}
"""
"""For `html.parts.scoped`: what is white on red on a page is so in a notebook, whatever its theme is."""

SCRIPT = """
const box=document.querySelector('.scroll'),mark=document.getElementById('mark2')||document.getElementById('mark!');
function to(e){const r=e.getBoundingClientRect(),b=box.getBoundingClientRect();box.scrollLeft+=r.left-b.left-b.width*.6}
if(box&&box.dataset.end)box.scrollLeft=box.scrollWidth;else if(box&&mark)to(mark);
for(const a of document.querySelectorAll('a[href^="#mark"]'))a.addEventListener('click',()=>{const e=document.getElementById(
a.getAttribute('href').slice(1));if(e)to(e)});
"""
