"""Odd PTX that ptxas takes, in any layout, with every directive, number and initialiser: read, judged, written as the same program."""

from __future__ import annotations

from pathlib import Path

import pytest

from ptxkit import grammar
from ptxkit.check import check_text

from .cubin import differences
from .test_corpus import assembled
from .test_fast import difference

pytestmark = pytest.mark.timeout(60)

HEAD = ".version 9.0\n.target sm_90a\n.address_size 64\n"
TEXTS = (
    ".version 9.0\r\n.target sm_90a\r\n.address_size 64\r\n.visible .entry k()\r\n{\r\n\tret;\r\n}",
    HEAD + (
        ".visible\n.entry\tk ( .param\n.u64 a ,.param .u64 .ptr .global .align 8 b )\t.maxntid\t128 , "
        "1\n.minnctapersm 2 .pragma \"nounroll\";{ret;}"
    ),
    (
        "// c\n.version 9.0 // y\n.target sm_90a, texmode_unified\n.address_size 64 /* z\n */ .visible .entry "
        "k(){/**/ret/* ; */;} // end"
    ),
    HEAD + (
        ".entry k(){.reg .b32 a,b<3>,c;.reg.pred p;mov.u32 a,1;@ p mov.u32 b0 , 0x10;@! p mov.u32 b1,0b11;@ "
        "!p mov.u32 b2,017;mov.u32 c,5U;{.reg .b32 a;mov.u32 a,2;L:bra L;}L:ret;}"
    ),
    HEAD + (
        ".entry k(){.reg .f32 f;.reg .f64 d;mov.f32 f,1.5;mov.f32 f,0f3F800000;mov.f64 d,0d3FF0000000000000;"
        "mov.f64 d,-1.5;mov.f64 d,1e3;mov.f64 d,.5;mov.f64 d,2.;ret;}"
    ),
    HEAD + (
        ".entry k(){.reg .b32 a;mov.u32 a,(1+2)*3;mov.u32 a,1<<4|3;mov.u32 a,5==5?3:4;mov.u32 a,WARP_SZ;"
        "mov.u32 a,-1;mov.u32 a,~0;mov.u32 a,!5;mov.u32 a,(.s64)5;ret;}"
    ),
    HEAD + (
        ".global .b32 x[2][3]={{1,2,3},{4,5,6}};.global .f32 y[4]={1.0,2.5,0f40000000,-3.0};.const .b8 "
        "s[]={72,105,0};.global .u64 p[3]={x,x+4,generic(y)};.global .u64 q=generic(x)+8;.visible .global "
        ".align 16 .v4 .f32 v={1.0,2.0,3.0,4.0};.entry k(){.reg .b64 a;mov.u64 a,x+8;mov.u64 a,p;mov.u64 a,s;"
        "ret;}"
    ),
    HEAD + (
        ".func (.reg .b32 r) f(.reg .b32 a,.reg .f32 b){add.u32 r,a,1;ret;}.entry k(){.reg .b32 x,y;.reg "
        ".f32 z;call (x),f,(y,z);call.uni (x),f,(5,1.0);ret;}"
    ),
    HEAD + (
        ".visible .func (.param .b32 r) g(.param .align 8 .b8 a[8]);.visible .func (.param .b32 r) g(.param "
        ".align 8 .b8 a[8]){.reg .b32 t;ld.param.b32 t,[a+4];st.param.b32 [r+0],t;ret;}.entry k(){.reg .b64 "
        "p;.param .align 8 .b8 x[8];.param .b32 y;pr:.callprototype (.param .b32 _) _ (.param .align 8 .b8 "
        "_[8]);ts:.calltargets g;mov.u64 p,g;call (y),p,(x),pr;call (y),p,(x),ts;call (y),g,(x);ret;}"
    ),
    HEAD + ".func b(){ret;}.visible .func a();.alias a,b;.entry k(){call a;ret;}",
    HEAD + ".entry k(){.reg .b32 i;mov.u32 i,%tid.x;ts:.branchtargets A,B<2>;brx.idx i,ts;A:ret;B0:ret;B1:trap;}",
    HEAD + (
        ".extern .shared .align 16 .b8 dyn[];.shared .b32 w;.entry k(){.local .align 8 .b8 loc[16];.reg .b32 "
        "a;.reg .b64 b;mov.u32 a,dyn;ld.shared.u32 a,[dyn+4];ld.shared.u32 a,[w];st.local.u32 [loc+8],a;"
        "ld.local.v2.u32 {a,_},[loc];cvta.shared.u64 b,b;ld.u32 a,[b+-4];ld.volatile.shared.u32 a,[w+0];ret;}"
    ),
    HEAD + (
        ".file 1 \"a b/c.cu\", 123, 45\n.file 2 \"d//e.cu\"\n.entry k(){.loc 1 2 3\n.loc 2 5 6, function_name $n, "
        "inlined_at 1 2 3\nret;}.section .debug_str{$n:.b8 102,0\n}"
    ),
    HEAD + (
        ".section .debug_abbrev{.b8 1,2\n.b8 0}\n.section .debug_info { .b32 4\n.b32 .debug_abbrev\n.b64 L0+4\n "
        "L0: .b8 -1 }\n.entry k(){ret;}"
    ),
    HEAD + (
        ".weak .entry k(){exit;}.common .global .b32 c;.weak .global .align 4 .b32 wk=7;.entry m(){.reg .b64 "
        "a;mov.u64 a,c;mov.u64 a,wk;ret;}"
    ),
    HEAD + ".entry k()\n{\n\n\n.reg\n.b32\n%r\n<5>\n;\nadd\n.u32\n%r1\n,\n%r2\n,\n%r3\n;ret\n;\n}\n\n",
    HEAD + ".entry add(){.reg .b32 add,mov,ret;add.u32 add,mov,ret;bra:mov.u32 add,mov;bra bra;}",
    HEAD + (
        ".entry k(.param .align 64 .b8 m[128]){.reg .b64 d;.reg .pred p;.shared .align 8 .b64 b;.shared "
        ".align 128 .b8 s[1024];mov.b64 d,m;prefetch.param.tensormap [m];cvta.param.u64 d,d;"
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [ s ] , [ d , { 0 ,"
        " 1 } ] , [ b ] ;mbarrier.try_wait.parity.shared::cta.b64 p , [b] , 0 ;ret;}"
    ),
    HEAD + (
        ".global .texref t;.global .surfref su;.entry k(){.reg .f32 f<4>;.reg .b32 i;tex.2d.v4.f32.f32 {f0,"
        "f1,f2,f3},[t,{f0,f1}];suld.b.1d.b32.trap i,[su,{i}];ret;}"
    ),
    HEAD + (
        ".entry k(){.reg .b32 a;.reg .pred p,q;setp.lt.and.u32 p|q,a,5,!p;lop3.b32 a,a,a,a,0x80;"
        "shfl.sync.idx.b32 a|p,a,0,31,-1;mov.pred p,!q;vote.sync.any.pred q,!p,0xffffffff;vadd.u32.u32.u32 "
        "a.b0,a.b1,a.h1,a;vmad.s32.s32.u32.sat a,a.b0,a.h1,-a;ret;}"
    ),
    HEAD + (
        ".entry k(){.pragma \"nounroll\";.pragma \"used_bytes_mask 4095\";ret;}.entry l() .reqntid 32,1,1 "
        ".maxnreg 40 .reqnctapercluster 2 .explicitcluster {ret;}"
    ),
    HEAD + ".global .attribute(.managed) .b32 mg;.entry k(){.reg .b64 a;mov.u64 a,mg;ret;}",
    HEAD + (
        ".entry k(){.reg .b128 q;.reg .b64 a,b;mov.b128 q,{a,b};mov.b128 {a,_},q;.reg .v4 .f32 v;mov.f32 v.x,"
        "0f00000000;ret;}"
    ),
)


@pytest.mark.pure
@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_odd_texts_are_read_and_judged(text: str) -> None:
    assert difference(text) == ""
    module = grammar.parse(text)
    assert grammar.parse(grammar.write(module)) == module
    assert check_text(text, protocols=False) == ()


@pytest.mark.ptxas
@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_odd_texts_are_written_as_the_same_program(text: str, tmp_path: Path) -> None:
    written = grammar.write(grammar.parse(text))
    assert written != text
    assert differences(assembled(text, tmp_path), assembled(written, tmp_path)) == []
