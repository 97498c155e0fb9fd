"""What the page of `inspect --view html` does: links between the panes, search, filters, keys and the overview at each pane's edge."""

from __future__ import annotations

SCRIPT = r"""
'use strict';
const $=(q,from=document)=>from.querySelector(q),$$=(q,from=document)=>[...from.querySelectorAll(q)];
const panes=$$('.rows'),rows=$$('.r'),by=new Map(),at=new Map();
for(const r of [...rows,...$$('.alloc[data-p]')]){r.lines=r.dataset.p?r.dataset.p.split(' '):[];
for(const p of r.lines){if(!by.has(p))by.set(p,[]);by.get(p).push(r)}}
for(const a of $$('.r>a'))a.tabIndex=-1;
const of=lines=>new Set(lines.flatMap(p=>by.get(p)||[]));
const paneOf=r=>r.closest('.rows');

function reveal(pane,r){const fold=r.closest('details.gap');if(fold)fold.open=true;
const top=r.getBoundingClientRect().top-pane.getBoundingClientRect().top+pane.scrollTop,view=pane.clientHeight;
if(top<pane.scrollTop+40||top>pane.scrollTop+view-36)pane.scrollTop=top-(above(pane)+18*Math.round(view/54))}
const above=pane=>$('.heads',pane)?.offsetHeight??0;
function mark(name,lines){for(const r of $$('.'+name))r.classList.remove(name);for(const r of of(lines))r.classList.add(name);ruler()}
function bring(lines,from){const seen=new Set([from]);for(const r of of(lines)){const pane=paneOf(r);
if(pane&&!seen.has(pane)){seen.add(pane);reveal(pane,r)}}}
let pinned=[];
function pin(lines,from){pinned=lines;mark('pin',lines);mark('on',lines);bring(lines,from)}

let hovered=null,follow=$('#follow');
document.addEventListener('mouseover',e=>{const r=e.target.closest('.r,.alloc');if(r===hovered)return;hovered=r;
const lines=r&&r.lines&&r.lines.length?r.lines:pinned;mark('on',lines);if(r&&follow.checked&&lines!==pinned)bring(lines,paneOf(r))});
document.addEventListener('click',e=>{
const jump=e.target.closest('a.j');if(jump){e.preventDefault();const to=$(jump.getAttribute('href'));reveal(paneOf(to),to);cursor(to);
return}
const link=e.target.closest('a[data-l]');if(link){e.preventDefault();scrollTo(0,0);pin([link.dataset.l],null);return}
const to=e.target.closest('.contents a');if(to){const d=$(to.getAttribute('href'));if(d.tagName==='DETAILS')d.open=true;return}
const r=e.target.closest('.r,.alloc');if(!r)return;
if(e.target.closest('a'))e.preventDefault();
if(r.lines&&r.lines.length){if(!paneOf(r))scrollTo(0,0);pin(r.lines,paneOf(r))}if(paneOf(r))cursor(r)});

function cursor(r){const pane=paneOf(r);for(const old of $$('.cur',pane))old.classList.remove('cur');r.classList.add('cur');
at.set(pane,r);pane.setAttribute('aria-activedescendant',r.id)}
const shown=r=>r.offsetParent!==null;
function step(pane,by){const all=$$('.r',pane).filter(shown);if(!all.length)return;
const here=all.indexOf(at.get(pane)),next=all[Math.max(0,Math.min(all.length-1,here<0?0:here+by))];
cursor(next);reveal(pane,next);mark('on',next.lines);bring(next.lines,pane)}
document.addEventListener('keydown',e=>{
if(e.key==='/'&&e.target!==box){e.preventDefault();box.focus();box.select();return}
if(e.key==='Escape'){if(e.target===box){box.value='';find();box.blur()}pinned=[];mark('pin',[]);mark('on',[]);return}
const part=e.target.closest('.alloc');if(part&&part.lines&&(e.key==='Enter'||e.key===' ')){e.preventDefault();scrollTo(0,0);
pin(part.lines,null);return}
const pane=e.target.closest('.rows');if(!pane||e.ctrlKey||e.metaKey||e.altKey)return;
const page=Math.max(1,Math.floor(pane.clientHeight/18)-2);
const by={ArrowDown:1,ArrowUp:-1,j:1,k:-1,PageDown:page,PageUp:-page,Home:-1e9,End:1e9}[e.key];
if(by){e.preventDefault();step(pane,by);return}
const r=at.get(pane);
if(e.key==='Enter'&&r){e.preventDefault();pin(r.lines,pane)}
if(e.key==='ArrowLeft'||e.key==='ArrowRight'){const other=panes[panes.indexOf(pane)+(e.key==='ArrowRight'?1:-1)];if(!other)return;
e.preventDefault();other.focus({preventScroll:true});
if(r){const to=[...of(r.lines)].find(x=>paneOf(x)===other);if(to){cursor(to);reveal(other,to)}}}});

const box=$('input[type=search]'),only=$('#only'),said=$('output');let hits=[],hit=-1;
const out=r=>r.matches('.loc')&&!$('#loc').checked||r.matches('.idle')&&!$('#idle').checked;
function find(){const words=box.value.trim().toLowerCase();for(const r of hits)r.classList.remove('hit');
hits=words?rows.filter(r=>!out(r)&&r.textContent.toLowerCase().includes(words)):[];hit=-1;for(const r of hits)r.classList.add('hit');
document.body.classList.toggle('only',only.checked&&words!=='');
if(only.checked)for(const d of $$('details.gap'))d.open=!!words&&!!$('.hit',d);
said.textContent=words?hits.length+(hits.length===1?' line':' lines'):'';ruler()}
box.addEventListener('input',find);only.addEventListener('change',find);
box.addEventListener('keydown',e=>{if(e.key!=='Enter'||!hits.length)return;e.preventDefault();
hit=(hit+(e.shiftKey?hits.length-1:1)+(hit<0&&e.shiftKey?1:0))%hits.length;const r=hits[hit];said.textContent=hit+1+' of '+hits.length;
reveal(paneOf(r),r);cursor(r);if(r.lines.length){mark('on',r.lines);bring(r.lines,paneOf(r))}});

let lit='';const chips=$$('[data-only]');
function light(which){lit=lit===which?'':which;for(const c of chips)c.setAttribute('aria-pressed',String(c.dataset.only===lit));
document.body.classList.toggle('some',lit!=='');for(const r of $$('.lit'))r.classList.remove('lit');if(!lit){ruler();return}
const found=rows.filter(r=>lit.length>1?r.classList.contains(lit):$('b.'+lit,r));
for(const r of found)r.classList.add('lit');
for(const r of of(found.flatMap(r=>r.lines)))if(paneOf(r)&&!$('b',r))r.classList.add('lit');
for(const pane of panes){const r=$('.lit',pane);if(r)reveal(pane,r)}ruler()}
for(const c of chips)c.addEventListener('click',()=>light(c.dataset.only));

const root=document.documentElement,dark=matchMedia('(prefers-color-scheme:dark)');
try{const kept=localStorage.getItem('ptxkit-theme');if(kept)root.dataset.theme=kept}catch{}
$('#theme').addEventListener('click',()=>{const now=root.dataset.theme||(dark.matches?'dark':'light');
root.dataset.theme=now==='dark'?'light':'dark';try{localStorage.setItem('ptxkit-theme',root.dataset.theme)}catch{}ruler()});
dark.addEventListener('change',()=>ruler());

const picker=$('#source select');if(picker){picker.addEventListener('change',()=>{const h=$('#'+picker.value),pane=paneOf(h);
pane.scrollTop+=h.getBoundingClientRect().top-pane.getBoundingClientRect().top});
const heads=$$('#source h3');$('#source .rows').addEventListener('scroll',e=>{const top=e.target.getBoundingClientRect().top+24;
const here=heads.filter(h=>h.getBoundingClientRect().top<=top).pop();if(here)picker.value=here.id},{passive:true})}
const entry=$('#entry');if(entry)entry.addEventListener('change',enter);
function enter(){const name=entry.value;
const r=$$('#ptx .r').find(r=>/\.entry\b/.test(r.textContent)&&r.textContent.split(/[^\w$%]+/).includes(name));
if(r){reveal(paneOf(r),r);cursor(r)}const h=$$('#sass h3').find(h=>h.textContent===name);
if(h){const pane=paneOf(h);pane.scrollTop+=h.getBoundingClientRect().top-pane.getBoundingClientRect().top-20}}

const strips=panes.map(pane=>{const c=document.createElement('canvas');c.setAttribute('aria-hidden','true');pane.parentNode.append(c);
const to=e=>{const b=c.getBoundingClientRect();pane.scrollTop=(e.clientY-b.top)/b.height*pane.scrollHeight-pane.clientHeight/2};
c.addEventListener('mousedown',to);c.addEventListener('mousemove',e=>{if(e.buttons&1)to(e)});return[pane,c,$$('.r',pane)]});
for(const split of $$('.split')){const sides=[split.previousElementSibling,split.nextElementSibling];
const first=sides.map(pane=>pane.style.flexGrow);
const move=by=>{const [a,b]=sides.map(pane=>pane.offsetWidth),all=sides.reduce((sum,pane)=>sum+ +pane.style.flexGrow,0);
const left=Math.max(120,Math.min(a+b-120,a+by))/(a+b);sides[0].style.flexGrow=all*left;sides[1].style.flexGrow=all*(1-left)};
let from=null;const drop=()=>{from=null;split.classList.remove('held');document.body.classList.remove('held')};
split.addEventListener('pointerdown',e=>{from=e.clientX;split.setPointerCapture(e.pointerId);split.classList.add('held');
document.body.classList.add('held')});
split.addEventListener('pointermove',e=>{if(from!==null){const by=e.clientX-from;from=e.clientX;move(by)}});
split.addEventListener('pointerup',drop);split.addEventListener('pointercancel',drop);
split.addEventListener('dblclick',()=>sides.forEach((pane,i)=>pane.style.flexGrow=first[i]));
split.addEventListener('keydown',e=>{const by={ArrowLeft:-24,ArrowRight:24}[e.key];if(by){e.preventDefault();move(by)}})}
let due=false;
function ruler(){if(!due){due=true;requestAnimationFrame(paint)}}
function paint(){due=false;const css=getComputedStyle(root),colour=n=>css.getPropertyValue(n).trim();
const kinds=[['b.t','--t'],['b.c','--c'],['b.b','--b']],roles=['rs','rp','rm','ro'];
for(const [pane,c,all] of strips){const h=c.clientHeight,g=c.getContext('2d');c.width=11;c.height=h;const n=Math.max(all.length,1);
all.forEach((r,i)=>{const y=i/n*h,d=Math.max(1,h/n),role=roles.find(x=>r.classList.contains(x));
if(role){g.fillStyle=colour('--'+role);g.fillRect(0,y,2,d)}
r.kind??=(kinds.find(([q])=>$(q,r))||[])[1]||'';if(r.kind){g.fillStyle=colour(r.kind);g.fillRect(3,y,8,d)}
if(r.classList.contains('hit')){g.fillStyle=colour('--x');g.fillRect(3,y,8,Math.max(2,d))}});
all.forEach((r,i)=>{if(r.classList.contains('on')){g.fillStyle=colour('--pin');g.fillRect(0,i/n*h,11,Math.max(2,h/n))}})}}
addEventListener('resize',ruler);

for(const pane of panes){const first=$('.r[data-p][class*=" o"]',pane);
if(!first)continue;let top=first,n=3;for(let r=first;n>0&&(r=r.previousElementSibling)?.matches('.r');)if(shown(r)){top=r;n--}
pane.scrollTop=top.getBoundingClientRect().top-pane.getBoundingClientRect().top-above(pane)-(n===3&&top.previousElementSibling?20:0)}
if(entry)enter();
if(/^#p\d+$/.test(location.hash))pin([location.hash.slice(2)],null);
const opened=/^#t[\d-]+$/.test(location.hash)&&$(location.hash);if(opened)opened.open=true;
ruler();
"""

__all__ = ["SCRIPT"]
