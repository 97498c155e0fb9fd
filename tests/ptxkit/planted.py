"""PTX kernels with one planted fault each, and the message that ptxas 13.0 answers with."""

from __future__ import annotations

from dataclasses import dataclass

HEAD = ".version 8.0\n.target sm_90a\n.address_size 64\n"
DECLARED_AT = 4  # the line of `.entry` in every planted kernel


@dataclass(frozen=True)
class Planted:
    """`rule` is the expected finding's, `line` its PTX line, `says` and `fix` words of its text and of its way out."""

    ptx: str
    rule: str
    line: int | None
    says: str
    fix: str


def _wgmma(*body: str, directives: str = ".maxntid 128", before: str = "") -> str:
    load = [".reg .f32 %f<4>;", ".reg .b64 %rd<4>;", ".reg .b32 %r<4>;", ".reg .pred %p<2>;",
            "ld.param.u64 %rd3, [p];", "ld.global.u64 %rd1, [%rd3];", "ld.global.u64 %rd2, [%rd3+8];",
            *(f"mov.f32 %f{i}, 0f00000000;" for i in range(4))]
    store = [*(f"st.global.f32 [%rd3+{16 + 4 * i}], %f{i};" for i in range(4)), "ret;"]
    return f"{HEAD}{before}.visible .entry k(.param .u64 p) {directives} {{\n" + "\n".join([*load, *body, *store]) + "\n}\n"


FIRST = DECLARED_AT + 12  # the line of the first statement of a `_wgmma` body
FENCE, COMMIT, WAIT = "wgmma.fence.sync.aligned;", "wgmma.commit_group.sync.aligned;", "wgmma.wait_group.sync.aligned 0;"
MMA = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0,%f1,%f2,%f3}, %rd1, %rd2, 1, 1, 1, 0, 0;"
CLEAN = _wgmma(FENCE, MMA, COMMIT, WAIT)

FUNCTION = (".visible .func fn(.param .u64 q) { .reg .b64 %rd<4>; .reg .f32 %f<4>; ld.param.u64 %rd1, [q]; mov.u64 %rd2, %rd1; "
            f"mov.f32 %f0, 0f00000000; mov.f32 %f1, %f0; mov.f32 %f2, %f0; mov.f32 %f3, %f0; {FENCE} {MMA} {COMMIT} ret; }}\n")


def _setmaxnreg(directives: str, direction: str = "inc", target: str = "sm_90a") -> str:
    head = HEAD.replace("sm_90a", target)
    return f"{head}.visible .entry k() {directives} {{\nsetmaxnreg.{direction}.sync.aligned.u32 232;\nret;\n}}\n"


SETMAXNREG_IN_EFFECT = _setmaxnreg(".maxntid 384 .minnctapersm 1")

REMARKS = {
    "setmaxnreg without a cap": Planted(_setmaxnreg(""), "C7508", None, "'setmaxnreg' ignored", ".minnctapersm 1"),
    "accumulator read in the stage": Planted(
        _wgmma(FENCE, MMA, COMMIT, "add.f32 %f0, %f0, %f1;", WAIT), "C7517", FIRST + 3, "warpgroup.wait is injected", "wgmma.wait_group"),
    "no fence": Planted(_wgmma(MMA, COMMIT, WAIT), "C7519", FIRST, "warpgroup.arrive is injected", "wgmma.fence"),
    "accumulator read across the loop": Planted(
        _wgmma("ld.global.u32 %r1, [%rd3+8];", "L0:", FENCE, MMA, COMMIT, "wgmma.wait_group.sync.aligned 1;", "sub.u32 %r1, %r1, 1;",
               "setp.ne.u32 %p0, %r1, 0;", "@%p0 bra L0;", "add.f32 %f0, %f0, %f1;", WAIT),
        "C7514", DECLARED_AT, "reading accumulator registers", "wait_group before the first use"),
    "stage across a call": Planted(
        _wgmma(FENCE, MMA, COMMIT, "{ .param .u64 x; st.param.u64 [x], %rd1; call.uni fn, (x); }", WAIT, before=FUNCTION),
        "C7510", DECLARED_AT + 1, "crossing function boundary", "inline the callee"),
}

SPILLS = (f"{HEAD}.visible .entry k(.param .u64 p) .maxntid 1024 {{\n.reg .f32 %f<200>;\n.reg .b64 %rd<2>;\nld.param.u64 %rd1, [p];\n"
          + "".join(f"ld.global.f32 %f{i}, [%rd1+{4 * i}];\n" for i in range(200)) + "bar.sync 0;\n"
          + "".join(f"st.global.f32 [%rd1+{2000 + 4 * i}], %f{199 - i};\n" for i in range(200)) + "ret;\n}\n")


def _plain(*body: str) -> str:
    registers = ".reg .b32 %r<4>;\n.reg .f32 %f<4>;\n.reg .b64 %rd<4>;\n"
    return f"{HEAD}.visible .entry k(.param .u64 p) {{\n{registers}" + "\n".join(body) + "\nret;\n}\n"


ERRORS = {
    "wrong operand type": Planted(_plain("add.u32 %r1, %r2, %f1;"), "ptxas", 8, "Arguments mismatch for instruction 'add'", ""),
    "unknown instruction": Planted(_plain("bogus.u32 %r1, %r2;"), "ptxas", 8, "Not a name of any known instruction: 'bogus'", ""),
    "unknown label": Planted(_plain("bra NOWHERE;"), "ptxas", 8, "Unknown symbol 'NOWHERE'", ""),
    "parse error": Planted(_plain("add.u32 %r1 %r2, %r3;"), "ptxas", 8, "Parsing error near '%r2'", ""),
    "version": Planted(CLEAN.replace("8.0", "19.0"), "ptxas", 1, "Unsupported .version 19.0", "lower .version"),
    "target": Planted(
        _setmaxnreg(".maxntid 128 .minnctapersm 1", target="sm_90"), "ptxas", 5, "not supported on .target 'sm_90'", "sm_90a"),
    "dec above the entry": Planted(
        _setmaxnreg(".maxntid 384 .minnctapersm 1", "dec"), "C7406", 5, "larger than the largest", "count at entry"),
    "extern": Planted(
        _plain("{ call.uni ext; }").replace(".visible", ".extern .func ext;\n.visible"), "ptxas", None, "Unresolved extern", "link"),
}
