"""How the page of `inspect --view html` looks, light and dark."""

from __future__ import annotations

_LIGHT = """--fg:#1d2330;--bg:#fff;--panel:#f5f7fa;--dim:#576270;--line:#d8dee6;--accent:#1d5fd1;--on:#ffe27a;--pin:#f0a500;--bad:#c8102e;
--find:#b7f0c1;--l:46%;--a:.11;--t:#6d28d9;--c:#0369a1;--b:#b42318;--m:#8a5a00;--a0:#1d2330;--x:#0b6e63;--k:#1d5fd1;--q:#3d7a1f;
--rs:#98a2b3;--rp:#0ea5e9;--rm:#8b5cf6;--ro:#f59e0b;--bar:#2563eb33"""
_DARK = """--fg:#dfe5ee;--bg:#0f1319;--panel:#171d26;--dim:#8b97a8;--line:#2a3340;--accent:#7db0ff;--on:#463a0c;--pin:#f0b429;--bad:#ff7a85;
--find:#1d4d2b;--l:58%;--a:.14;--t:#c7a8ff;--c:#6cc4ff;--b:#ff9d92;--m:#f0c674;--a0:#dfe5ee;--x:#5fd7c4;--k:#7db0ff;--q:#a5d67f;
--rs:#667085;--rp:#38bdf8;--rm:#a78bfa;--ro:#fbbf24;--bar:#5b93ff40"""
HUE = (212, 140, 32, 285, 180, 350, 80, 250)

STYLE = f"""
:root{{color-scheme:light;{_LIGHT}}}
@media (prefers-color-scheme:dark){{:root:not([data-theme=light]){{color-scheme:dark;{_DARK}}}}}
:root[data-theme=dark]{{color-scheme:dark;{_DARK}}}
""" + "".join(f".o{number}{{--h:{hue}}}" for number, hue in enumerate(HUE)) + """
*{box-sizing:border-box}
html{scroll-padding-top:.5rem}
body{margin:0;background:var(--bg);color:var(--fg);font:14px/1.45 system-ui,-apple-system,'Segoe UI',sans-serif}
.first{height:100vh;height:100dvh;display:flex;flex-direction:column}
header{padding:.45rem .8rem .3rem;border-bottom:1px solid var(--line);background:var(--panel)}
.top{display:flex;align-items:center;gap:.9rem;flex-wrap:wrap}
h1{font-size:1.15rem;margin:0;font-weight:700;overflow-wrap:anywhere}
.facts{margin:0;color:var(--dim);flex:1 1 auto;display:flex;flex-wrap:wrap;gap:0 .9rem}.facts b{color:var(--fg);font-weight:650;
font-variant-numeric:tabular-nums}
input[type=search],select,button{font:inherit;color:inherit;background:var(--bg);border:1px solid var(--line);border-radius:5px;
padding:.12rem .5rem}
input[type=search]{width:11rem}label{color:var(--dim);white-space:nowrap}output{color:var(--dim);display:inline-block;min-width:4.2em;
padding-left:.4em;font-variant-numeric:tabular-nums}
input[type=checkbox]{vertical-align:-2px;margin:0 .25em 0 .4em}button{cursor:pointer}
.legend{display:flex;flex-wrap:wrap;align-items:center;gap:.3rem;margin-top:.3rem;font-size:12px}
.legend label:first-of-type{margin-left:auto}
.legend button{border-radius:1em;padding:0 .6rem;background:none;line-height:1.6}
.legend button[aria-pressed=true]{background:var(--accent);color:var(--bg)}.legend button[aria-pressed=true] b{color:var(--bg)}
.stripe{display:inline-block;width:.45em;height:.9em;border-radius:2px;vertical-align:-.1em}
.stripe.rs{background:var(--rs)}.stripe.rp{background:var(--rp)}.stripe.rm{background:var(--rm)}.stripe.ro{background:var(--ro)}
.said{margin:.15rem 0;color:var(--dim)}header .said{font-size:12px}
:focus-visible{outline:2px solid var(--accent);outline-offset:-2px}
.panes{display:flex;flex:1 1 0;min-height:0}
.pane{flex:1 1 0;min-width:0;display:flex;flex-direction:column;position:relative;border-right:1px solid var(--line)}
.pane:last-child{border-right:0}
.split{flex:none;width:9px;margin:0 -4px;z-index:2;cursor:col-resize;touch-action:none}
.split:hover,.split.held,.split:focus-visible{background:linear-gradient(to right,transparent 3px,var(--accent) 3px 6px,transparent 6px)}
.held,.held *{user-select:none}
.bar{display:flex;align-items:center;gap:.6rem;height:28px;flex:none;padding:0 .5rem;background:var(--panel);
border-bottom:1px solid var(--line);overflow:hidden;white-space:nowrap}
h2{font-size:12px;font-weight:700;margin:0;letter-spacing:.02em}.bar select{font-size:12px;padding:0 .2rem;max-width:14rem;min-width:0}
.bar .file{color:var(--dim);font-size:12px}
.rows{flex:1 1 0;overflow:auto;position:relative;font:12px/18px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;
padding-right:12px}
.rows:focus-visible{outline-offset:-3px}
.rows h3{font:600 11px/20px system-ui,sans-serif;color:var(--dim);margin:0;padding:0 .5rem;background:var(--panel);position:sticky;left:0;
overflow:hidden;text-overflow:ellipsis;white-space:nowrap;direction:ltr}
.r{white-space:pre;height:18px;width:max-content;min-width:100%;border-left:4px solid transparent;padding-right:.6rem}
.r[class*=" o"],.part{background:hsl(var(--h) 85% var(--l)/var(--a))}
.r[class~=rs]{border-left-color:var(--rs)}.r[class~=rp]{border-left-color:var(--rp)}.r[class~=rm]{border-left-color:var(--rm)}
.r[class~=ro]{border-left-color:var(--ro)}
.r[data-p]{cursor:pointer}
.r>a:first-child{color:var(--dim);text-decoration:none;display:inline-block;min-width:3em;text-align:right;margin-right:.8em}
.r b{font-weight:500}.r i,.r u,.r s{font-style:normal;text-decoration:none}.r i{color:var(--dim)}
b.t{color:var(--t);font-weight:700}b.c{color:var(--c);font-weight:700}b.b{color:var(--b);font-weight:700}b.m{color:var(--m)}
b.a{color:var(--a0)}b.x{color:var(--x)}
.r i.k{color:var(--k)}.r i.q{color:var(--q)}.r i.n{color:var(--dim)}
.r .n{display:inline-block;width:2.2em;margin-right:.8em;text-align:right;color:var(--dim)}
.w{display:inline-block;width:23ch;margin-right:1ch;color:var(--dim);text-decoration:none}
.w s{display:inline-block;width:4ch;text-align:right;margin:0 1ch;color:var(--fg);padding-right:.5ch;border-radius:2px;
background:linear-gradient(to right,var(--bar) calc(var(--n)*6.667%),transparent 0)}
#ptx .r s{display:none}#ptx .r s+*{margin:0}#ptx .r.pin s{display:inline}#ptx .r:not(.pin) s{display:inline-block;width:1.2em;
overflow:hidden;height:1em;vertical-align:-2px;color:transparent;position:relative}
#ptx .r:not(.pin) s::after{content:'…';color:var(--dim);position:absolute;left:.15em;top:-.25em}
.r a.j{color:var(--x)}.r.bad{text-decoration:underline wavy var(--bad);text-underline-offset:3px}
.r.on,.r:target{background:var(--on);--dim:var(--fg)}
.r.pin{box-shadow:inset 3px 0 var(--pin)}.r.cur{outline:1px solid var(--accent);outline-offset:-1px}
.r.hit{background:var(--find)}body.only .r:not(.hit){display:none}body.only h3,body.only .gap>summary{display:none}
body.some .r:not(.lit){opacity:.28}
body:has(#wrap:checked) .r{white-space:pre-wrap;overflow-wrap:anywhere;height:auto;min-height:18px;width:auto;
padding-left:calc(var(--g) + 2ch);text-indent:calc(-2ch - var(--g))}body:has(#wrap:checked) .r>*{text-indent:0}
#source{--g:6.8em}#ptx{--g:3.8em}#sass{--g:3.8em}#sass:has(.heads){--g:calc(3.8em + 24ch)}
.heads{position:sticky;top:0;z-index:1;white-space:pre;width:max-content;min-width:100%;border-left:4px solid transparent;
background:var(--panel);color:var(--dim);border-bottom:1px solid var(--line)}.heads *{text-decoration:none;cursor:help}
.heads .at{display:inline-block;min-width:3em;text-align:right;margin-right:.8em}.heads s{margin:0 1ch 0 0;width:6ch;color:inherit;
background:none}
.bar .more{margin-left:auto;font-size:12px}.r.loc,.r.idle{display:none}body:has(#loc:checked) .r.loc,
body:has(#idle:checked) .r.idle{display:block}
.gap summary{cursor:pointer;color:var(--dim);padding-left:4.6em;font:11px/18px system-ui,sans-serif;list-style:none;background:var(--panel)}
.gap summary::before{content:'⋯ '}.gap[open] summary::before{content:'▾ '}
canvas{position:absolute;right:0;bottom:0;top:28px;width:11px;height:calc(100% - 28px);cursor:pointer;background:var(--panel)}
.contents{flex:none;display:flex;gap:.2rem .4rem;align-items:center;height:32px;padding:0 .8rem;overflow-x:auto;white-space:nowrap;
border-top:1px solid var(--line);background:var(--panel);font-size:12px}
.contents a,.tables a{color:var(--accent);text-decoration:none}.contents a{padding:0 .5rem;border-radius:4px}.contents a:hover,
.tables a:hover{text-decoration:underline}
.tables{padding:.6rem .8rem;max-width:1500px}.tables h2{font-size:1rem;margin:.2rem 0 .5rem}
.tables details{border:1px solid var(--line);border-radius:6px;margin:.35rem 0;overflow-x:auto}
.tables summary{cursor:pointer;font-weight:600;padding:.3rem .7rem;background:var(--panel)}
.tables summary span{color:var(--dim);font-weight:400;margin-left:.3em}
table{border-collapse:collapse;margin:.3rem .7rem .6rem;font-size:13px}
td,th{padding:.14rem 1.1rem .14rem 0;text-align:left;vertical-align:top;font-variant-numeric:tabular-nums}
td.n,th.n{text-align:right}th{font-weight:600;color:var(--dim);border-bottom:1px solid var(--line)}.tables .said{margin:.2rem .7rem .5rem}
.map{display:block;width:calc(100% - 1.4rem);max-width:1200px;margin:.6rem .7rem;overflow:visible}
.map text{font:11px ui-monospace,monospace;fill:var(--fg);pointer-events:none}
.map .alloc text{paint-order:stroke;stroke:var(--bg);stroke-width:3px;
stroke-opacity:.75}.map .sym{font-weight:600}
.map .free{fill:none;stroke:var(--line)}.map .part{fill:hsl(var(--h) 70% var(--l)/.35);stroke:hsl(var(--h) 60% var(--l));stroke-width:.8}
.map .tick{stroke:var(--fg);stroke-opacity:.3;stroke-width:.8}.map .lead{fill:none;stroke:var(--dim);stroke-width:.8}
.map .alloc[data-p]{cursor:pointer}.map .alloc:hover .part,.map .alloc:focus .part,.map .on .part{stroke-width:2.5;stroke:var(--pin)}
@media (max-width:820px){.panes{flex-direction:column}.pane{border-right:0;border-bottom:1px solid var(--line)}.facts{flex-basis:100%}
.pane{flex-grow:1!important}.split{display:none}}
@media print{.first{height:auto}.rows{overflow:visible}canvas{display:none}}
"""

__all__ = ["STYLE"]
